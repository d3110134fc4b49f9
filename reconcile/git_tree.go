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
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
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
	mu             sync.Mutex // guards read and every treeNode.read
	read           int64      // bytes
}

type treeNode struct {
	name     string
	mode     fs.FileMode
	hash     plumbing.Hash
	children []*treeNode // of a directory, by name
	unlisted bool        // a directory that holds a BadName
	read     bool        // its size is in treeSource.read
}

func newTree(store *objectStore, root plumbing.Hash, when time.Time, limits treeLimits) (*Tree, error) {
	source := &treeSource{store: store, when: when, limits: limits}
	node := &treeNode{name: ".", mode: fs.ModeDir | 0o555, hash: root}
	if err := source.fill(node, ""); err != nil {
		return nil, err
	}
	slices.SortFunc(source.bad, func(a, b UnsupportedEntry) int { return strings.Compare(a.Path, b.Path) })
	return &Tree{root: node, source: source}, nil
}

// fill reads the entries of dir, and of the directories in it. The entry limit
// also ends a tree that names one sub-tree many times.
func (s *treeSource) fill(dir *treeNode, at string) error {
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
		} else if err := s.fill(child, full+"/"); err != nil {
			return err
		}
	}
	// Git sorts a directory as if its name ended in a slash.
	slices.SortFunc(dir.children, func(a, b *treeNode) int { return strings.Compare(a.name, b.name) })
	return nil
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
	if !n.read && s.read+size > s.limits.total {
		s.mu.Unlock()
		return nil, fmt.Errorf("the files read from this commit are above the limit of %d bytes in all", s.limits.total)
	}
	if !n.read {
		n.read, s.read = true, s.read+size
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

// objectStore serialises all access to a storage. go-git's are not safe for
// concurrent use, and neither are commits and trees read from them, so every use
// of either happens with mu held.
type objectStore struct {
	name  string // of the repository, for errors
	packs string // where packs are added, "" for a store that is only read

	mu  sync.Mutex
	sto *filesystem.Storage // nil when closed
}

// do runs f with the storage, alone.
func (s *objectStore) do(f func(sto *filesystem.Storage) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sto == nil {
		return fs.ErrClosed
	}
	return f(s.sto)
}

func (s *objectStore) close() error {
	err := s.do(func(sto *filesystem.Storage) error { s.sto = nil; return sto.Close() })
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

// read returns a whole object.
func (s *objectStore) read(kind plumbing.ObjectType, h plumbing.Hash) (data []byte, err error) {
	err = s.do(func(sto *filesystem.Storage) error {
		obj, err := sto.EncodedObject(kind, h)
		if err != nil {
			return fmt.Errorf("object %s: %w", h, err)
		}
		r, err := obj.Reader()
		if err != nil {
			return err
		}
		defer r.Close()
		data, err = io.ReadAll(r)
		return err
	})
	return data, err
}

// size returns the bytes of an object. Large ones are not read for it.
func (s *objectStore) size(h plumbing.Hash) (n int64, err error) {
	err = s.do(func(sto *filesystem.Storage) error {
		obj, err := sto.EncodedObject(plumbing.AnyObject, h)
		if err != nil {
			return fmt.Errorf("object %s: %w", h, err)
		}
		n = obj.Size()
		return nil
	})
	return n, err
}

func (s *objectStore) has(h plumbing.Hash) bool {
	return s.do(func(sto *filesystem.Storage) error { return sto.HasEncodedObject(h) }) == nil
}

// tree returns the entries of a tree object.
func (s *objectStore) tree(h plumbing.Hash) (list []object.TreeEntry, err error) {
	err = s.do(func(sto *filesystem.Storage) error {
		obj, err := sto.EncodedObject(plumbing.TreeObject, h)
		if err != nil {
			return fmt.Errorf("tree %s: %w", h, err)
		}
		if obj.Size() > maxTreeObject {
			return fmt.Errorf("it has %d bytes, above the limit of %d", obj.Size(), maxTreeObject)
		}
		t, err := object.DecodeTree(sto, obj)
		if err == nil {
			list = t.Entries
		}
		return err
	})
	return list, err
}

// revision reads a commit and the index of its tree.
func (s *objectStore) revision(h plumbing.Hash) (rev Revision, err error) {
	var root plumbing.Hash
	err = s.do(func(sto *filesystem.Storage) error {
		c, err := object.GetCommit(sto, h)
		if err != nil {
			return err
		}
		subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
		rev = Revision{
			Commit: h.String(), When: c.Committer.When, Subject: oneLine(subject),
			Author: oneLine(c.Author.Name + " <" + c.Author.Email + ">"),
		}
		root = c.TreeHash
		return nil
	})
	var tree *Tree
	if err == nil {
		tree, err = newTree(s, root, rev.When, defaultTreeLimits)
	}
	if err != nil {
		return Revision{}, fmt.Errorf("cannot read commit %s of %s: %w", h, s.name, err)
	}
	if tree.source.files == 0 { // a mistake, never a wish to delete everything
		return Revision{}, &Unavailable{URL: s.name, Reason: fmt.Sprintf("commit %.12s has no files; revert it", h)}
	}
	rev.FS = tree
	return rev, nil
}
