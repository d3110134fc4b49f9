package main

import "github.com/spf13/cobra"

// newApplyCommand answers fingers that are used to other tools.
func newApplyCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "apply",
		Short:              "There is no apply: sluice applies what is merged",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &exitError{1, "there is no apply: sluice applies what is merged in Git; see what a merge would do with: sluice plan"}
		},
	}
}
