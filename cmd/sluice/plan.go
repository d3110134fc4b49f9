package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

func newPlanCommand(a *app) *cobra.Command {
	p := planRun{app: a}
	cmd := &cobra.Command{
		Use:   "plan [DIR]",
		Short: "Show what a merge would do, step by step",
		Long: `Show what the configuration in a directory, uncommitted files included, would do to
a fleet: the stages that each node is led through, and what becomes of traffic.

The plan begins at --base, or else at what the nodes of the running server have
acknowledged, or else where the work left origin/HEAD. Nothing is sent.

A plan that is saved with --out holds as long as neither the configuration nor
what the nodes hold has changed; --check refuses it after that, and so does
sluice resume --plan. --check begins where the saved plan does.

It exits with 3 if there is no safe path, or if a hazard blocks that is not
allowed; with --detailed-exitcode with 2 if there are changes.`,
		Example: `  sluice plan                      # against the running server
  sluice plan --base origin/main   # against a revision
  sluice plan --base HEAD~1 --to HEAD -o json
  sluice plan --out plan.json      # what was reviewed …
  sluice plan --check plan.json    # … is still what would be done`,
		Args: atMostOne,
	}
	f := cmd.Flags()
	f.StringVar(&p.base, "base", "", "plan from this revision, without a server")
	f.StringVar(&p.to, "to", "", "plan to this revision instead of the working tree")
	p.server = serverFlags(cmd, "plan from what the nodes of this server hold")
	f.StringSliceVar(&p.allow, "allow", nil, "accept the hazard of this code; may be repeated")
	f.StringVar(&p.out, "out", "", "also save the plan in this file, bound to the content that it was made from")
	f.StringVar(&p.check, "check", "", "refuse if the plan saved in this file no longer holds")
	detailed := f.Bool("detailed-exitcode", false, "exit with 2 if there are changes")
	folder := pathFlag(cmd)
	output := outputFlag(cmd, "text", "json", "markdown")
	completeWith(cmd, "allow", blockingCodes()...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		if err := knownHazards(p.allow); err != nil {
			return err
		}
		doc, err := p.run(ctx, dirOf(args), *folder)
		if err != nil {
			return because(ctx, err)
		}
		switch output.value {
		case "json":
			err = printJSON(a.out, doc)
		case "markdown":
			_, err = io.WriteString(a.out, planMarkdown(doc, markdownLimit))
		default:
			err = printPlan(a.out, doc, a.colour())
		}
		switch why := doc.refusal(); {
		case err != nil:
			return err
		case why != "":
			return &exitError{exitRefused, why}
		case *detailed && doc.changed():
			return &exitError{code: exitChanges}
		}
		return nil
	}
	return cmd
}

// planRun is one run of the command.
type planRun struct {
	*app
	base, to   string
	server     *serverAt
	allow      []string
	out, check string // files

	saved  *heldPlan // of check
	client *adminClient
	tree   *workTree
	repo   *reconcile.WorkRepo
	fleets map[string]*schema.Fleet // compiled, by commit
}

func (p *planRun) run(ctx context.Context, dir, folder string) (doc *planDocument, err error) {
	p.fleets = map[string]*schema.Fleet{}
	if p.tree, err = openWorkTree(dir, folder); err != nil {
		return nil, err
	}
	if p.repo, err = reconcile.OpenWorkRepo(dir); err != nil {
		return nil, err
	}
	if p.check != "" {
		if p.saved, err = readPlan(p.check); err != nil {
			return nil, err
		}
	}
	in := &planInput{groups: map[string]planBase{}, allow: p.allow}
	if err := p.end(ctx, in); err != nil {
		return nil, err
	}
	if err := p.begin(ctx, in); err != nil {
		return nil, err
	}
	bound := bindingOf(in)
	if p.check != "" {
		if why := p.saved.bound.stale(bound); why != "" {
			return nil, p.saved.refuse(why)
		}
	}
	if err := p.during("planning", func() (err error) { doc, err = newPlan(in); return err }); err != nil {
		return nil, err
	}
	if p.out != "" {
		err = (&savedPlan{Plan: doc, Bound: bound}).save(p.out)
	}
	return doc, err
}

// blockingCodes are the hazards that --allow is for.
func blockingCodes() []string {
	var codes []string
	for _, h := range schema.Hazards() {
		if h.Blocking {
			codes = append(codes, h.Code)
		}
	}
	return codes
}

// knownHazards refuses a code that no hazard has: a misspelt one would allow
// nothing, in silence.
func knownHazards(codes []string) error {
	var known []string
	for _, h := range schema.Hazards() {
		known = append(known, h.Code)
	}
	for _, code := range codes {
		if !slices.Contains(known, code) {
			return &exitError{1, fmt.Sprintf("--allow %q: no hazard has this code%s; those that block are %s", code, meant("", code, known), strings.Join(blockingCodes(), ", "))}
		}
	}
	return nil
}

// end reads what the plan leads to.
func (p *planRun) end(ctx context.Context, in *planInput) (err error) {
	if p.to == "" {
		in.to = planRevision{From: "working tree"}
		err = p.during("compiling the working tree", func() error {
			in.fleet, err = p.tree.compile(ctx)
			return err
		})
		in.to.Commit = p.head()
	} else {
		var rev reconcile.Revision
		if rev, err = p.repo.Resolve(p.to); err != nil {
			return err
		}
		in.to = planRevision{Commit: rev.Commit, From: "--to"}
		in.fleet, err = p.compiled(ctx, rev)
		if err == nil && in.fleet == nil {
			return fmt.Errorf("commit %s has no groups in folder %s", short(rev.Commit), p.tree.path)
		}
	}
	if err == nil {
		for _, d := range in.fleet.Warnings {
			p.note("%s", d)
		}
	}
	return err
}

// head is the commit that the working tree is, or nothing if it has more or less.
func (p *planRun) head() string {
	rev, err := p.repo.Resolve("HEAD")
	if err != nil {
		return "" // no commit yet
	}
	tree, ok := rev.FS.(*reconcile.Tree)
	if !ok {
		return ""
	}
	if same, err := tree.Same(os.DirFS(p.tree.root)); err != nil || !same {
		return ""
	}
	return rev.Commit
}

// begin reads what the plan leads from, and says which that is.
func (p *planRun) begin(ctx context.Context, in *planInput) error {
	if p.base != "" {
		return p.offline(ctx, in, p.base, "--base")
	}
	// Without another word a plan is checked against what it was made from.
	if h := p.saved; h != nil && !p.server.named() && h.base.From != fromServer {
		return p.offline(ctx, in, h.base.Commit, h.base.From)
	}
	st, err := p.ask(ctx)
	if err == nil {
		return p.running(ctx, in, st)
	}
	var away *unreachable
	if p.server.named() || !errors.As(err, &away) {
		return err
	}
	if p.saved != nil {
		return fmt.Errorf("the plan in %s begins at what the nodes of a server hold: name that with --server, or a revision with --base: %w", p.check, err)
	}
	to := p.to
	if to == "" {
		to = "HEAD"
	}
	base, err := p.repo.MergeBase(to, "origin/HEAD")
	if err != nil {
		p.note("%v", err)
		return fmt.Errorf("a plan needs a base: no server answers at %s, and %s has no merge base with origin/HEAD; name a revision, such as --base HEAD", p.server.at, to)
	}
	return p.offline(ctx, in, base, "merge base of "+to+" and origin/HEAD")
}

func (p *planRun) offline(ctx context.Context, in *planInput, base, from string) error {
	rev, err := p.repo.Resolve(base)
	if err != nil {
		return err
	}
	p.say("base: %s (%s)", short(rev.Commit), from)
	in.base = planRevision{Commit: rev.Commit, From: from}
	fleet, err := p.compiled(ctx, rev)
	if err != nil {
		return err
	}
	if fleet == nil {
		p.say("commit %s has no groups in folder %s: everything is new", short(rev.Commit), p.tree.path)
		return nil
	}
	for i := range fleet.Groups {
		in.groups[fleet.Groups[i].Name] = planBase{fleet: fleet, commit: rev.Commit}
	}
	return nil
}

// compiled compiles a commit once.
func (p *planRun) compiled(ctx context.Context, rev reconcile.Revision) (f *schema.Fleet, err error) {
	if f, ok := p.fleets[rev.Commit]; ok {
		return f, nil
	}
	err = p.during("compiling commit "+short(rev.Commit), func() error {
		f, err = p.tree.compileRevision(ctx, rev)
		return err
	})
	if err == nil {
		p.fleets[rev.Commit] = f
	}
	return f, err
}
