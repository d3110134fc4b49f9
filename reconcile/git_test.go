package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/google/go-cmp/cmp"
)

var started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// gitRepo is a bare repository, written object by object.
type gitRepo struct {
	t    *testing.T
	dir  string
	sto  *filesystem.Storage
	made int // commits; they differ in time
}

func newGitRepo(t *testing.T) *gitRepo {
	t.Helper()
	r := &gitRepo{t: t, dir: filepath.Join(t.TempDir(), "config.git")}
	repo, err := git.PlainInit(r.dir, true)
	noError(t, err)
	r.sto = repo.Storer.(*filesystem.Storage)
	r.head("main")
	return r
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *gitRepo) object(kind plumbing.ObjectType, data []byte) plumbing.Hash {
	r.t.Helper()
	o := r.sto.NewEncodedObject()
	o.SetType(kind)
	w, err := o.Writer()
	noError(r.t, err)
	_, err = w.Write(data)
	noError(r.t, err)
	noError(r.t, w.Close())
	h, err := r.sto.SetEncodedObject(o)
	noError(r.t, err)
	return h
}

// tree writes a tree object as it is told to, whatever the names.
func (r *gitRepo) tree(entries ...object.TreeEntry) plumbing.Hash {
	r.t.Helper()
	var b bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&b, "%o %s\x00", e.Mode, e.Name)
		b.Write(e.Hash[:])
	}
	return r.object(plumbing.TreeObject, b.Bytes())
}

// file is an entry for a file with this content.
func (r *gitRepo) file(name, content string) object.TreeEntry {
	r.t.Helper()
	return object.TreeEntry{Name: name, Mode: filemode.Regular, Hash: r.object(plumbing.BlobObject, []byte(content))}
}

func (r *gitRepo) dirEntry(name string, entries ...object.TreeEntry) object.TreeEntry {
	r.t.Helper()
	return object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: r.tree(entries...)}
}

func (r *gitRepo) commit(message string, tree plumbing.Hash, parents ...plumbing.Hash) plumbing.Hash {
	r.t.Helper()
	r.made++
	who := object.Signature{Name: "Ada", Email: "ada@example.com", When: started.Add(time.Duration(r.made) * time.Minute)}
	o := r.sto.NewEncodedObject()
	noError(r.t, (&object.Commit{Author: who, Committer: who, Message: message, TreeHash: tree, ParentHashes: parents}).Encode(o))
	h, err := r.sto.SetEncodedObject(o)
	noError(r.t, err)
	return h
}

// push makes a commit with the one file a.cue in envoy/, and moves branch to it.
func (r *gitRepo) push(branch, content string, parents ...plumbing.Hash) plumbing.Hash {
	r.t.Helper()
	h := r.commit("set "+content+"\n\nWhy.", r.tree(r.dirEntry("envoy", r.file("a.cue", content))), parents...)
	r.branch(branch, h)
	return h
}

func (r *gitRepo) branch(name string, h plumbing.Hash) {
	r.t.Helper()
	noError(r.t, r.sto.SetReference(plumbing.NewHashReference(plumbing.NewBranchReferenceName(name), h)))
}

func (r *gitRepo) head(branch string) {
	r.t.Helper()
	noError(r.t, r.sto.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.NewBranchReferenceName(branch))))
}

func openGit(t *testing.T, o GitOptions) *Git {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "clone")
	}
	g, err := OpenGit(o)
	noError(t, err)
	t.Cleanup(func() { noError(t, g.Close()) })
	return g
}

func pollGit(t *testing.T, g *Git, want plumbing.Hash, content string) Revision {
	t.Helper()
	rev, err := g.Poll(t.Context())
	noError(t, err)
	wantRevision(t, rev, want, content)
	return rev
}

func wantRevision(t *testing.T, rev Revision, want plumbing.Hash, content string) {
	t.Helper()
	if rev.Commit != want.String() {
		t.Fatalf("at commit %s, want %s", rev.Commit, want)
	}
	wantContent(t, rev.FS, content)
}

func wantContent(t *testing.T, fsys fs.FS, content string) {
	t.Helper()
	data, err := fs.ReadFile(fsys, "envoy/a.cue")
	noError(t, err)
	if string(data) != content {
		t.Fatalf("envoy/a.cue is %q, want %q", data, content)
	}
}

// wantUnavailable polls and wants the typed error, on one line, with these words.
func wantUnavailable(t *testing.T, g *Git, words ...string) {
	t.Helper()
	_, err := g.Poll(t.Context())
	var away *Unavailable
	if !errors.As(err, &away) {
		t.Fatalf("got %v, want *Unavailable", err)
	}
	wantWords(t, err, append(words, away.URL)...)
}

func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q: want one line with %q", err, w)
		}
	}
}

// eachTransport runs f once with each way to reach a repository.
func eachTransport(t *testing.T, f func(t *testing.T, r *gitRepo, url string)) {
	t.Run("file", func(t *testing.T) {
		t.Setenv("PATH", "") // rule T1b: no git binary is needed
		r := newGitRepo(t)
		f(t, r, "file://"+r.dir)
	})
	t.Run("http", func(t *testing.T) {
		r := newGitRepo(t)
		f(t, r, serveGit(t, r)+"/config.git")
	})
}

// serveGit serves the directory around a repository by git http-backend.
func serveGit(t *testing.T, r *gitRepo) string {
	t.Helper()
	where, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skipf("git http-backend is the server of this test, and there is no git binary: %v", err)
	}
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(where)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1"},

		Stderr: io.Discard,
	})
	t.Cleanup(server.Close)
	return server.URL
}

func TestPoll(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *gitRepo, url string) {
		dir := filepath.Join(t.TempDir(), "clone")
		g := openGit(t, GitOptions{URL: url, Dir: dir})
		a := r.push("main", "one")
		first := pollGit(t, g, a, "one")
		want := Revision{Commit: a.String(), Author: "Ada <ada@example.com>", Subject: "set one", When: started.Add(time.Minute)}
		got := first
		got.FS, got.When = nil, got.When.UTC()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if again := pollGit(t, g, a, "one"); again.FS != first.FS {
			t.Error("a poll that finds nothing new read the tree again")
		}
		b := r.push("main", "two", a)
		pollGit(t, g, b, "two")
		wantContent(t, first.FS, "one")

		// T2: a revert names a tree that is already here.
		c := r.push("main", "one", b)
		reverted := pollGit(t, g, c, "one")
		if x, y := first.FS.(*Tree).TreeHash("envoy"), reverted.FS.(*Tree).TreeHash("envoy"); x != y || x == "" {
			t.Errorf("tree hash %q, then %q after the revert", x, y)
		}
		for _, rev := range []string{"main", c.String(), c.String()[:9], "main~2"} {
			at, err := g.At(t.Context(), rev)
			noError(t, err)
			wantContent(t, at.FS, "one")
		}
		_, err := g.At(t.Context(), "no-such")
		wantWords(t, err, `"no-such"`, "no branch, tag or commit", url)

		noError(t, g.Close())
		_, err = fs.ReadFile(first.FS, "envoy/a.cue")
		wantWords(t, err, "closed")
		again := openGit(t, GitOptions{URL: url, Dir: dir})
		at, err := again.At(t.Context(), "main~1") // before any poll
		noError(t, err)
		wantRevision(t, at, b, "two")
		pollGit(t, again, c, "one")
	})
}

// T3: the error comes with the revision, until it is accepted, over restarts.
func TestHistoryRewritten(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *gitRepo, url string) {
		o := GitOptions{URL: url, Branch: "main", Dir: filepath.Join(t.TempDir(), "clone")}
		g := openGit(t, o)
		base := r.push("main", "base")
		old := r.push("main", "old", base)
		pollGit(t, g, old, "old")
		forced := r.push("main", "forced", base)
		rewritten := func(g *Git) {
			t.Helper()
			rev, err := g.Poll(t.Context())
			var got *HistoryRewritten
			if !errors.As(err, &got) {
				t.Fatalf("got %v, want *HistoryRewritten", err)
			}
			if diff := cmp.Diff(&HistoryRewritten{"main", old.String(), forced.String()}, got); diff != "" {
				t.Error(diff)
			}
			wantWords(t, err, "history of main was rewritten", "--allow-rewrite")
			wantRevision(t, rev, forced, "forced")
		}
		rewritten(g)
		rewritten(g)
		at, err := g.At(t.Context(), old.String())
		noError(t, err)
		wantRevision(t, at, old, "old")

		noError(t, g.Close())
		g = openGit(t, o)
		rewritten(g)
		wantWords(t, g.Accept("1234"), "1234", "full hash")
		noError(t, g.Accept(forced.String()))
		pollGit(t, g, forced, "forced")
		pollGit(t, g, r.push("main", "next", forced), "next")

		// A branch that moves backwards is rewritten too.
		r.branch("main", forced)
		if _, err := g.Poll(t.Context()); !errors.As(err, new(*HistoryRewritten)) {
			t.Errorf("got %v, want *HistoryRewritten", err)
		}
	})
}

// T4: whatever is missing, the last revision stays readable.
func TestUnavailable(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *gitRepo, url string) {
		g := openGit(t, GitOptions{URL: url, Branch: "main"})
		wantUnavailable(t, g, "empty")
		a := r.push("main", "one")
		r.push("develop", "other")
		last := pollGit(t, g, a, "one")

		noError(t, r.sto.RemoveReference("refs/heads/main"))
		wantUnavailable(t, g, `branch "main" was deleted`, "it has develop")
		wantContent(t, last.FS, "one")
		wantUnavailable(t, openGit(t, GitOptions{URL: url, Branch: "devlop"}), `"devlop" does not exist`, `did you mean "develop"?`)
		wantUnavailable(t, openGit(t, GitOptions{URL: url}), "HEAD names no branch", "it has develop")

		empty := r.commit("empty", r.tree(), a)
		r.branch("main", empty)
		wantUnavailable(t, g, empty.String()[:12], "no files")
		wantContent(t, last.FS, "one")
		last = pollGit(t, g, r.push("main", "two", empty), "two")

		noError(t, os.RemoveAll(r.dir))
		wantUnavailable(t, g, "no repository")
		wantContent(t, last.FS, "two")
	})
}

func TestNetworkFailure(t *testing.T) {
	stall := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/auth/info/refs":
			w.WriteHeader(http.StatusUnauthorized)
		case "/broken/info/refs":
			http.Error(w, "stack\ntrace", http.StatusInternalServerError)
		default:
			select {
			case <-req.Context().Done():
			case <-stall:
			}
		}
	}))
	defer server.Close()
	defer close(stall)
	wantUnavailable(t, openGit(t, GitOptions{URL: server.URL + "/auth"}), "credentials")
	wantUnavailable(t, openGit(t, GitOptions{URL: server.URL + "/broken"}), "500")
	wantUnavailable(t, openGit(t, GitOptions{URL: server.URL + "/slow", Timeout: 50 * time.Millisecond}), "no answer within 50ms")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := openGit(t, GitOptions{URL: server.URL + "/slow"}).Poll(ctx)
	if !errors.Is(err, context.Canceled) || errors.As(err, new(*Unavailable)) {
		t.Errorf("got %v, want the cancellation of the caller", err)
	}

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	wantUnavailable(t, openGit(t, GitOptions{URL: gone.URL + "/x"}), "cannot be reached", "refused")
}

func TestFollowsRemoteHead(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *gitRepo, url string) {
		g := openGit(t, GitOptions{URL: url})
		a := r.push("main", "one")
		pollGit(t, g, a, "one")
		noError(t, r.sto.RemoveReference("refs/heads/main"))
		b := r.push("main/next", "two", a) // a name that collides with the old one
		r.head("main/next")
		pollGit(t, g, b, "two")
		noError(t, r.sto.SetReference(plumbing.NewHashReference(plumbing.HEAD, r.commit("detached", r.tree(r.dirEntry("envoy", r.file("a.cue", "three"))), b))))
		rev, err := g.Poll(t.Context())
		noError(t, err)
		wantContent(t, rev.FS, "three")
	})
}

func TestConcurrentReads(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *gitRepo, url string) {
		g := openGit(t, GitOptions{URL: url})
		last := r.push("main", "0")
		rev := pollGit(t, g, last, "0")
		stop, cancel := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for stop.Err() == nil {
					if data, err := fs.ReadFile(rev.FS, "envoy/a.cue"); err != nil || string(data) != "0" {
						t.Errorf("read %q, %v", data, err)
					}
					if _, err := g.At(t.Context(), rev.Commit); err != nil {
						t.Error(err)
					}
				}
			})
		}
		defer readers.Wait()
		defer cancel()
		for i := range 5 {
			content := fmt.Sprint(i + 1)
			last = r.push("main", content, last)
			pollGit(t, g, last, content)
		}
	})
}

func TestWorkRepo(t *testing.T) {
	r := newGitRepo(t)
	base := r.push("main", "base")
	ours := r.push("topic", "ours", base)
	theirs := r.push("upstream", "theirs", base)
	merge := r.commit("merge", r.tree(r.file("m", "m")), ours, theirs)
	work := t.TempDir()
	noError(t, os.Rename(r.dir, filepath.Join(work, ".git")))
	r.sto = filesystem.NewStorage(r.sto.Filesystem(), nil)
	noError(t, os.MkdirAll(filepath.Join(work, "deploy", "envoy"), 0o700))
	dot := filepath.Join(work, ".git")
	ref := func(name, value string) {
		noError(t, os.MkdirAll(filepath.Dir(filepath.Join(dot, name)), 0o700))
		noError(t, os.WriteFile(filepath.Join(dot, name), []byte(value+"\n"), 0o600))
	}
	ref("HEAD", "ref: refs/heads/topic")
	ref("refs/remotes/origin/HEAD", "ref: refs/remotes/origin/main")
	ref("refs/remotes/origin/main", theirs.String())
	ref("refs/tags/v1", base.String())
	t.Setenv("PATH", "")

	w, err := OpenWorkRepo(filepath.Join(work, "deploy", "envoy"))
	noError(t, err)
	if w.Prefix() != "deploy/envoy" {
		t.Errorf("prefix %q", w.Prefix())
	}
	for rev, want := range map[string]plumbing.Hash{
		"HEAD": ours, "@": ours, "HEAD~1": base, "HEAD^": base, "HEAD^0": ours, "origin/HEAD": theirs, "v1": base,
		"topic": ours, theirs.String()[:10]: theirs, merge.String() + "^2~1": base, merge.String() + "^2": theirs,
	} {
		got, err := w.Resolve(rev)
		noError(t, err)
		if got.Commit != want.String() {
			t.Errorf("%s is %s, want %s", rev, got.Commit, want)
		}
	}
	got, err := w.MergeBase("HEAD", "origin/HEAD")
	noError(t, err)
	if got != base.String() {
		t.Errorf("merge base %s, want %s", got, base)
	}
	for rev, word := range map[string]string{
		"": "not a revision", "~1": "not a revision", "nope": "no branch", "HEAD~9": "0 parents", "main@{1}": "no branch", "main:x": "no branch",
		strings.Repeat("0", 40): "no commit", "0000": "no commit", "../HEAD": "no branch",
	} {
		_, err := w.Resolve(rev)
		wantWords(t, err, word)
	}
	_, err = OpenWorkRepo(t.TempDir())
	wantWords(t, err, "not in a Git repository")
}
