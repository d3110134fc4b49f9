package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newResumeCommand(a *app) *cobra.Command {
	return newIntentCommand(a, reconcile.Resume, "End a pause",
		`End a pause: rollouts go on where they stopped.`)
}
