package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-xds/sluice/schema"
)

// The exit codes beside 0 and 1.
const (
	exitChanges  = 2 // plan --detailed-exitcode
	exitRefused  = 3 // no safe path, a blocking hazard; a halted rollout
	exitTimedOut = 4 // status --wait
)

// exitError ends the process with a code. Without a message the command has
// said what there is to say.
type exitError struct {
	code int
	msg  string
}

func (e *exitError) Error() string { return e.msg }

// report prints what went wrong, and gives the exit code.
func (a *app) report(err error) int {
	var exit *exitError
	var wrong schema.Diagnostics
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.msg != "" {
			fmt.Fprintln(a.err, "error: "+exit.msg)
		}
		return exit.code
	case errors.As(err, &wrong):
		fmt.Fprintln(a.err, err)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(a.err, "error: interrupted")
	default:
		fmt.Fprintln(a.err, "error: "+err.Error())
	}
	return 1
}

// because is err, or why ctx ended if that is the reason for it.
func because(ctx context.Context, err error) error {
	if err != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// flagError says in one line which flag is wrong, and which was meant.
func flagError(cmd *cobra.Command, err error) error {
	see := fmt.Sprintf("; see %s --help", cmd.CommandPath())
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return &exitError{1, plainFlagError(err) + see}
	}
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		return &exitError{1, fmt.Sprintf("unknown flag -%s for %q%s", unknown.GetSpecifiedName(), cmd.CommandPath(), see)}
	}
	name := unknown.GetSpecifiedName()
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return &exitError{1, fmt.Sprintf("unknown flag --%s for %q%s%s", name, cmd.CommandPath(), meant("--", name, known), see)}
}

// plainFlagError is pflag's error without the Go of it.
func plainFlagError(err error) string {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err.Error()
	}
	return fmt.Sprintf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), flagReason(bad.Unwrap(), bad.GetFlag().Value.Type()))
}

// flagReason says what a flag of a type wants, where pflag would quote the
// parser of Go.
func flagReason(err error, kind string) string {
	switch kind {
	case "duration":
		return `want a duration such as "30s" or "5m"`
	case "bool":
		return "want true or false"
	case "float64":
		return "want a number"
	case "int", "uint", "uint16", "int64":
		return "want a whole number"
	}
	return err.Error()
}

// unknownCommand is the check of arguments of a command that holds others: it
// takes none, so one is a command that does not exist.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return &exitError{1, fmt.Sprintf("unknown command %q%s; see %s --help", args[0], meant("", args[0], known), cmd.CommandPath())}
}

// atMostOne is the check of arguments of a command that takes a directory.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return &exitError{1, fmt.Sprintf("%s takes one directory, and %d were given: %s", cmd.CommandPath(), len(args), strings.Join(args, " "))}
	}
	return nil
}

// none is the check of arguments of a command that takes none.
func none(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &exitError{1, fmt.Sprintf("%s takes no arguments, and got %q", cmd.CommandPath(), args[0])}
	}
	return nil
}

// meant is " (did you mean X?)" for the known word that is nearest, or nothing.
func meant(prefix, word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		d := distance(word, k)
		if strings.HasPrefix(k, word) && len(word) >= 2 {
			d = min(d, 2)
		}
		if d < least && d < len(k) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, best)
}

// distance is Levenshtein's, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
