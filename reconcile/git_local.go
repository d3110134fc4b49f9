package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

const (
	objectCacheSize = 32 * cache.MiByte // that one open repository keeps in memory
	largeObject     = 4 << 20           // bytes; not read to learn the size
	maxHaves        = 256               // commits offered as common with a server
)

// localRemote reads a repository of this machine in process. go-git's own file
// transport runs the git binary.
type localRemote struct{ path string }

func (l localRemote) close() {}

// list opens the repository afresh, so that packs written since are seen.
func (l localRemote) list(context.Context) (*listing, error) {
	sto, _, err := openInPlace(l.path, false)
	if errors.Is(err, git.ErrRepositoryNotExists) {
		return nil, unavailable("there is no repository at this path")
	}
	if err != nil {
		return nil, err
	}
	ls := &listing{branches: make(map[string]plumbing.Hash)}
	ls.fetch = func(ctx context.Context, want plumbing.Hash, into *objectStore) error {
		return copyCommit(ctx, sto, want, into)
	}
	return ls, ls.readRefs(sto)
}

func (ls *listing) readRefs(sto *filesystem.Storage) error {
	if shallow, err := sto.Shallow(); err != nil {
		return err
	} else if len(shallow) > 0 {
		return unavailable("it is a shallow clone; fetch its whole history (git fetch --unshallow)")
	}
	refs, err := sto.IterReferences()
	if err != nil {
		return err
	}
	defer refs.Close()
	err = refs.ForEach(func(r *plumbing.Reference) error {
		if r.Name().IsBranch() && r.Type() == plumbing.HashReference {
			ls.branches[r.Name().Short()] = r.Hash()
		}
		return nil
	})
	if err != nil {
		return err
	}
	head, err := sto.Reference(plumbing.HEAD)
	if err != nil {
		return err
	}
	if head.Type() == plumbing.SymbolicReference {
		ls.head = head.Target()
	} else {
		ls.detached = head.Hash()
	}
	return nil
}

// openInPlace opens the repository at path, or with search the one enclosing it.
// root is its worktree, "" for a bare one. No file stays open: the owner may repack.
func openInPlace(path string, search bool) (sto *filesystem.Storage, root string, err error) {
	repo, err := git.PlainOpenWithOptions(path, &git.PlainOpenOptions{
		DetectDotGit: search, EnableDotGitCommonDir: true,
	})
	if err != nil {
		return nil, "", err
	}
	opened, ok := repo.Storer.(*filesystem.Storage)
	if !ok {
		return nil, "", fmt.Errorf("unexpected storage %T", repo.Storer)
	}
	if tree, err := repo.Worktree(); err == nil {
		root = tree.Filesystem.Root()
	}
	options := filesystem.Options{AlternatesFS: osfs.New("/"), LargeObjectThreshold: largeObject}
	return filesystem.NewStorageWithOptions(opened.Filesystem(), cache.NewObjectLRU(objectCacheSize), options), root, nil
}

// copyCommit copies want and its history. into holds, with a commit, all that the
// commit reaches: a pack appears whole or not at all.
func copyCommit(ctx context.Context, from *filesystem.Storage, want plumbing.Hash, into *objectStore) error {
	hashes, err := missingObjects(ctx, from, want, into)
	if err != nil {
		return err
	}
	return into.addPack(func(w io.Writer) error {
		_, err := packfile.NewEncoder(contextWriter{ctx, w}, from, false).Encode(hashes, 0)
		return err
	}, hashes...)
}

type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// missingObjects lists what want reaches and into does not hold.
func missingObjects(ctx context.Context, from *filesystem.Storage, want plumbing.Hash, into *objectStore) ([]plumbing.Hash, error) {
	var list []plumbing.Hash
	seen := make(map[plumbing.Hash]bool)
	add := func(h plumbing.Hash) bool {
		if seen[h] || into.has(h) {
			return false
		}
		seen[h] = true
		list = append(list, h)
		return true
	}
	commits, trees := []plumbing.Hash{want}, []plumbing.Hash(nil)
	for len(commits) > 0 && ctx.Err() == nil {
		h := commits[len(commits)-1]
		commits = commits[:len(commits)-1]
		if !add(h) {
			continue
		}
		c, err := object.GetCommit(from, h)
		if err != nil {
			return nil, fmt.Errorf("commit %s: %w", h, err)
		}
		commits = append(commits, c.ParentHashes...)
		trees = append(trees, c.TreeHash)
		for len(trees) > 0 {
			h := trees[len(trees)-1]
			trees = trees[:len(trees)-1]
			if !add(h) {
				continue
			}
			t, err := object.GetTree(from, h)
			if err != nil {
				return nil, fmt.Errorf("tree %s: %w", h, err)
			}
			for _, e := range t.Entries {
				switch e.Mode {
				case filemode.Dir:
					trees = append(trees, e.Hash)
				case filemode.Submodule:
				default:
					add(e.Hash)
				}
			}
		}
	}
	return list, ctx.Err()
}

// addPack stores a pack that must hold want. Nothing of it is visible before all
// of it is. The object hashes are computed here, from the content.
func (s *objectStore) addPack(fill func(io.Writer) error, want ...plumbing.Hash) error {
	f, err := os.CreateTemp(s.packs, "incoming_pack_*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := fill(f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	index := new(idxfile.Writer)
	parser, err := packfile.NewParser(packfile.NewScanner(f), index)
	if err != nil {
		return err
	}
	sum, err := parser.Parse()
	if err != nil {
		return fmt.Errorf("the pack that it sent is damaged: %w", err)
	}
	table, err := index.Index()
	if err != nil {
		return err
	}
	for _, h := range want {
		if ok, err := table.Contains(h); err != nil || !ok {
			return fmt.Errorf("object %s is damaged or missing", h)
		}
	}
	return s.install(f, table, sum)
}

// install names the index before the pack: a pack without index is an error to
// go-git, an index without pack is nothing.
func (s *objectStore) install(pack *os.File, index *idxfile.MemoryIndex, sum plumbing.Hash) error {
	idx, err := os.CreateTemp(s.packs, "incoming_idx_*")
	if err != nil {
		return err
	}
	defer os.Remove(idx.Name())
	defer idx.Close()
	if _, err := idxfile.NewEncoder(idx).Encode(index); err != nil {
		return err
	}
	base := filepath.Join(s.packs, "pack-"+sum.String())
	for _, f := range []*os.File{idx, pack} {
		ext := ".idx"
		if f == pack {
			ext = ".pack"
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), base+ext); err != nil {
			return err
		}
	}
	return s.do(func(sto *filesystem.Storage) error {
		sto.Reindex()
		return nil
	})
}

// setRef replaces a reference in one step: go-git's own way leaves an empty file
// when the process ends in between.
func setRef(sto *filesystem.Storage, name plumbing.ReferenceName, h plumbing.Hash) error {
	if ref, err := sto.Reference(name); err == nil && ref.Hash() == h {
		return nil
	}
	dir := sto.Filesystem().Root()
	file, next := filepath.Join(dir, filepath.FromSlash(name.String())), filepath.Join(dir, "incoming_ref")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(next, []byte(h.String()+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// haves lists commits that are held, for a server to build upon.
func (s *objectStore) haves() []plumbing.Hash {
	var list []plumbing.Hash
	_ = s.do(func(sto *filesystem.Storage) error { // a short list costs only traffic
		refs, err := sto.IterReferences()
		if err != nil {
			return err
		}
		return refs.ForEach(func(r *plumbing.Reference) error {
			c, err := object.GetCommit(sto, r.Hash())
			if err != nil {
				return nil // HEAD, which names a branch
			}
			n := 0
			return object.NewCommitIterCTime(c, nil, nil).ForEach(func(c *object.Commit) error {
				if n++; n > maxHaves {
					return storer.ErrStop
				}
				list = append(list, c.Hash)
				return nil
			})
		})
	})
	return list
}

// WorkRepo is the repository around a directory, read in place and never
// written. It is safe for concurrent use.
type WorkRepo struct {
	dir    string
	prefix string
	store  *objectStore
}

// OpenWorkRepo finds the repository that encloses dir.
func OpenWorkRepo(dir string) (*WorkRepo, error) {
	full, err := filepath.Abs(dir)
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the repository around %s: %w", dir, err)
	}
	sto, root, err := openInPlace(full, true)
	if errors.Is(err, git.ErrRepositoryNotExists) {
		return nil, fmt.Errorf("%s is not in a Git repository; run git init, or name a directory that is in one", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the repository around %s: %w", dir, err)
	}
	w := &WorkRepo{dir: dir, prefix: ".", store: &objectStore{name: dir, sto: sto}}
	if root != "" {
		prefix, err := filepath.Rel(root, full)
		if err != nil {
			return nil, fmt.Errorf("cannot open the repository around %s: %w", dir, err)
		}
		w.prefix = filepath.ToSlash(prefix)
	}
	return w, nil
}

// Prefix is the path of the directory in the repository, with slashes: "." at its
// top, so that it fits [io/fs.Sub].
func (w *WorkRepo) Prefix() string { return w.prefix }

// Resolve reads the commit that rev names: HEAD~1, a branch, a tag, origin/HEAD,
// or a hash of at least four digits.
func (w *WorkRepo) Resolve(rev string) (Revision, error) {
	h, err := w.store.resolve(rev)
	if err != nil {
		return Revision{}, err
	}
	return w.store.revision(h)
}

// MergeBase returns the best common ancestor of two revisions, the newest when
// there are several.
func (w *WorkRepo) MergeBase(a, b string) (string, error) {
	var base *object.Commit
	err := w.store.do(func(sto *filesystem.Storage) error {
		x, err := resolve(sto, a)
		if err != nil {
			return fmt.Errorf("%q: %w", a, err)
		}
		y, err := resolve(sto, b)
		if err != nil {
			return fmt.Errorf("%q: %w", b, err)
		}
		all, err := x.MergeBase(y)
		for _, c := range all {
			if base == nil || c.Committer.When.After(base.Committer.When) {
				base = c
			}
		}
		if shallow, _ := sto.Shallow(); base == nil && len(shallow) > 0 {
			return errors.New("the clone is shallow; fetch its whole history (git fetch --unshallow)")
		}
		return err
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot find the merge base of %s and %s in %s: %w", a, b, w.dir, err)
	case base == nil:
		return "", fmt.Errorf("%s and %s have no common commit in %s", a, b, w.dir)
	}
	return base.Hash.String(), nil
}

var (
	revisionForm = regexp.MustCompile(`^(.*?)((?:[~^][0-9]*)*)$`)
	revisionStep = regexp.MustCompile(`[~^][0-9]*`)
	hexForm      = regexp.MustCompile(`^[0-9a-f]{4,40}$`)
)

// resolve finds the commit that rev names.
func (s *objectStore) resolve(rev string) (h plumbing.Hash, err error) {
	err = s.do(func(sto *filesystem.Storage) error {
		c, err := resolve(sto, rev)
		if err == nil {
			h = c.Hash
		}
		return err
	})
	if err != nil {
		return h, fmt.Errorf("cannot find revision %q in %s: %w", rev, s.name, err)
	}
	return h, nil
}

// resolve takes a reference, a full or short hash, and ~N and ^N after it. A
// reference goes before a short hash, as in Git. go-git's own resolver takes the
// first of several commits and ignores what it does not know.
func resolve(sto *filesystem.Storage, rev string) (*object.Commit, error) {
	m := revisionForm.FindStringSubmatch(rev)
	if m == nil || m[1] == "" {
		return nil, errors.New("this is not a revision; name a branch, a tag or a commit")
	}
	c, err := resolveBase(sto, m[1])
	for _, step := range revisionStep.FindAllString(m[2], -1) {
		if err == nil {
			c, err = parent(sto, c, step)
		}
	}
	return c, err
}

func resolveBase(sto *filesystem.Storage, name string) (*object.Commit, error) {
	if name == "@" {
		name = "HEAD"
	}
	if len(name) == 40 && hexForm.MatchString(name) {
		return peel(sto, plumbing.NewHash(name))
	}
	for _, rule := range plumbing.RefRevParseRules {
		full := plumbing.ReferenceName(fmt.Sprintf(rule, name))
		if !full.IsSafe() {
			continue
		}
		if ref, err := storer.ResolveReference(sto, full); err == nil {
			return peel(sto, ref.Hash())
		}
	}
	if !hexForm.MatchString(name) {
		return nil, errors.New("no branch, tag or commit has this name")
	}
	return resolveShort(sto, name)
}

// resolveShort finds the only commit whose hash starts with the digits.
func resolveShort(sto *filesystem.Storage, digits string) (*object.Commit, error) {
	prefix := plumbing.NewHash(digits + strings.Repeat("0", 40-len(digits)))
	hashes, err := sto.HashesWithPrefix(prefix[:len(digits)/2])
	if err != nil {
		return nil, err
	}
	var found []*object.Commit
	for _, h := range hashes {
		if c, err := object.GetCommit(sto, h); err == nil && strings.HasPrefix(h.String(), digits) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return nil, errors.New("no commit starts with these digits")
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("it is ambiguous: %d commits start with these digits; give more", len(found))
}

// peel follows annotated tags to a commit.
func peel(sto *filesystem.Storage, h plumbing.Hash) (*object.Commit, error) {
	for {
		tag, err := object.GetTag(sto, h)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		h = tag.Target
	}
	c, err := object.GetCommit(sto, h)
	if err != nil {
		return nil, fmt.Errorf("there is no commit %s", h)
	}
	return c, nil
}

// parent takes one step back: ^N is the Nth parent, ~N the Nth first parent.
func parent(sto *filesystem.Storage, c *object.Commit, step string) (*object.Commit, error) {
	n, err := 1, error(nil)
	if step != "~" && step != "^" {
		if n, err = strconv.Atoi(step[1:]); err != nil {
			return nil, err
		}
	}
	which, times := 0, n
	if step[0] == '^' {
		which, times = n-1, min(n, 1)
	}
	for range times {
		if which >= len(c.ParentHashes) {
			return nil, fmt.Errorf("commit %s has %d parents", c.Hash, len(c.ParentHashes))
		}
		next, err := object.GetCommit(sto, c.ParentHashes[which])
		if err != nil {
			return nil, fmt.Errorf("parent of %s: %w", c.Hash, err)
		}
		c = next
	}
	return c, nil
}
