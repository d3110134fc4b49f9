package main

import (
	"net/http"

	"github.com/spf13/cobra"
)

func newSyncCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sync",
		Short:   "Have the server poll Git now",
		Example: "  sluice sync && sluice status --wait",
		Args:    none,
	}
	socket := serverFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		if _, err := newAdminClient(*socket).do(ctx, http.MethodPost, "/v1/sync", nil); err != nil {
			return err
		}
		a.say("the server polls Git now")
		return nil
	}
	return cmd
}
