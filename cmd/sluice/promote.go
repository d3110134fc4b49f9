package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newPromoteCommand(a *app) *cobra.Command {
	return newIntentCommand(a, reconcile.Promote, "Let a wave go on that waits for it",
		`Let a wave go on that waits for a promotion. Every group is one wave, so nothing
waits yet, and it says so.`)
}
