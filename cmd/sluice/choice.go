package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// choice is a flag with a few fixed values.
type choice struct {
	value string
	all   []string
}

func (c *choice) String() string { return c.value }
func (*choice) Type() string     { return "string" }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.all, s) {
		last := len(c.all) - 1
		return errors.New("want " + strings.Join(c.all[:last], ", ") + " or " + c.all[last])
	}
	c.value = s
	return nil
}

// outputFlag adds -o. The first format is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *choice {
	c := &choice{formats[0], formats}
	cmd.Flags().VarP(c, "output", "o", "format of stdout: "+strings.Join(formats, ", "))
	completeWith(cmd, "output", formats...)
	return c
}

// completeWith gives the shell a flag's values.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	// The error is that of a flag which does not exist, so it never happens.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
