package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

func newRetryCommand(a *app) *cobra.Command {
	return newIntentCommand(a, reconcile.Retry, "Forget what was refused, and try again",
		`Forget what nodes refused, and try a halted or parked commit again. Nodes that said no
are led back to the base first.`)
}
