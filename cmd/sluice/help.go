package main

import (
	"github.com/spf13/cobra"
)

// newHelpCommand is cobra's own, but that a command which does not exist is an
// error.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say what a command does",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil {
				found, rest = cmd.Root(), args
			}
			if len(rest) > 0 {
				return unknownCommand(found, rest)
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
