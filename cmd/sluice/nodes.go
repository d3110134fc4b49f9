package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newNodesCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes: who is connected, at what, and why not at target",
		Long: `List the nodes that the server has seen since it started, those that ask for
attention first: nacked, refused, behind, disconnected, at-target.`,
		Example: "  sluice nodes --state nacked\n  sluice nodes --group edge -o wide",
		Args:    none,
	}
	server := serverFlag(cmd)
	f := cmd.Flags()
	group := f.String("group", "", "only nodes of this group")
	state := &choice{"", reconcile.NodeStates}
	f.Var(state, "state", "only nodes in this state: "+strings.Join(reconcile.NodeStates, ", "))
	completeWith(cmd, "state", reconcile.NodeStates...)
	text := f.String("filter", "", "only nodes whose id, state or reason holds this text")
	limit := f.Int("limit", 0, "at most so many (default: all)")
	output := outputFlag(cmd, dataFormats...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 0 {
			return &exitError{1, fmt.Sprintf("--limit %d: want a number above 0, or 0 for all", *limit)}
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		q := url.Values{"sort": {"trouble"}}
		for name, v := range map[string]string{"group": *group, "state": state.value, "q": *text} {
			if v != "" {
				q.Set(name, v)
			}
		}
		if *limit > 0 {
			q.Set("limit", strconv.Itoa(*limit))
		}
		c, err := server.client()
		if err != nil {
			return err
		}
		doc, err := c.nodes(ctx, q)
		if err != nil {
			return err
		}
		return a.print(output, doc, func(wide bool) string { return nodesTable(doc, wide) })
	}
	return cmd
}

func nodesTable(doc *nodesDocument, wide bool) string {
	if doc.Total == 0 {
		return "no nodes\n"
	}
	head := "NODE\tGROUP\tCOMMIT\tSTAGE\tSTATE\tWHY"
	if wide {
		head = "NODE\tGROUP\tCOMMIT\tSTAGE\tPEER\tUSER AGENT\tACKED\tSEEN\tSTATE\tWHY"
	}
	rows := []string{head}
	for i := range doc.Nodes {
		n := &doc.Nodes[i]
		cells := []string{n.ID, dash(n.Group), dash(short(n.Commit)), dash(n.Stage)}
		if wide {
			cells = append(cells, dash(n.Peer), dash(n.UserAgent), clock(n.AckedAt), clock(n.SeenAt))
		}
		rows = append(rows, strings.Join(append(cells, n.State, n.Why), "\t"))
	}
	out := columns(rows...)
	if more := doc.Total - len(doc.Nodes); more > 0 {
		out += fmt.Sprintf("… and %d more\n", more)
	}
	return out
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.TimeOnly)
}
