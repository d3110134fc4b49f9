package reconcile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// deadSource is a repository that cannot be reached.
type deadSource struct{}

func (deadSource) Poll(context.Context) (Revision, error) {
	return Revision{}, &Unavailable{URL: "https://git.example.com/fleet", Reason: "the server cannot be reached"}
}
func (deadSource) Accept(string) error { return errors.New("not here") }

func TestBrokenCommit(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)

	broken := frontOnly("v1")
	broken.front = to("v9")
	broken.services["v1"] = "10.0.0.9:80" // must not go live either
	bad := r.merge(broken)
	st := r.until("the rejection", func(st *Status) bool { return st.Rejected != nil })
	if st.Rejected.Commit != bad || !strings.Contains(st.Rejected.Why, "fleet.cue:") || !strings.Contains(st.Rejected.Why, "v9") || st.Source.Commit != bad {
		t.Errorf("rejected: %+v", st.Rejected)
	}
	if g := st.group("front"); g.State != Converged || g.Base != first {
		t.Errorf("the group is %+v", g)
	}
	r.connect("front-2").sees("front → v1, v1@10.0.0.1:80")
	if got := front.view(); got != "front → v1, v1@10.0.0.1:80" {
		t.Errorf("the node holds %s", got)
	}

	// The rejection is said again after a restart, and a fix ends it.
	front.close()
	r.stop()
	r.start()
	r.until("the rejection", func(st *Status) bool { return st.Rejected != nil && st.Rejected.Commit == bad })
	front.dial(r)
	fix := r.merge(frontOnly("v2"))
	st = r.converged("front", fix)
	if st.Rejected != nil {
		t.Errorf("still rejected: %+v", st.Rejected)
	}
	front.holds("v2@10.0.0.1:80")
}

func TestT4BranchDeleted(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	noError(t, r.repo.sto.RemoveReference(plumbing.Main))
	r.loop.Sync()
	st := r.until("the error", func(st *Status) bool { return st.Source.Error != "" })
	if g := st.group("front"); g.State != Converged || g.Base != first || st.Source.Commit != first {
		t.Errorf("the group is %+v, the source %+v", g, st.Source)
	}
	r.connect("front-2").sees("front → v1, v1@10.0.0.1:80")
	second := r.merge(frontOnly("v2"))
	st = r.done("front", second)
	if st.Source.Error != "" {
		t.Errorf("still an error: %s", st.Source.Error)
	}
}

func TestT4RemoteGone(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	away := r.repo.dir + ".away"
	noError(t, os.Rename(r.repo.dir, away))
	r.loop.Sync()
	st := r.until("the error", func(st *Status) bool { return st.Source.Error != "" })
	if g := st.group("front"); g.State != Converged || g.Base != first {
		t.Errorf("the group is %+v", g)
	}
	r.connect("front-2").sees("front → v1, v1@10.0.0.1:80")
	noError(t, os.Rename(away, r.repo.dir))
	r.done("front", r.merge(frontOnly("v2")))
}

func TestT3HistoryRewritten(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(map[bool]string{false: "halt", true: "follow"}[follow], func(t *testing.T) {
			r, first := newRig(t, frontOnly("v1"), func(r *rig) { r.opts.AllowRewrite = follow })
			front := r.connect("front-1")
			front.sees("front → v1, v1@10.0.0.1:80")
			r.done("front", first)
			r.repo.head = plumbing.ZeroHash // the next commit has no parents
			other := r.merge(frontOnly("v2"))
			if follow {
				r.done("front", other)
				front.sees("front → v2, v2@10.0.0.1:80")
				if _, err := r.git.Poll(t.Context()); err != nil {
					t.Errorf("the clone was not told: %v", err)
				}
				return
			}
			st := r.until("the error", func(st *Status) bool { return strings.Contains(st.Source.Error, "history") })
			if g := st.group("front"); g.State != Converged || g.Base != first || st.Source.Commit != first {
				t.Errorf("the group is %+v, the source %+v", g, st.Source)
			}
			r.connect("front-2").sees("front → v1, v1@10.0.0.1:80")
			noError(t, r.git.Accept(other))
			r.loop.Sync()
			st = r.done("front", other)
			if st.Source.Error != "" {
				t.Errorf("still an error: %s", st.Source.Error)
			}
		})
	}
}

func TestPollsByItself(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"), func(r *rig) { r.opts.Poll = 20 * time.Millisecond })
	r.converged("front", first)
	second, err := r.repo.Merge("unasked", frontOnly("v2").files())
	noError(t, err)
	r.converged("front", second)
}

// panicking is a tree that a reader falls over: what a commit does to the
// compiler must not take the server down.
type panicking struct{ Source }

type trap struct{ fs.FS }

func (trap) Open(string) (fs.File, error) { panic("a trap") }

func (p panicking) Poll(ctx context.Context) (Revision, error) {
	rev, err := p.Source.Poll(ctx)
	if err == nil && rev.Subject == "a trap" {
		rev.FS = trap{}
	}
	return rev, err
}

func TestACommitCannotTakeTheServerDown(t *testing.T) {
	r := idleRig(t)
	git, err := OpenGit(GitOptions{URL: r.repo.URL(), Dir: filepath.Join(t.TempDir(), "clone")})
	noError(t, err)
	defer git.Close()
	r.opts.Source = panicking{git}
	first := r.merge(frontOnly("v1"))
	r.start()
	r.converged("front", first)
	bad, err := r.repo.Merge("a trap", frontOnly("v2").files())
	noError(t, err)
	r.loop.Sync()
	st := r.until("the rejection", func(st *Status) bool { return st.Rejected != nil })
	if st.Rejected.Commit != bad || !strings.Contains(st.Rejected.Why, "a trap") {
		t.Errorf("rejected: %+v", st.Rejected)
	}
	r.done("front", r.merge(frontOnly("v3")))
	r.stop()
}
