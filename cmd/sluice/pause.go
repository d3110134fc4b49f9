package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newPauseCommand(a *app) *cobra.Command {
	return newIntentCommand(a, reconcile.Pause, "Serve nothing new, until resume",
		`Serve nothing new: no stage is opened and no rollout begins, until resume, also over a
restart. Endpoints and secrets go on. A node that connects meanwhile gets the base.`)
}
