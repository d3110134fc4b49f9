package compile

import (
	"context"
	"io/fs"
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
	dir := opts.Path
	if dir == "" {
		dir = "."
	}
	src, found := loadTree(tree, dir, opts.Limits)
	if src == nil {
		return nil, errorsOf(found)
	}
	within, err := opts.bounds()
	if err != nil {
		return nil, err
	}
	pkgs, err := eval(ctx, src, within, opts.Cache)
	if err != nil {
		return nil, err
	}
	for i := range pkgs {
		found = append(found, pkgs[i].bad...)
	}
	f, wrong := fleetOf(pkgs, found, dir)
	if wrong != nil && opts.Salvage {
		f, wrong = salvage(src, pkgs, found, dir)
	}
	if wrong != nil {
		return nil, wrong
	}
	f.Commit = opts.Commit
	return f.Fleet, nil
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
	f := m.lower(whole && !failed(m.found))
	if found = append(slices.Clone(found), m.found...); failed(found) {
		return made{}, errorsOf(found)
	}
	f.Warnings = found.Sorted()
	return made{f}, nil
}

// errorsOf leaves the warnings out: what is odd about a configuration that is
// wrong is mostly a consequence.
func errorsOf(ds schema.Diagnostics) schema.Diagnostics {
	return slices.DeleteFunc(ds.Sorted(), func(d schema.Diagnostic) bool { return d.Severity != schema.Error })
}

func failed(ds schema.Diagnostics) bool {
	return slices.ContainsFunc(ds, func(d schema.Diagnostic) bool { return d.Severity == schema.Error })
}
