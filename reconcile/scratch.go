package reconcile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Scratch is a bare repository on disk that is written without the git binary:
// what a demonstration merges its changes into.
type Scratch struct {
	dir  string
	sto  *filesystem.Storage
	head plumbing.Hash
}

// NewScratch makes an empty repository in dir whose branch is main.
func NewScratch(dir string) (*Scratch, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot make a repository in %s: %w", dir, err)
	}
	repo, err := git.PlainInit(abs, true)
	if err != nil {
		return nil, fmt.Errorf("cannot make a repository in %s: %w", abs, err)
	}
	s := &Scratch{dir: abs, sto: repo.Storer.(*filesystem.Storage)}
	if err := s.sto.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.Main)); err != nil {
		return nil, fmt.Errorf("cannot make a repository in %s: %w", abs, err)
	}
	return s, nil
}

// URL is the repository's file:// address.
func (s *Scratch) URL() string { return "file://" + filepath.ToSlash(s.dir) }

// Merge commits a whole tree, slash path to content, on top of main, and returns
// the commit.
func (s *Scratch) Merge(subject string, files map[string]string) (string, error) {
	h, err := s.commit(subject, files)
	if err != nil {
		return "", fmt.Errorf("cannot commit to %s: %w", s.dir, err)
	}
	s.head = h
	return h.String(), nil
}

func (s *Scratch) commit(subject string, files map[string]string) (plumbing.Hash, error) {
	tree, err := s.tree(files)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	who := object.Signature{Name: "sluice demo", Email: "demo@sluice.invalid", When: time.Now()}
	c := &object.Commit{Author: who, Committer: who, Message: subject + "\n", TreeHash: tree}
	if !s.head.IsZero() {
		c.ParentHashes = []plumbing.Hash{s.head}
	}
	o := s.sto.NewEncodedObject()
	if err := c.Encode(o); err != nil {
		return plumbing.ZeroHash, err
	}
	h, err := s.sto.SetEncodedObject(o)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	// A reader must never see the branch half written, as go-git would leave it
	// for a moment.
	next := filepath.Join(s.dir, "next")
	if err := os.WriteFile(next, []byte(h.String()+"\n"), 0o644); err != nil {
		return plumbing.ZeroHash, err
	}
	return h, os.Rename(next, filepath.Join(s.dir, filepath.FromSlash(plumbing.Main.String())))
}

// tree writes the objects of a folder, the folders in it first.
func (s *Scratch) tree(files map[string]string) (plumbing.Hash, error) {
	var entries []object.TreeEntry
	folders := map[string]map[string]string{}
	for name, content := range files {
		if dir, rest, ok := strings.Cut(name, "/"); ok {
			if folders[dir] == nil {
				folders[dir] = map[string]string{}
			}
			folders[dir][rest] = content
			continue
		}
		h, err := s.object(plumbing.BlobObject, []byte(content))
		if err != nil {
			return plumbing.ZeroHash, err
		}
		entries = append(entries, object.TreeEntry{Name: name, Mode: filemode.Regular, Hash: h})
	}
	for name, inside := range folders {
		h, err := s.tree(inside)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		entries = append(entries, object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: h})
	}
	slices.SortFunc(entries, func(a, b object.TreeEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	var b bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&b, "%o %s\x00", e.Mode, e.Name)
		b.Write(e.Hash[:])
	}
	return s.object(plumbing.TreeObject, b.Bytes())
}

// sortName is the name as Git sorts it: a folder as if it ended in a slash.
func sortName(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

func (s *Scratch) object(kind plumbing.ObjectType, data []byte) (plumbing.Hash, error) {
	o := s.sto.NewEncodedObject()
	o.SetType(kind)
	w, err := o.Writer()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if _, err := w.Write(data); err != nil {
		return plumbing.ZeroHash, err
	}
	if err := w.Close(); err != nil {
		return plumbing.ZeroHash, err
	}
	return s.sto.SetEncodedObject(o)
}
