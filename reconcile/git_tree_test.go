package reconcile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"
)

func (r *gitRepo) open(limits treeLimits, entries ...object.TreeEntry) (*Tree, error) {
	r.t.Helper()
	return newTree(&objectStore{name: r.dir, sto: r.sto}, r.tree(entries...), nil, started, limits)
}

func (r *gitRepo) mustOpen(entries ...object.TreeEntry) *Tree {
	r.t.Helper()
	t, err := r.open(defaultTreeLimits, entries...)
	noError(r.t, err)
	return t
}

func TestTreeIsFS(t *testing.T) {
	r := newGitRepo(t)
	tool := r.file("tool.sh", "#!")
	tool.Mode = filemode.Executable
	// Git puts a-b before a/, and a.cue after: fs wants a, a-b, a.cue.
	tree := r.mustOpen(r.file("a-b", "x"), r.file("a.cue", "y"),
		r.dirEntry("a", r.file("empty", ""), r.dirEntry("deep", r.file("z.yaml", "z: 1"))), r.dirEntry("hollow"), tool)
	noError(t, fstest.TestFS(tree, "a-b", "a.cue", "a/empty", "a/deep/z.yaml", "hollow", "tool.sh"))
	sub, err := fs.Sub(tree, "a")
	noError(t, err)
	noError(t, fstest.TestFS(sub, "empty", "deep/z.yaml"))

	st, err := tree.Stat("tool.sh")
	noError(t, err)
	if st.Mode() != 0o555 || st.Size() != 2 || !st.ModTime().Equal(started) {
		t.Errorf("tool.sh has mode %v, %d bytes, time %v", st.Mode(), st.Size(), st.ModTime())
	}
	for _, name := range []string{"", "/a", "a/", "../a", "a/../b", "a//b", "./a"} {
		if _, err := tree.Open(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("opening %q: %v", name, err)
		}
	}
	if _, err := tree.Open("a-b/c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening a file in a file: %v", err)
	}
	if h := sub.(*Tree).TreeHash("deep"); h != tree.TreeHash("a/deep") || h == "" || tree.TreeHash("a-b") != "" {
		t.Errorf("tree hash of a/deep is %q and %q, of a file %q", h, tree.TreeHash("a/deep"), tree.TreeHash("a-b"))
	}
}

// TestTreeShares: a directory that is as it was is not read again, and counts as
// before; what cannot be opened in it is still said.
func TestTreeShares(t *testing.T) {
	r := newGitRepo(t)
	link := r.file("link", "..")
	link.Mode = filemode.Symlink
	same := r.dirEntry("same", r.file("a.cue", "a"), r.dirEntry("deep", r.file("b.cue", "b")))
	linked := r.dirEntry("linked", link)
	first := r.mustOpen(same, linked, r.dirEntry("x", r.file("c.cue", "1")), r.file("file", ""))
	store := first.source.store
	root := r.tree(same, linked, r.dirEntry("x", r.file("c.cue", "2")), r.dirEntry("file", r.file("d.cue", "")))
	second, err := newTree(store, root, first.root, started, defaultTreeLimits)
	noError(t, err)
	for dir, shared := range map[string]bool{"same": true, "same/deep": true, "linked": false, "x": false} {
		a, errA := first.findDir("test", dir)
		b, errB := second.findDir("test", dir)
		noError(t, errors.Join(errA, errB))
		if got := &a.children[0] == &b.children[0]; got != shared {
			t.Errorf("%s is shared: %v, want %v", dir, got, shared)
		}
	}
	whole, err := newTree(store, root, nil, started, defaultTreeLimits)
	noError(t, err)
	if got, want := second.source, whole.source; got.entries != want.entries || got.files != want.files {
		t.Errorf("%d entries with %d files, read as a whole %d with %d", got.entries, got.files, want.entries, want.files)
	}
	wantUnsupported(t, second.Check("."), UnsupportedEntry{"linked/link", Symlink})
	for _, name := range []string{"same/deep/b.cue", "x/c.cue"} {
		data, err := second.ReadFile(name)
		noError(t, err)
		if want, _ := whole.ReadFile(name); string(data) != string(want) {
			t.Errorf("%s holds %q, want %q", name, data, want)
		}
	}
	if second.source.sum != 2 {
		t.Errorf("%d bytes are charged, want 2", second.source.sum)
	}
	few := treeLimits{entries: whole.source.entries - 1, file: 1 << 20, total: 1 << 20}
	if _, err := newTree(store, root, first.root, started, few); err == nil {
		t.Error("what is shared does not count for the limit")
	}
}

func wantUnsupported(t *testing.T, err error, want ...UnsupportedEntry) {
	t.Helper()
	var got *UnsupportedEntries
	if !errors.As(err, &got) {
		t.Fatalf("got %v, want *UnsupportedEntries", err)
	}
	if diff := cmp.Diff(want, got.Entries); diff != "" {
		t.Error(diff)
	}
	wantWords(t, err, "not supported")
}

func TestTreeRefusesLinks(t *testing.T) {
	r := newGitRepo(t)
	link := r.file("link.cue", "../../etc/passwd")
	link.Mode = filemode.Symlink
	module := object.TreeEntry{Name: "module", Mode: filemode.Submodule, Hash: plumbing.NewHash("12")}
	tree := r.mustOpen(r.dirEntry("envoy", r.file("a.cue", "a"), link), r.dirEntry("lib", module), r.dirEntry("ok", r.file("b", "")))

	linked, submodule := UnsupportedEntry{"envoy/link.cue", Symlink}, UnsupportedEntry{"lib/module", Submodule}
	_, err := fs.ReadFile(tree, "envoy/link.cue")
	wantUnsupported(t, err, linked)
	wantWords(t, err, "symlinks are not supported: envoy/link.cue")
	_, err = tree.Open("envoy/link.cue/below")
	wantUnsupported(t, err, linked)
	_, err = tree.Stat("lib/module")
	wantUnsupported(t, err, submodule)
	wantUnsupported(t, tree.Check("."), linked, submodule)
	wantUnsupported(t, tree.Check("lib"), submodule)
	noError(t, tree.Check("ok"))
	sub, err := fs.Sub(tree, "envoy")
	noError(t, err)
	wantUnsupported(t, sub.(*Tree).Check("."), linked) // with its path in the repository
	_, err = sub.Open("link.cue")
	wantUnsupported(t, err, linked)

	list, err := fs.ReadDir(tree, "envoy")
	noError(t, err)
	if len(list) != 2 || list[1].Type() != fs.ModeSymlink {
		t.Errorf("envoy lists as %v: the link must show", list)
	}
}

func TestTreeRefusesNames(t *testing.T) {
	for _, name := range []string{"..", ".", "a/../b", "/etc", `a\b`, "a\x1b[31m", "a\nb", "\xff", strings.Repeat("n", 5000)} {
		r := newGitRepo(t)
		tree := r.mustOpen(r.file("fine.cue", "f"), r.dirEntry("envoy", r.file("a.cue", "a"), r.file(name, "evil")))
		bad := UnsupportedEntry{"envoy/" + name, BadName}
		_, err := fs.ReadDir(tree, "envoy")
		wantUnsupported(t, err, bad)
		wantUnsupported(t, tree.Check("envoy"), bad)
		if err := fs.WalkDir(tree, ".", func(_ string, _ fs.DirEntry, err error) error { return err }); err == nil {
			t.Errorf("a walk does not see %q", name)
		}
		if _, err := fs.ReadFile(tree, "fine.cue"); err != nil {
			t.Errorf("a file elsewhere cannot be read: %v", err)
		}
	}
	r := newGitRepo(t)
	twice := r.mustOpen(r.file("a", "1"), r.file("a", "2"))
	wantUnsupported(t, twice.Check("."), UnsupportedEntry{"a", BadName})
	if _, err := r.open(defaultTreeLimits, r.file("", "x")); err == nil {
		t.Error("an empty name is taken")
	}
}

func TestTreeLimits(t *testing.T) {
	r := newGitRepo(t)
	tree, err := r.open(treeLimits{entries: 5, file: 4, total: 12}, r.file("a.cue", "1234"), r.file("b.yaml", "12345"), r.file("c.txt", "12345"), r.file("d.md", "1234"))
	noError(t, err)
	read := func(name string) error { _, err := fs.ReadFile(tree, name); return err }
	for range 5 {
		noError(t, read("a.cue")) // counted once
	}
	wantWords(t, read("b.yaml"), "b.yaml", "5 bytes", "limit of 4")
	noError(t, read("c.txt"))
	wantWords(t, read("d.md"), "d.md", "limit of 12")
	noError(t, read("a.cue"))
	f, err := tree.Open("b.yaml")
	noError(t, err)
	_, err = io.ReadAll(f)
	wantWords(t, err, "limit of 4")

	// One sub-tree named many times, on many levels: 2^30 files.
	bomb := r.dirEntry("0", r.file("a", ""))
	for range 30 {
		bomb = r.dirEntry("0", bomb, object.TreeEntry{Name: "1", Mode: filemode.Dir, Hash: bomb.Hash})
	}
	_, err = r.open(defaultTreeLimits, bomb)
	wantWords(t, err, "more than 100000 files")
	_, err = (&objectStore{name: "here", sto: r.sto}).revision(r.commit("hollow", r.tree(r.dirEntry("a", r.dirEntry("b")))))
	if !errors.As(err, new(*Unavailable)) {
		t.Errorf("a tree of directories alone: %v", err)
	}
}

// A source that is damaged, or sends half, never becomes part of the clone.
func TestDamagedSource(t *testing.T) {
	r := newGitRepo(t)
	g := openGit(t, GitOptions{URL: r.dir})
	a := r.push("main", "one")
	last := pollGit(t, g, a, "one")
	blob := r.file("b.cue", "two")
	b := r.commit("b", r.tree(blob), a)
	r.branch("main", b)
	name := filepath.Join(r.dir, "objects", blob.Hash.String()[:2], blob.Hash.String()[2:])
	whole, err := os.ReadFile(name)
	noError(t, err)
	other := r.file("other", "six")
	swapped, err := os.ReadFile(filepath.Join(r.dir, "objects", other.Hash.String()[:2], other.Hash.String()[2:]))
	noError(t, err)
	for says, damage := range map[string][]byte{"object not found": nil, blob.Hash.String(): swapped} {
		noError(t, os.Remove(name))
		if damage != nil {
			noError(t, os.WriteFile(name, damage, 0o600))
		}
		wantUnavailable(t, g, "cannot be copied", says)
		wantContent(t, last.FS, "one")
		if g.store.has(b) {
			t.Fatal("half a commit is in the clone")
		}
		noError(t, os.WriteFile(name, whole, 0o600))
	}
	if rev, err := g.Poll(t.Context()); err != nil || rev.Commit != b.String() {
		t.Errorf("after the repair: %s, %v", rev.Commit, err)
	}
	left, err := filepath.Glob(filepath.Join(g.dir, "objects", "pack", "incoming*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAmbiguousHash(t *testing.T) {
	r := newGitRepo(t)
	seen := make(map[string]plumbing.Hash)
	for { // 4 digits collide after some 300 commits
		h := r.commit(fmt.Sprint(r.made), r.tree(r.file("a", "")))
		short := h.String()[:4]
		if other, ok := seen[short]; ok {
			s := &objectStore{name: "here", sto: r.sto}
			_, err := s.resolve(short)
			wantWords(t, err, "ambiguous", "2 commits", "give more")
			got, err := s.resolve(other.String()[:12])
			noError(t, err)
			if got != other {
				t.Errorf("got %s, want %s", got, other)
			}
			return
		}
		seen[short] = h
	}
}
