package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is what all commands share: where they write, and the root's flags.
type app struct {
	out, err io.Writer
	in       io.Reader // nil: the process's own

	noColor bool
	quiet   bool
	verbose bool
	timeout time.Duration
}

// newRoot makes the tree of commands. Errors are printed once, by report.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A control plane for Envoy and proxyless gRPC whose desired state lives in Git",
		Long: `sluice pulls the desired state of a fleet from Git, compares it with what every
node has acknowledged, plans the shortest safe path between the two, and walks
each node along it over xDS.

Flags go before SLUICE_* variables (SLUICE_ACK_WAIT for --ack-wait), and those
before sluice.yaml in the working directory or in $XDG_CONFIG_HOME/sluice.`,
		Example: `  sluice validate          # check the configuration in this directory
  sluice plan --base main  # what would a merge do?
  sluice serve --repo https://git.example.com/fleet.git`,
		Args:              unknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return applySettings(cmd) },
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	root.SetHelpCommand(newHelpCommand())
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.Flags().Bool("version", false, "print the version") // -v is taken
	f := root.PersistentFlags()
	f.BoolVar(&a.noColor, "no-color", false, "print without colour, as with NO_COLOR")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing but errors on stderr")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "say more on stderr")
	f.DurationVar(&a.timeout, "timeout", 0, "give up after this time, such as 30s (default: no limit; 10m for status --wait)")
	root.AddCommand(
		newDemoCommand(a), newInitCommand(a), newSchemaCommand(a), newValidateCommand(a), newTestCommand(a), newRenderCommand(a), newPlanCommand(a), newReportCommand(a), newApplyCommand(),
		newServeCommand(a), newStatusCommand(a), newSyncCommand(a), newVersionCommand(a),
		newNodesCommand(a), newNodeCommand(a), newHistoryCommand(a), newTopCommand(a), newPauseCommand(a), newResumeCommand(a),
		newPromoteCommand(a), newAbortCommand(a), newRetryCommand(a),
	)
	return root
}

// say prints talk, unless it is not wanted.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// note prints talk that only --verbose wants.
func (a *app) note(format string, args ...any) {
	if a.verbose && !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// bounded is ctx with the time that --timeout gives.
func (a *app) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, a.timeout, fmt.Errorf("timed out after %v", a.timeout))
}

// terminal reports whether w is one that can redraw and colour.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// colour reports whether data may be coloured.
func (a *app) colour() bool {
	return !a.noColor && os.Getenv("NO_COLOR") == "" && terminal(a.out)
}
