// Command sluice is the control plane's one binary: the checks and the dry run
// that an author uses, the server, and what an operator asks it.
//
// Data goes to stdout, talk to stderr. Exit codes: 0 fine, 1 an error, 2 changes
// are present (plan --detailed-exitcode), 3 refused or halted, 4 timed out
// (status --wait).
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-xds/sluice/schema/compile"
)

func main() {
	compile.WorkerMain() // does not return in a process that is to evaluate CUE
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code. The first SIGINT or
// SIGTERM ends the command in order, the second the process.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	a := &app{out: stdout, err: stderr}
	root := newRoot(a)
	root.SetArgs(args)
	return a.report(root.ExecuteContext(ctx))
}
