package compile

import (
	"context"
	"fmt"
	"io/fs"

	"cuelang.org/go/mod/modfile"
	"cuelang.org/go/mod/modregistry"
	"cuelang.org/go/mod/module"
)

const (
	mount         = ".sluice/schema" // where the schema's module stands in the tree
	schemaVersion = "v0.0.0"
	schemaImport  = "github.com/sluice-xds/sluice/schema"
	languageLevel = "v0.17.0"
)

// registry knows the modules that are mounted inside the tree: the schema and
// what the author vendored. All others do not exist: nothing is downloaded.
type registry struct {
	tree *memFS
	dirs map[string]string // module -> its directory in the tree
}

func (r registry) ModFile(_ context.Context, mv module.Version) (*modfile.File, error) {
	if r.dirs[mv.Path()] == "" {
		return nil, fmt.Errorf("%v: %w", mv, modregistry.ErrNotFound)
	}
	return modfile.Parse(moduleFile(mv.Path()), "module.cue")
}

func (r registry) Fetch(_ context.Context, mv module.Version) (module.SourceLoc, error) {
	dir := r.dirs[mv.Path()]
	if dir == "" {
		return module.SourceLoc{}, fmt.Errorf("%v: %w", mv, modregistry.ErrNotFound)
	}
	sub, err := fs.Sub(r.tree, dir)
	if err != nil {
		return module.SourceLoc{}, err
	}
	return module.SourceLoc{FS: rootedFS{sub, dir}, Dir: "."}, nil
}

func (r registry) ModuleVersions(_ context.Context, path string) ([]string, error) {
	if r.dirs[path] == "" {
		return nil, nil
	}
	return []string{schemaVersion}, nil
}

// rootedFS tells the loader where in the tree the module's files stand.
type rootedFS struct {
	fs.FS
	dir string
}

func (r rootedFS) OSRoot() string { return "/" + r.dir }

func (r rootedFS) ReadFile(name string) ([]byte, error)       { return fs.ReadFile(r.FS, name) }
func (r rootedFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.FS, name) }
func (r rootedFS) Stat(name string) (fs.FileInfo, error)      { return fs.Stat(r.FS, name) }

func moduleFile(name string) []byte {
	return fmt.Appendf(nil, "module: %q\nlanguage: version: %q\n", name, languageLevel)
}
