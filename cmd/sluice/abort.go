package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newAbortCommand(a *app) *cobra.Command {
	return newIntentCommand(a, reconcile.Abort, "Walk back to the base, and park the commit",
		`Walk every node back to the commit that its group finished last, as a plan, and park
the newest one: it is not tried again until it changes, or somebody says retry. A
pause of the group ends with that; one of a commit that has not begun stays.`)
}
