package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/schema"
)

func newNodeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node ID",
		Short: "Show one node: what it acknowledged, is served and should have",
		Long: `Show one node: what it acknowledged, what it was served and what it should have, by
type and, with -o wide, by resource; why it is not at target; and what it refused, in
its own words.`,
		Example: "  sluice node edge-1\n  sluice node edge-1 -o wide",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &exitError{1, "which node? name one, such as sluice node edge-1; see sluice nodes"}
			}
			return nil
		},
	}
	server := serverFlag(cmd)
	output := outputFlag(cmd, dataFormats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		c, err := server.client()
		if err != nil {
			return err
		}
		doc, err := c.node(ctx, args[0])
		if err != nil {
			return err
		}
		return a.print(output, doc, func(wide bool) string { return nodeText(doc, wide) })
	}
	return cmd
}

func nodeText(doc *nodeDocument, wide bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s", doc.ID, doc.State)
	if doc.Why != "" {
		fmt.Fprintf(&b, ": %s", doc.Why)
	}
	fmt.Fprintf(&b, "\ngroup %s  %s  cluster %s  zone %s\n", dash(doc.Group), dash(doc.UserAgent), dash(doc.Cluster), dash(doc.Zone))
	for i := range doc.Sessions {
		s := &doc.Sessions[i]
		fmt.Fprintf(&b, "\nsession %d  %s  connected %s  at %s  %s\n", s.ID, s.Peer, ago(time.Since(s.Connected)), short(s.Commit), s.State)
		rows := []string{"TYPE\tACKED\tSERVED\tDESIRED\tHELD\tSTATE"}
		for j := range s.Types {
			t := &s.Types[j]
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", t.Type, brief(t.Acked), brief(t.Served), brief(t.Desired), t.Held, t.State))
			for k := range t.Resources {
				if r := &t.Resources[k]; wide {
					rows = append(rows, fmt.Sprintf("  %s\t%s\t%s\t%s\t\t%s\t%s", r.Name, brief(r.Acked), brief(r.Served), brief(r.Desired), r.State, originWords(r.Origin)))
				}
			}
		}
		b.WriteString(columns(rows...))
		if n := s.Nack; n != nil {
			fmt.Fprintf(&b, "\nNACK  %s  nonce %s\n%s\n", n.Type, clean(n.Nonce), indent(cleanLines(n.Words), "  "))
			for _, o := range s.Origins {
				fmt.Fprintf(&b, "  → %s\n", originWords(&o))
			}
		}
	}
	return b.String()
}

func originWords(o *schema.Origin) string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%s  %s %s", o.Pos.Short(), o.Kind, o.Name)
}

// brief is a version as people compare it.
func brief(v schema.Version) string { return dash(string(v[:min(len(v), 4)])) }

// ago is a time as people say it: 12s, 3m, 2h, 4d.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
