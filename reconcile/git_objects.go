package reconcile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// objectStore serialises all access to a storage. go-git's are not safe for
// concurrent use, and neither are commits and trees read from them, so every use
// of either happens with mu held.
type objectStore struct {
	name  string // of the repository, for errors
	packs string // where packs are added, "" for a store that is only read

	mu   sync.Mutex
	sto  *filesystem.Storage // nil when closed
	last *treeNode           // the tree of the revision that was read last
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
	var last *treeNode
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
		root, last = c.TreeHash, s.last
		return nil
	})
	var tree *Tree
	if err == nil {
		tree, err = newTree(s, root, last, rev.When, defaultTreeLimits)
	}
	if err != nil {
		return Revision{}, fmt.Errorf("cannot read commit %s of %s: %w", h, s.name, err)
	}
	if tree.source.files == 0 { // a mistake, never a wish to delete everything
		return Revision{}, &Unavailable{URL: s.name, Reason: fmt.Sprintf("commit %.12s has no files; revert it", h)}
	}
	s.mu.Lock()
	s.last = tree.root
	s.mu.Unlock()
	rev.FS = tree
	return rev, nil
}
