package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func newSyncCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Have the server poll Git now",
		Long: `Have the server poll Git now. It prints what the server knew until then, and does not
wait for the end of the poll: sluice status --wait --commit REV does.`,
		Example: `  sluice sync && sluice status --wait --commit "$(git rev-parse HEAD)"`,
		Args:    none,
	}
	server := serverFlag(cmd)
	output := outputFlag(cmd, dataFormats...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		c, err := server.client()
		if err != nil {
			return err
		}
		doc, err := c.sync(ctx)
		if err != nil {
			return err
		}
		a.say("the server polls Git now")
		return a.print(output, doc, func(wide bool) string { return syncTable(doc, wide) })
	}
	return cmd
}

func syncTable(doc *syncDocument, wide bool) string {
	s := &doc.Before
	head, row := []string{"SOURCE", "BRANCH", "COMMIT", "POLLED"}, []string{s.URL, dash(s.Branch), dash(short(s.Commit)), clock(s.PolledAt)}
	if wide {
		head, row = append(head, "AUTHOR", "SUBJECT", "ERROR"), append(row, dash(clean(s.Author)), dash(clean(s.Subject)), dash(oneLine(s.Error)))
		row[2] = dash(s.Commit)
	}
	return columns(strings.Join(head, "\t"), strings.Join(row, "\t"))
}
