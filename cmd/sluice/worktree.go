package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// workTree is configuration as it stands on disk, uncommitted files included.
type workTree struct {
	dir  string // as it was named
	root string // of the repository around it, so that errors name files as Git does
	path string // what is compiled, below root; "." is all
}

// openWorkTree finds the repository around dir. Without one, dir is the root, or
// the folder above it that holds cue.mod.
func openWorkTree(dir, below string) (*workTree, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, plainPathError(err))
	} else if !info.IsDir() {
		return nil, fmt.Errorf("cannot read %s: it is no directory; name the one that it is in", dir)
	}
	full, err := filepath.Abs(dir)
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	root := above(full, ".git")
	if root == "" {
		root = above(full, filepath.Join("cue.mod", "module.cue"))
	}
	if root == "" {
		root = full
	}
	t := &workTree{dir: dir, root: root}
	if below != "" {
		t.path = path.Clean(filepath.ToSlash(below))
		return t, nil
	}
	rel, err := filepath.Rel(root, full)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	t.path = filepath.ToSlash(rel)
	return t, nil
}

// plainPathError is what is wrong, without the path and the system call.
func plainPathError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// above is the nearest folder at or above dir that holds an entry.
func above(dir, entry string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, entry)); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// compile reads the tree as it is now. The error is a schema.Diagnostics.
func (t *workTree) compile(ctx context.Context) (*schema.Fleet, error) {
	return compile.Fleet(ctx, os.DirFS(t.root), compile.Options{Path: t.path})
}

// compileRevision compiles the same folder of a commit. A commit that has no such
// folder, or no group in it, is nil: what is new was not there before.
func (t *workTree) compileRevision(ctx context.Context, rev reconcile.Revision) (*schema.Fleet, error) {
	if _, err := fs.Stat(rev.FS, t.path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	f, err := compile.Fleet(ctx, rev.FS, compile.Options{Path: t.path, Commit: rev.Commit})
	var wrong schema.Diagnostics
	if errors.As(err, &wrong) && len(wrong) == 1 && wrong[0].Code == "empty" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("commit %s does not compile:\n%w", short(rev.Commit), err)
	}
	return f, nil
}

// pathFlag adds --path.
func pathFlag(cmd *cobra.Command) *string {
	p := cmd.Flags().String("path", "", "compile this folder, below the root of the repository (default: the directory's own)")
	// The error is that of a flag which does not exist, so it never happens.
	_ = cmd.MarkFlagDirname("path")
	return p
}

// dirOf is the argument of a command that takes a directory.
func dirOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}
