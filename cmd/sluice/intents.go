package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-xds/sluice/reconcile"
)

// newIntentCommand makes the command of a verb. It asks first, naming commit and
// node count, and what it then does is about no other commit.
func newIntentCommand(a *app, verb, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     verb + " [GROUP|r-N]",
		Short:   short,
		Long:    long + "\n\nWith the number of a rollout it is about the groups of that rollout, without a\ngroup about all of them. It asks first; --yes does not.",
		Example: examplesOf(verb),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &exitError{1, fmt.Sprintf("%s takes one group, and %d were given: %s", cmd.CommandPath(), len(args), strings.Join(args, " "))}
			}
			return nil
		},
	}
	server := serverFlag(cmd)
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	commit := cmd.Flags().String("commit", "", "only groups that are at this commit or rollout (3f2a91c, r-42), or on their way to it")
	plan := new(string)
	if takesPlan(verb) {
		cmd.Flags().StringVar(plan, "plan", "", "refuse if the server would do anything else than the plan in this file, which sluice plan --out saved")
	}
	output := outputFlag(cmd, dataFormats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		in := reconcile.Intent{Verb: verb, Commit: *commit}
		if len(args) == 1 {
			in.Group = args[0]
		}
		var held *heldPlan
		if *plan != "" {
			var err error
			if held, err = readPlan(*plan); err != nil {
				return err
			}
			in.Plan = held.bound.ends(in.Group)
		}
		c, err := server.client()
		if err != nil {
			return err
		}
		out, err := a.intend(ctx, c, in, *yes)
		var no *saidNo
		if held != nil && errors.As(err, &no) && no.code == http.StatusPreconditionFailed {
			return held.refuse(no.why)
		}
		if err != nil || out == nil {
			return err
		}
		return a.print(output, out, func(wide bool) string { return outcomeTable(out, wide) })
	}
	return cmd
}

// takesPlan reports whether a verb has groups go on, so that what they would do can
// be held against a plan.
func takesPlan(verb string) bool { return verb == reconcile.Resume || verb == reconcile.Promote }

func examplesOf(verb string) string {
	all := fmt.Sprintf("  sluice %[1]s edge\n  sluice %[1]s r-42\n  sluice %[1]s --commit 3f2a91c --yes", verb)
	if takesPlan(verb) {
		all += fmt.Sprintf("\n  sluice plan --out plan.json        # what was read …\n  sluice %s --plan plan.json    # … and nothing else", verb)
	}
	return all
}

// intend asks, and does it. It returns nothing if the answer was no.
func (a *app) intend(ctx context.Context, c *adminClient, in reconcile.Intent, yes bool) (*reconcile.Outcome, error) {
	if !yes {
		dry := in
		dry.DryRun = true
		would, err := c.intend(ctx, dry)
		if err != nil {
			return nil, err
		}
		ok, err := a.confirm(questionOf(would))
		if err != nil || !ok {
			return nil, err
		}
		if at := sameCommit(would); in.Group != "" || in.Commit != "" {
			in.Commit = at
		}
	}
	return c.intend(ctx, in)
}

// sameCommit is the commit of all groups of an outcome, or nothing.
func sameCommit(out *reconcile.Outcome) string {
	at := out.Groups[0].Commit
	for _, g := range out.Groups {
		if g.Commit != at {
			return ""
		}
	}
	return at
}

// questionOf is what is asked before an intent: which groups, at which commit,
// with how many nodes.
func questionOf(out *reconcile.Outcome) string {
	var b strings.Builder
	nodes := 0
	for _, g := range out.Groups {
		fmt.Fprintf(&b, "%s at %s, %s: %s\n", g.Group, dash(short(g.Commit)), count(g.Nodes, "node"), g.Words)
		nodes += g.Nodes
	}
	fmt.Fprintf(&b, "%s %s, %s? [y/N] ", out.Verb, count(len(out.Groups), "group"), count(nodes, "node"))
	return b.String()
}

func outcomeTable(out *reconcile.Outcome, wide bool) string {
	rows := []string{"GROUP\tROLLOUT\tCOMMIT\tNODES\tDONE"}
	if wide {
		rows = []string{"VERB\tGROUP\tROLLOUT\tCOMMIT\tNODES\tDONE"}
	}
	for _, g := range out.Groups {
		verb, commit := "", short(g.Commit)
		if wide {
			verb, commit = out.Verb+"\t", g.Commit
		}
		rows = append(rows, fmt.Sprintf("%s%s\t%s\t%s\t%d\t%s", verb, g.Group, rolloutCell(g.Rollout), dash(commit), g.Nodes, g.Words))
	}
	return columns(rows...)
}

// confirm asks on stderr. Who cannot answer must have said yes before.
func (a *app) confirm(question string) (bool, error) {
	in := a.in
	if in == nil {
		if !term.IsTerminal(int(os.Stdin.Fd())) {
			return false, &exitError{1, "nobody is there to ask, as stdin is no terminal: give --yes"}
		}
		in = os.Stdin
	}
	fmt.Fprint(a.err, question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("cannot read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	a.say("nothing was done")
	return false, nil
}
