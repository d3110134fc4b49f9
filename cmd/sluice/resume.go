package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newResumeCommand(a *app) *cobra.Command {
	return newIntentCommand(a, reconcile.Resume, "End a pause",
		`End a pause: rollouts go on where they stopped. With --plan nothing is done, and the
exit code is 3, unless what goes on is what the saved plan says: the same commit's
content, from what the nodes held then.`)
}
