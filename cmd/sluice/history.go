package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newHistoryCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "history [REV]",
		Short:   "Show past rollouts, and who did what",
		Long:    `Show past rollouts and who did what, the newest last; of one commit or rollout, if one is named.`,
		Example: "  sluice history\n  sluice history 3f2a91c -o json\n  sluice history r-42",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &exitError{1, fmt.Sprintf("sluice history takes one revision, and %d were given: %s", len(args), strings.Join(args, " "))}
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
		doc, err := c.history(ctx)
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

// only keeps what is about one commit, or about the rollout with a number.
func (d *historyDocument) only(rev string) error {
	if n, ok := reconcile.ParseNumber(rev); ok {
		d.Acts = slices.DeleteFunc(d.Acts, func(a reconcile.Act) bool { return a.Rollout != n })
		if len(d.Acts) == 0 {
			return fmt.Errorf("the history has nothing of rollout %s: see sluice history", n)
		}
		return nil
	}
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
	head := "TIME\tROLLOUT\tCOMMIT\tGROUP\tNODES\tBY\tWHAT\tWORDS"
	if wide {
		head = "ID\t" + head
	}
	rows := []string{head}
	for i := range doc.Acts {
		act := &doc.Acts[i]
		row, commit := "", short(act.Commit)
		if wide {
			row, commit = fmt.Sprintf("%d\t", act.ID), act.Commit
		}
		row += strings.Join([]string{
			act.At.Local().Format(time.DateTime), rolloutCell(act.Rollout), dash(commit), act.Group,
			strconv.Itoa(act.Nodes), dash(act.By), act.What, oneLine(act.Words),
		}, "\t")
		rows = append(rows, row)
	}
	return columns(rows...)
}
