package compile

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// Options say what of a tree to compile.
type Options struct {
	// Path takes the packages at and under a directory; "" means all. Those
	// of the directories above join only by inheritance.
	Path string
	// Commit is what the tree is: it is copied to the fleet.
	Commit string
	// Limits bound what is read, and what evaluating it may cost.
	Limits Limits
	// Worker is the command of a process whose main calls WorkerMain first; by
	// default it is this executable, if its own main did. It is run with
	// SLUICE_WORKER=1 in its environment.
	Worker []string
	// Cache remembers packages across trees; nil remembers nothing.
	Cache *Cache
	// InProcess evaluates in this process, where neither time nor memory is
	// bounded: for trees that are trusted.
	InProcess bool
	// Salvage gives the fleet of the groups that compile, where others do not,
	// instead of an error (rule R9): the others are in Fleet.Frozen.
	Salvage bool
}

// Fleet compiles a tree. An error is a schema.Diagnostics that says all that is
// wrong, or the context's.
func Fleet(ctx context.Context, tree fs.FS, opts Options) (*schema.Fleet, error) {
	dir := path.Clean(opts.Path)
	within, err := opts.bounds()
	if err != nil {
		return nil, err
	}
	last := opts.Cache.take(dir, opts.Limits)
	src, found, pkgs, err := read(ctx, tree, dir, opts, within, last)
	if err != nil {
		opts.Cache.keep(last)
		return nil, err
	}
	if c, ok := last.changes(src, found, pkgs); ok {
		if f := last.advance(c); f != nil {
			last.tree, last.src, last.pkgs = tree, src, pkgs
			opts.Cache.keep(last)
			f.Commit = opts.Commit
			return f, nil
		}
		last = nil
	}
	all := slices.Clone(found)
	for i := range pkgs {
		all = append(all, pkgs[i].bad...)
	}
	above := src.groupsAbove(dir)
	if opts.Cache == nil && !opts.Salvage {
		src = nil // the files are of no more use, and large
	}
	f, wrong := fleetOf(pkgs, all, dir)
	switch {
	case wrong == nil && opts.Cache != nil:
		last = newState(dir, opts.Limits, tree, src, found, pkgs, f)
	case wrong != nil && opts.Salvage:
		f, wrong = salvage(src, pkgs, all, dir)
	}
	opts.Cache.keep(last)
	if wrong != nil {
		return nil, pointAt(wrong, dir, above)
	}
	f.Commit = opts.Commit
	return f.Fleet, nil
}

// groupsAbove is a file above dir that seems to declare groups, or "". Only an
// error message asks.
func (s *source) groupsAbove(dir string) string {
	for dir != "." && dir != s.module {
		dir = path.Dir(dir)
		for _, f := range s.byDir[dir] {
			if declaresGroups.Match(s.tree.files[f.path].data) {
				return f.path
			}
		}
	}
	return ""
}

var declaresGroups = regexp.MustCompile(`(?m)^groups\s*:`)

// pointAt says of a folder without groups where they are.
func pointAt(ds schema.Diagnostics, dir, above string) schema.Diagnostics {
	for i := range ds {
		if ds[i].Code == "empty" && above != "" && ds[i].Pos == (schema.Pos{File: dir}) {
			ds[i].Hint = fmt.Sprintf("%s declares the groups: run it with --path %s", above, path.Dir(above))
		}
	}
	return ds
}

// read loads a tree and evaluates its packages: of one that follows the last, what
// differs.
func read(ctx context.Context, tree fs.FS, dir string, opts Options, b bounds, last *state) (*source, schema.Diagnostics, []pkg, error) {
	if last != nil {
		if src, changed, ok := last.src.follow(last.tree, tree, opts.Limits.orDefault()); ok {
			pkgs := slices.Clone(last.pkgs)
			var which []int
			for i := range pkgs {
				if !pkgs[i].data || slices.ContainsFunc(changed, func(p string) bool { return within(pkgs[i].dir, path.Dir(p)) }) {
					which = append(which, i)
				}
			}
			return src, last.found, pkgs, evalCached(ctx, src, b, opts.Cache, which, pkgs)
		}
	}
	src, found := loadTree(tree, dir, opts.Limits)
	if src == nil {
		return nil, nil, nil, errorsOf(found)
	}
	pkgs, err := eval(ctx, src, b, opts.Cache)
	return src, found, pkgs, err
}

// fleetOf makes the fleet of evaluated packages, or says what is wrong: with what
// was found before.
func fleetOf(pkgs []pkg, found schema.Diagnostics, dir string) (made, schema.Diagnostics) {
	m := newModel()
	for i := range pkgs {
		if p := &pkgs[i]; p.root != nil && !p.base {
			m.add(p)
		}
	}
	whole := !failed(found) // else references may seem to dangle
	m.lint()
	if whole {
		m.resolve(dir)
	}
	lo := m.lower(whole && !failed(m.found))
	if found = append(slices.Clone(found), m.found...); failed(found) {
		return made{}, errorsOf(found)
	}
	lo.fleet.Warnings = found.Sorted()
	return made{lo.fleet, lo}, nil
}

// errorsOf leaves the warnings out: what is odd about a configuration that is
// wrong is mostly a consequence.
func errorsOf(ds schema.Diagnostics) schema.Diagnostics {
	return slices.DeleteFunc(ds.Sorted(), func(d schema.Diagnostic) bool { return d.Severity != schema.Error })
}

func failed(ds schema.Diagnostics) bool {
	return slices.ContainsFunc(ds, func(d schema.Diagnostic) bool { return d.Severity == schema.Error })
}
