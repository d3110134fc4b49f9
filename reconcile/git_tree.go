package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// treeLimits bounds what one commit may cost.
type treeLimits struct {
	entries int   // files and directories in the tree
	file    int64 // bytes of one configuration file
	total   int64 // bytes of all files that are read, each path counted once
}

// defaultTreeLimits is far above any real configuration.
var defaultTreeLimits = treeLimits{entries: 100_000, file: 4 << 20, total: 64 << 20}

const (
	maxTreeObject = 32 << 20 // bytes: 100,000 names of 300 in one directory
	maxTreePath   = 4096     // bytes: PATH_MAX of Linux
)

// The kinds of [UnsupportedEntry].
const (
	Symlink   = "symlink"
	Submodule = "submodule"
	BadName   = "name" // "..", a slash, a control character, a name used twice
)

// UnsupportedEntry is an entry of a Git tree that a [Tree] does not open.
type UnsupportedEntry struct {
	Path string // in the repository
	Kind string // Symlink, Submodule or BadName
}

func (e UnsupportedEntry) String() string {
	if e.Kind == BadName {
		return fmt.Sprintf("this file name is not supported: %q; rename it", e.Path)
	}
	return fmt.Sprintf("%ss are not supported: %s; commit the content itself", e.Kind, e.Path)
}

// UnsupportedEntries says which entries of a tree cannot be read.
type UnsupportedEntries struct {
	Entries []UnsupportedEntry // at least one, in path order
}

func (e *UnsupportedEntries) Error() string {
	if n := len(e.Entries); n > 1 {
		return fmt.Sprintf("%v (and %d more)", e.Entries[0], n-1)
	}
	return e.Entries[0].String()
}

// Tree is the tree of one commit as a read-only file system. It reads from the
// object store: there is no worktree. It is safe for concurrent use.
//
// Symbolic links are listed with [fs.ModeSymlink] and submodules with
// [fs.ModeIrregular], so that nothing is silently absent; opening one fails with
// [*UnsupportedEntries]. A directory that holds a name which is no valid path
// cannot be listed.
type Tree struct {
	root   *treeNode
	at     string // "" or, of a sub-tree, its path in the whole with a slash
	source *treeSource
}

// treeSource is what the sub-trees of one commit share.
type treeSource struct {
	store  *objectStore
	when   time.Time
	limits treeLimits
	bad    []UnsupportedEntry // in path order

	entries, files int        // in the index; files are all but directories
	mu             sync.Mutex // guards read and sum
	read           map[*treeNode]bool
	sum            int64 // bytes of what was read
}

// treeNode is never changed once its tree is made: trees of several commits share
// the directories in which these do not differ.
type treeNode struct {
	name           string
	mode           fs.FileMode
	hash           plumbing.Hash
	children       []*treeNode // of a directory, by name
	entries, files int         // below a directory
	unlisted       bool        // a directory that holds a BadName
	bad            bool        // something in it, or below, cannot be opened
}

// newTree indexes a tree. What is as it was in last, which may be nil, is not read
// again.
func newTree(store *objectStore, root plumbing.Hash, last *treeNode, when time.Time, limits treeLimits) (*Tree, error) {
	source := &treeSource{store: store, when: when, limits: limits, read: map[*treeNode]bool{}}
	node := &treeNode{name: ".", mode: fs.ModeDir | 0o555, hash: root}
	if err := source.fill(node, last, ""); err != nil {
		return nil, err
	}
	slices.SortFunc(source.bad, func(a, b UnsupportedEntry) int { return strings.Compare(a.Path, b.Path) })
	return &Tree{root: node, source: source}, nil
}

// fill reads the entries of dir, and of the directories in it, but for those that
// are what they were in last at the same place. The entry limit also ends a tree
// that names one sub-tree many times.
func (s *treeSource) fill(dir, last *treeNode, at string) error {
	entries, files, bad := s.entries, s.files, len(s.bad)
	defer func() {
		dir.entries, dir.files, dir.bad = s.entries-entries, s.files-files, len(s.bad) > bad
	}()
	if last != nil && last.hash == dir.hash && !last.bad && s.entries+last.entries <= s.limits.entries {
		dir.children = last.children
		s.entries, s.files = s.entries+last.entries, s.files+last.files
		return nil
	}
	list, err := s.store.tree(dir.hash)
	if err != nil {
		return fmt.Errorf("cannot read directory %q: %w", path.Join(".", at), err)
	}
	seen := make(map[string]bool, len(list))
	for _, e := range list {
		if s.entries++; s.entries > s.limits.entries {
			return fmt.Errorf("more than %d files and directories", s.limits.entries)
		}
		full := at + e.Name
		if !validName(e.Name) || seen[e.Name] || len(full) > maxTreePath {
			s.files++
			dir.unlisted = true
			s.bad = append(s.bad, UnsupportedEntry{Path: full, Kind: BadName})
			continue
		}
		seen[e.Name] = true
		child := &treeNode{name: e.Name, mode: modeOf(e.Mode), hash: e.Hash}
		dir.children = append(dir.children, child)
		if !child.mode.IsDir() {
			s.files++
			if u := child.unsupported(full); u != nil {
				s.bad = append(s.bad, u.Entries...)
			}
		} else if err := s.fill(child, last.child(e.Name), full+"/"); err != nil {
			return err
		}
	}
	// Git sorts a directory as if its name ended in a slash.
	slices.SortFunc(dir.children, func(a, b *treeNode) int { return strings.Compare(a.name, b.name) })
	return nil
}

// child is a directory of a directory, or nil.
func (n *treeNode) child(name string) *treeNode {
	if n == nil {
		return nil
	}
	at, ok := slices.BinarySearchFunc(n.children, name, func(n *treeNode, s string) int { return strings.Compare(n.name, s) })
	if !ok || !n.children[at].mode.IsDir() {
		return nil
	}
	return n.children[at]
}

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && utf8.ValidString(name) &&
		!strings.ContainsAny(name, `/\`) && !strings.ContainsFunc(name, unicode.IsControl)
}

func modeOf(m filemode.FileMode) fs.FileMode {
	switch m {
	case filemode.Dir:
		return fs.ModeDir | 0o555
	case filemode.Regular, filemode.Deprecated:
		return 0o444
	case filemode.Executable:
		return 0o555
	case filemode.Symlink:
		return fs.ModeSymlink | 0o444
	default: // a submodule, or what no Git writes
		return fs.ModeIrregular | 0o444
	}
}

// unsupported is the entry for a node that cannot be opened, nil for others.
func (n *treeNode) unsupported(at string) *UnsupportedEntries {
	switch n.mode.Type() {
	case fs.ModeSymlink:
		return &UnsupportedEntries{[]UnsupportedEntry{{at, Symlink}}}
	case fs.ModeIrregular:
		return &UnsupportedEntries{[]UnsupportedEntry{{at, Submodule}}}
	}
	return nil
}

// find walks to name. It fails at the first link or submodule on the way.
func (t *Tree) find(op, name string) (*treeNode, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	node := t.root
	if name == "." {
		return node, nil
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		at, ok := slices.BinarySearchFunc(node.children, part, func(n *treeNode, s string) int { return strings.Compare(n.name, s) })
		if !ok {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
		node = node.children[at]
		if err := node.unsupported(t.at + strings.Join(parts[:i+1], "/")); err != nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	return node, nil
}

func (t *Tree) findDir(op, name string) (*treeNode, error) {
	n, err := t.find(op, name)
	if err == nil && !n.mode.IsDir() {
		return nil, &fs.PathError{Op: op, Path: name, Err: errors.New("not a directory")}
	}
	return n, err
}

// Open opens a file or directory. The content is read at the first Read.
func (t *Tree) Open(name string) (fs.File, error) {
	n, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	return &treeFile{tree: t, node: n, name: name}, nil
}

// ReadFile returns the content of a file. It fails for a .cue, .yaml, .yml or
// .json file above 4 MiB, and when all files read from the commit, each counted
// once, are above 64 MiB.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	f, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// ReadDir lists a directory by name.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.findDir("readdir", name)
	if err != nil {
		return nil, err
	}
	if n.unlisted {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: t.Check(name)}
	}
	list := make([]fs.DirEntry, len(n.children))
	for i, c := range n.children {
		list[i] = treeEntry{source: t.source, node: c}
	}
	return list, nil
}

// Stat describes a file. Its modification time is the commit's.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.find("stat", name)
	if err != nil {
		return nil, err
	}
	return treeEntry{source: t.source, node: n}.Info()
}

// Sub is the tree of a directory. It shares the limits of the whole.
func (t *Tree) Sub(dir string) (fs.FS, error) {
	n, err := t.findDir("sub", dir)
	if err != nil {
		return nil, err
	}
	root := *n
	root.name = "."
	return &Tree{root: &root, at: t.at + strings.TrimPrefix(dir+"/", "./"), source: t.source}, nil
}

// TreeHash is the Git hash of a directory: equal hashes mean equal content and
// modes of everything below. It is "" when dir is not a directory.
func (t *Tree) TreeHash(dir string) string {
	n, err := t.findDir("hash", dir)
	if err != nil {
		return ""
	}
	return n.hash.String()
}

// Check says what below dir cannot be opened: nil or [*UnsupportedEntries] with
// every such entry.
func (t *Tree) Check(dir string) error {
	under := path.Join(t.at, dir) + "/"
	bad := slices.DeleteFunc(slices.Clone(t.source.bad), func(e UnsupportedEntry) bool {
		return under != "./" && !strings.HasPrefix(e.Path, under)
	})
	if len(bad) == 0 {
		return nil
	}
	return &UnsupportedEntries{bad}
}

// content reads a file within the limits. A file is charged once, so that reading
// a commit again is free.
func (s *treeSource) content(n *treeNode) ([]byte, error) {
	if n.mode.IsDir() {
		return nil, errors.New("is a directory")
	}
	size, err := s.store.size(n.hash)
	if err != nil {
		return nil, err
	}
	switch path.Ext(n.name) {
	case ".cue", ".yaml", ".yml", ".json":
		if size > s.limits.file {
			return nil, fmt.Errorf("the file has %d bytes, above the limit of %d; split it", size, s.limits.file)
		}
	}
	s.mu.Lock()
	if !s.read[n] && s.sum+size > s.limits.total {
		s.mu.Unlock()
		return nil, fmt.Errorf("the files read from this commit are above the limit of %d bytes in all", s.limits.total)
	}
	if !s.read[n] {
		s.read[n], s.sum = true, s.sum+size
	}
	s.mu.Unlock()
	return s.store.read(plumbing.BlobObject, n.hash)
}

// treeEntry is a line of a directory and, with its size looked up, a FileInfo.
type treeEntry struct {
	source *treeSource
	node   *treeNode
	size   int64
}

func (e treeEntry) Name() string       { return e.node.name }
func (e treeEntry) IsDir() bool        { return e.node.mode.IsDir() }
func (e treeEntry) Type() fs.FileMode  { return e.node.mode.Type() }
func (e treeEntry) Size() int64        { return e.size }
func (e treeEntry) Mode() fs.FileMode  { return e.node.mode }
func (e treeEntry) ModTime() time.Time { return e.source.when }
func (e treeEntry) Sys() any           { return nil }

func (e treeEntry) Info() (fs.FileInfo, error) {
	if e.node.mode.IsRegular() {
		size, err := e.source.store.size(e.node.hash)
		if err != nil {
			return nil, &fs.PathError{Op: "stat", Path: e.node.name, Err: err}
		}
		e.size = size
	}
	return e, nil
}

// treeFile is an open file or directory.
type treeFile struct {
	tree *Tree
	node *treeNode
	name string
	data *bytes.Reader // nil until the first Read
	next int           // of ReadDir
}

func (f *treeFile) Stat() (fs.FileInfo, error) {
	return treeEntry{source: f.tree.source, node: f.node}.Info()
}

func (f *treeFile) Read(p []byte) (int, error) {
	if f.data == nil {
		data, err := f.tree.source.content(f.node)
		if err != nil {
			return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
		}
		f.data = bytes.NewReader(data)
	}
	return f.data.Read(p)
}

func (f *treeFile) ReadDir(n int) ([]fs.DirEntry, error) {
	list, err := f.tree.ReadDir(f.name)
	if err != nil {
		return nil, err
	}
	list = list[f.next:]
	if n > 0 {
		if len(list) == 0 {
			return nil, io.EOF
		}
		list = list[:min(n, len(list))]
	}
	f.next += len(list)
	return list, nil
}

func (f *treeFile) Close() error { return nil }
