package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newHistoryCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "history [REV]",
		Short:   "Show past rollouts, and who did what",
		Long:    `Show past rollouts and who did what, the newest last; of one commit, if one is named.`,
		Example: "  sluice history\n  sluice history 3f2a91c -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &exitError{1, fmt.Sprintf("sluice history takes one revision, and %d were given: %s", len(args), strings.Join(args, " "))}
			}
			return nil
		},
	}
	socket := serverFlag(cmd)
	output := outputFlag(cmd, dataFormats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		doc, err := newAdminClient(*socket).history(ctx)
		if err != nil {
			return err
		}
		if len(args) == 1 {
			if err := doc.only(args[0]); err != nil {
				return err
			}
		}
		return a.print(output, doc, func(wide bool) string { return historyTable(doc, wide) })
	}
	return cmd
}

// only keeps what is about one commit.
func (d *historyDocument) only(rev string) error {
	var found []string
	for _, act := range d.Acts {
		if strings.HasPrefix(act.Commit, rev) && !slices.Contains(found, act.Commit) {
			found = append(found, act.Commit)
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("the history has nothing of commit %s: see sluice history", rev)
	case 1:
	default:
		return fmt.Errorf("revision %s is ambiguous: it may be %s; give more digits", rev, strings.Join(found, " or "))
	}
	acts := d.Acts[:0]
	for _, act := range d.Acts {
		if act.Commit == found[0] {
			acts = append(acts, act)
		}
	}
	d.Acts = acts
	return nil
}

func historyTable(doc *historyDocument, wide bool) string {
	if len(doc.Acts) == 0 {
		return "nothing has happened yet\n"
	}
	rows := []string{"TIME\tGROUP\tCOMMIT\tNODES\tBY\tWHAT"}
	for _, act := range doc.Acts {
		commit := short(act.Commit)
		if wide {
			commit = act.Commit
		}
		what := oneLine(act.Words)
		if act.By != "" || act.What == reconcile.EventHalted {
			what = act.What + ": " + what
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s", act.At.Local().Format(time.DateTime), act.Group, dash(commit), act.Nodes, dash(act.By), what))
	}
	return columns(rows...)
}
