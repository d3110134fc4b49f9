package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

func newRenderCommand(a *app) *cobra.Command {
	var r renderRun
	cmd := &cobra.Command{
		Use:   "render [DIR]",
		Short: "Print the Envoy resources that the configuration makes",
		Long: `Print the resources that the configuration in a directory, uncommitted files
included, makes for each group: what its nodes are sent once all is rolled out.

With --origins each resource says the lines that it was made from. With --diff it
prints what differs from a revision instead, as a unified diff of each resource.
With --files it writes them as files for nodes that watch a folder, in an order in
which no file names one that is not there, and removes what is left over.`,
		Example: `  sluice render
  sluice render --group edge --type routes --origins
  sluice render --diff origin/main
  sluice render --files /srv/xds`,
		Args: atMostOne,
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.only.groups, "group", nil, "print this group alone; may be repeated")
	f.StringSliceVar(&r.only.types, "type", nil, "print resources of this type alone, such as routes; may be repeated")
	f.BoolVar(&r.origins, "origins", false, "say the file and line that each resource was made from")
	f.StringVar(&r.diff, "diff", "", "print what differs from this revision")
	f.StringVar(&r.files, "files", "", "write files for nodes that watch a folder into this one, and print nothing")
	f.StringVar(&r.filesAs, "files-as", "", "the path by which nodes know the folder of --files (default: its own)")
	folder := pathFlag(cmd)
	output := outputFlag(cmd, "yaml", "json")
	completeWith(cmd, "type", typeWords()...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, other := range []string{"type", "origins", "diff", "output"} {
			if r.files != "" && cmd.Flags().Changed(other) {
				return fmt.Errorf("--files writes all of a group, as JSON: leave --%s out", other)
			}
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		r.app, r.format = a, output.value
		return because(ctx, r.run(ctx, dirOf(args), *folder))
	}
	return cmd
}

// renderRun is one run of the command.
type renderRun struct {
	*app
	only    selection
	origins bool
	diff    string // revision; empty for none
	format  string
	files   string // folder; empty to print
	filesAs string
}

// selection is what of a fleet is printed. What is left out is all.
type selection struct{ groups, types []string }

func (r *renderRun) run(ctx context.Context, dir, folder string) error {
	if err := r.only.checkTypes(); err != nil {
		return err
	}
	tree, err := openWorkTree(dir, folder)
	if err != nil {
		return err
	}
	fleet, err := tree.compile(ctx)
	if err != nil {
		return err
	}
	for _, d := range fleet.Warnings {
		r.note("%s", d)
	}
	if r.diff != "" {
		return r.against(ctx, dir, tree, fleet)
	}
	if err := r.only.checkGroups(fleet); err != nil {
		return err
	}
	if r.files != "" {
		return r.write(fleet)
	}
	doc, err := renderingOf(fleet, r.only, r.origins)
	if err != nil {
		return err
	}
	if r.format == "json" {
		return printJSON(r.out, doc)
	}
	text, err := yamlOf(doc)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(r.out, text)
	return err
}

// against prints what differs from the revision.
func (r *renderRun) against(ctx context.Context, dir string, tree *workTree, fleet *schema.Fleet) error {
	repo, err := reconcile.OpenWorkRepo(dir)
	if err != nil {
		return err
	}
	rev, err := repo.Resolve(r.diff)
	if err != nil {
		return err
	}
	base, err := tree.compileRevision(ctx, rev)
	if err != nil {
		return err
	}
	if base == nil {
		r.say("commit %s has no folder %s: everything is new", short(rev.Commit), tree.path)
		base = &schema.Fleet{}
	}
	if err := r.only.checkGroups(base, fleet); err != nil {
		return err
	}
	before, err := renderingOf(base, r.only, false)
	if err != nil {
		return err
	}
	after, err := renderingOf(fleet, r.only, r.origins)
	if err != nil {
		return err
	}
	text, changed, err := renderDiff(before, after, r.format)
	if err != nil {
		return err
	}
	r.say("%s since %s", differs(changed), short(rev.Commit))
	_, err = fmt.Fprint(r.out, text)
	return err
}

func differs(n int) string {
	switch n {
	case 0:
		return "no resource differs"
	case 1:
		return "1 resource differs"
	}
	return fmt.Sprintf("%d resources differ", n)
}

func typeWords() []string {
	var words []string
	for _, t := range schema.AllTypes() {
		words = append(words, t.String())
	}
	return words
}

// checkTypes refuses words that are no type.
func (s selection) checkTypes() error {
	for _, name := range s.types {
		var t schema.Type
		if err := t.UnmarshalText([]byte(name)); err != nil {
			return fmt.Errorf("--type %q is no type of resource%s; there are %s", name, meant("", name, typeWords()), strings.Join(typeWords(), ", "))
		}
	}
	return nil
}

// checkGroups refuses groups that none of some fleets has.
func (s selection) checkGroups(fleets ...*schema.Fleet) error {
	var known []string
	for _, f := range fleets {
		for i := range f.Groups {
			if !slices.Contains(known, f.Groups[i].Name) {
				known = append(known, f.Groups[i].Name)
			}
		}
	}
	slices.Sort(known)
	for _, name := range s.groups {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--group %q is no group of the configuration%s; there are %s", name, meant("", name, known), strings.Join(known, ", "))
		}
	}
	return nil
}

func (s selection) takes(group string, t schema.Type) bool {
	return (len(s.groups) == 0 || slices.Contains(s.groups, group)) && (len(s.types) == 0 || slices.Contains(s.types, t.String()))
}
