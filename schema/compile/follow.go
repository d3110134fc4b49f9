package compile

import (
	"bytes"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Hashed is a tree that tells without reading whether a directory is what it was:
// equal hashes, not empty, mean equal content of all below. A Git tree can.
type Hashed interface {
	fs.FS
	TreeHash(dir string) string
}

// follow is the source of a tree that differs from the last in nothing but what
// some CUE files say; it reads only those, and returns their paths. For any other
// change, and where something is wrong, it gives up, and the tree is read anew.
func (s *source) follow(was, is fs.FS, limits Limits) (next *source, changed []string, ok bool) {
	old, ok1 := was.(Hashed)
	now, ok2 := is.(Hashed)
	if !ok1 || !ok2 {
		return nil, nil, false
	}
	f := follower{s: s, old: old, now: now, limits: limits, files: map[string]*memFile{}}
	if !f.dir(".") || !f.within() {
		return nil, nil, false
	}
	out := *s
	tree := *s.tree
	tree.src, tree.files = is, maps.Clone(s.tree.files)
	tree.dirs, out.byDir = maps.Clone(s.tree.dirs), maps.Clone(s.byDir)
	for p, file := range f.files {
		tree.files[p] = file
		dir := path.Dir(p)
		tree.dirs[dir] = replaced(tree.dirs[dir], func(e fs.DirEntry) bool { return e.Name() == file.name }, fs.FileInfoToDirEntry(file))
		out.byDir[dir] = replaced(out.byDir[dir], func(c *cueFile) bool { return c.path == p }, &cueFile{path: p, pkg: f.pkgs[p]})
	}
	out.tree = &tree
	return &out, sortedKeys(f.files), true
}

func replaced[E any](all []E, is func(E) bool, by E) []E {
	all = slices.Clone(all)
	if i := slices.IndexFunc(all, is); i >= 0 {
		all[i] = by
	}
	return all
}

type follower struct {
	s        *source
	old, now Hashed
	limits   Limits
	files    map[string]*memFile // that changed
	pkgs     map[string]string
}

// dir compares a directory. It reports whether it can be followed.
func (f *follower) dir(at string) bool {
	if h := f.now.TreeHash(at); h != "" && h == f.old.TreeHash(at) {
		return true
	}
	before, err1 := fs.ReadDir(f.old, at)
	after, err2 := fs.ReadDir(f.now, at)
	if err1 != nil || err2 != nil || len(before) != len(after) {
		return false
	}
	for i, e := range after {
		p := path.Join(at, e.Name())
		switch {
		case e.Name() != before[i].Name() || e.Type() != before[i].Type():
			return false
		case e.IsDir() && strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			if !f.dir(p) {
				return false
			}
		case !e.Type().IsRegular():
			return false
		case !f.file(p):
			return false
		}
	}
	return true
}

// file compares a file: none but one that takes part in a package as before may
// have changed. What is no CUE is read when it is asked for; here nobody knows
// whether it changed.
func (f *follower) file(p string) bool {
	if !strings.HasSuffix(p, ".cue") {
		return !f.s.embeds
	}
	old := f.s.tree.files[p]
	if old == nil || path.Dir(p) == f.s.schema {
		return false
	}
	data, err := readCapped(f.now, p, f.limits.File)
	if err != nil {
		return false
	}
	if bytes.Equal(data, old.data) {
		return true
	}
	name, plain := packageClause(data)
	i := slices.IndexFunc(f.s.byDir[path.Dir(p)], func(c *cueFile) bool { return c.path == p })
	if !plain || i < 0 || f.s.byDir[path.Dir(p)][i].pkg != name || f.s.foreign(path.Dir(p)) || bytes.Contains(data, []byte("@embed")) {
		return false
	}
	if f.pkgs == nil {
		f.pkgs = map[string]string{}
	}
	f.files[p], f.pkgs[p] = &memFile{name: path.Base(p), data: data, size: int64(len(data)), lazy: p}, name
	return true
}

// within holds the limit of all files together.
func (f *follower) within() bool {
	var total int64
	for p, file := range f.s.tree.files {
		if file.lazy == "" || file.data == nil {
			continue
		}
		if changed := f.files[p]; changed != nil {
			file = changed
		}
		total += file.size
	}
	return total <= f.limits.Total
}
