package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

const (
	// What one HTTP answer may have: a list of 500,000 branches, and any history
	// that a configuration repository can be expected to have.
	maxRefsAnswer = 64 << 20
	maxPackAnswer = 2 << 30
	// lastRef is the newest head that Poll has returned as a descendant of the
	// one before, or that Accept has named.
	lastRef plumbing.ReferenceName = "refs/sluice/last"
)

// Revision is one commit of the configuration repository.
type Revision struct {
	Commit  string    // full hex hash
	Author  string    // "Name <mail>"
	Subject string    // first line of the message
	When    time.Time // committer time

	// FS is the whole tree, read from the object store. It is safe for concurrent
	// use and lives as long as what it came from is open. A *[Tree].
	FS fs.FS
}

// Unavailable says that the source has no usable revision now (rule T4). The last
// good state stays: nothing is deleted because of it.
type Unavailable struct {
	URL    string
	Reason string // what is wrong, and what to do
	Err    error  // the cause, or nil
}

func (e *Unavailable) Error() string {
	text := fmt.Sprintf("cannot read %s: %s", e.URL, e.Reason)
	if e.Err != nil {
		text += ": " + oneLine(e.Err.Error())
	}
	return text
}

func (e *Unavailable) Unwrap() error { return e.Err }

func unavailable(format string, args ...any) *Unavailable {
	return &Unavailable{Reason: fmt.Sprintf(format, args...)}
}

// HistoryRewritten says that the branch was moved to a commit which does not
// descend from the last one (rule T3). [Git.Accept] takes the new one.
type HistoryRewritten struct {
	Branch, Old, New string // Old and New are commits
}

func (e *HistoryRewritten) Error() string {
	return fmt.Sprintf("the history of %s was rewritten: %.12s does not descend from %.12s; look at what was lost, then start with --allow-rewrite, or restore the old commit", e.Branch, e.New, e.Old)
}

// GitOptions says what to follow.
type GitOptions struct {
	URL     string        // file:///path, /path, http://host/path or https://host/path
	Branch  string        // "" follows the remote's HEAD
	Dir     string        // of the bare clone; created when absent
	Timeout time.Duration // of one network operation; 0 is 30 s
	// Rebind takes a clone of another repository for this one: nobody was served
	// anything of that.
	Rebind bool
}

// Git follows a branch of a repository through a bare clone with full history,
// which one Git owns at a time. Its methods may be called concurrently.
type Git struct {
	url, branch, dir string
	timeout          time.Duration
	remote           remote
	store            *objectStore

	polling sync.Mutex // one Poll or Accept at a time; guards latest
	latest  Revision
}

// remote is one way to reach a repository.
type remote interface {
	list(ctx context.Context) (*listing, error)
	close()
}

// listing is what a remote says that it has, and a way to get it.
type listing struct {
	branches map[string]plumbing.Hash
	head     plumbing.ReferenceName // what HEAD names, if anything
	detached plumbing.Hash          // HEAD when it names a commit
	fetch    func(ctx context.Context, want plumbing.Hash, into *objectStore) error
}

// OpenGit checks the options and opens or creates the clone. It does not use the
// network. A Dir that holds a clone of another URL is an *OtherRepository error: it
// is never emptied, because revisions that are still served may live there.
func OpenGit(o GitOptions) (*Git, error) {
	g := &Git{branch: strings.TrimPrefix(o.Branch, "refs/heads/"), dir: o.Dir, timeout: cmp.Or(o.Timeout, 30*time.Second)}
	var err error
	if g.url, g.remote, err = parseRemote(o.URL, g.timeout); err != nil {
		return nil, err
	}
	if g.branch != "" && plumbing.NewBranchReferenceName(g.branch).Validate() != nil {
		return nil, fmt.Errorf("%q cannot be the name of a branch", o.Branch)
	}
	if o.Dir == "" {
		return nil, fmt.Errorf("cannot clone %s: no directory for the clone is given", g.url)
	}
	// Storage that is bound to its folder takes no path with "..".
	if g.dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("cannot clone %s to %s: %w", g.url, o.Dir, err)
	}
	sto, err := openClone(g.dir, g.url, g.branch, o.Rebind)
	var other *OtherRepository
	switch {
	case errors.As(err, &other):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("cannot use %s for a clone of %s: %w", g.dir, g.url, err)
	}
	g.store = &objectStore{name: g.url, packs: filepath.Join(g.dir, "objects", "pack"), sto: sto}
	return g, nil
}

// parseRemote never repeats a URL that may hold a password.
func parseRemote(raw string, timeout time.Duration) (string, remote, error) {
	const use = "; use file:///path, /path or https://host/path"
	if strings.HasPrefix(raw, "/") {
		return raw, localRemote{filepath.Clean(raw)}, nil
	}
	u, err := url.Parse(raw)
	web := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	switch {
	case err != nil || u.Opaque != "" || u.Scheme == "":
		return "", nil, errors.New("not supported yet: a repository URL of this form" + use)
	case u.Scheme != "file" && !web:
		return "", nil, fmt.Errorf("not supported yet: repository URLs that start with %s://%s", u.Scheme, use)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", nil, fmt.Errorf("not supported yet: credentials, a query or a fragment in the repository URL; remove them from the one of %s", u.Host)
	case web && u.Host != "":
		return raw, newHTTPRemote(strings.TrimRight(u.String(), "/"), timeout), nil
	case !web && (u.Host == "" || u.Host == "localhost") && u.Path != "":
		return raw, localRemote{filepath.Clean(u.Path)}, nil
	}
	return "", nil, fmt.Errorf("%s is not the URL of a repository%s", raw, use)
}

// Close releases the files and connections. Revisions cannot be read after it.
func (g *Git) Close() error {
	g.remote.close()
	return g.store.close()
}

// Poll fetches the branch and returns its head, the same Revision while nothing
// changes. The error is [*Unavailable] when the remote has nothing usable.
//
// When the head does not descend from the last one, Poll returns both the Revision
// and [*HistoryRewritten], and does so until Accept, also after a restart.
func (g *Git) Poll(ctx context.Context) (Revision, error) {
	g.polling.Lock()
	defer g.polling.Unlock()
	branch, head, err := g.update(ctx)
	if err != nil {
		return Revision{}, err
	}
	rev := g.latest
	if rev.Commit != head.String() {
		if rev, err = g.store.revision(head); err != nil {
			return Revision{}, err
		}
	}
	err = g.advance(branch, head)
	if err != nil && !errors.As(err, new(*HistoryRewritten)) {
		return Revision{}, fmt.Errorf("cannot compare %.12s of %s with the last commit: %w", rev.Commit, g.url, err)
	}
	g.latest = rev
	return rev, err
}

// At returns a revision that was fetched before: a branch, or a full or short hash.
func (g *Git) At(ctx context.Context, rev string) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return Revision{}, err
	}
	h, err := g.store.resolve(rev)
	if err != nil {
		return Revision{}, err
	}
	return g.store.revision(h)
}

// Accept makes a fetched commit, given in full, the one that the next head has to
// descend from. It is the answer to [*HistoryRewritten].
func (g *Git) Accept(commit string) error {
	g.polling.Lock()
	defer g.polling.Unlock()
	h := plumbing.NewHash(commit)
	err := g.store.do(func(sto *filesystem.Storage) error {
		if _, err := object.GetCommit(sto, h); err != nil || h.String() != commit {
			return errors.New("it was not fetched; give a full hash that a poll returned")
		}
		return setRef(sto, lastRef, h)
	})
	if err != nil {
		return fmt.Errorf("cannot accept commit %s of %s: %w", commit, g.url, err)
	}
	return nil
}

// update brings the clone up to date and returns the branch and its head.
func (g *Git) update(ctx context.Context) (branch string, head plumbing.Hash, err error) {
	op, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if branch, head, err = g.fetch(op); err == nil {
		err = g.track(branch, head)
	}
	var away *Unavailable
	var slow net.Error
	var dial *url.Error
	switch {
	case err == nil:
		return branch, head, nil
	case ctx.Err() != nil:
		return "", head, fmt.Errorf("cannot poll %s: %w", g.url, ctx.Err())
	case errors.Is(err, fs.ErrClosed):
		return "", head, fmt.Errorf("cannot poll %s: %w", g.url, err)
	case errors.As(err, &away):
	case op.Err() != nil, errors.As(err, &slow) && slow.Timeout():
		away = unavailable("no answer within %v", g.timeout)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		away = unavailable("the repository is empty; push a first commit")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		away = unavailable("there is no repository at this URL, or it is private")
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		away = unavailable("it asks for credentials, which are not supported yet")
	case errors.As(err, &dial):
		away = &Unavailable{Reason: "the server cannot be reached", Err: dial.Err}
	default:
		away = &Unavailable{Reason: "the repository cannot be copied", Err: err}
	}
	away.URL = g.url
	return "", head, away
}

func (g *Git) fetch(ctx context.Context) (branch string, head plumbing.Hash, err error) {
	ls, err := g.remote.list(ctx)
	if err == nil {
		branch, head, err = g.pick(ls)
	}
	if err == nil && !g.store.has(head) {
		err = ls.fetch(ctx, head, g.store)
	}
	return branch, head, err
}

// pick finds the head of the branch to follow; the branch is "" when it is the
// remote's detached HEAD.
func (g *Git) pick(ls *listing) (string, plumbing.Hash, error) {
	if g.branch == "" && !ls.detached.IsZero() {
		return "", ls.detached, nil
	}
	branch := cmp.Or(g.branch, ls.head.Short())
	if h, ok := ls.branches[branch]; ok && plumbing.NewBranchReferenceName(branch).Validate() == nil {
		return branch, h, nil
	}
	names := slices.Sorted(maps.Keys(ls.branches))
	if len(names) == 0 {
		return "", plumbing.ZeroHash, transport.ErrEmptyRemoteRepository
	}
	similar := nearest(branch, names)
	if len(names) > 10 {
		names = append(names[:10], "...")
	}
	has := "; it has " + oneLine(strings.Join(names, ", "))
	if g.branch == "" {
		return "", plumbing.ZeroHash, unavailable("its HEAD names no branch that exists; say which branch to follow%s", has)
	}
	problem := fmt.Sprintf("branch %q does not exist", branch)
	if _, err := os.Stat(filepath.Join(g.dir, "refs", "heads", filepath.FromSlash(branch))); err == nil {
		problem = fmt.Sprintf("branch %q was deleted", branch)
	}
	if similar != "" {
		problem += fmt.Sprintf(" (did you mean %q?)", similar)
	}
	return "", plumbing.ZeroHash, unavailable("%s%s", problem, has)
}

// track moves the branch of the clone, forward or not. A single-branch clone has
// no other, so that a new name cannot collide with the directory of an old one.
func (g *Git) track(branch string, head plumbing.Hash) error {
	if branch == "" {
		return nil
	}
	name := plumbing.NewBranchReferenceName(branch)
	return g.store.do(func(sto *filesystem.Storage) error {
		if _, err := sto.Reference(name); err != nil {
			if err := os.RemoveAll(filepath.Join(g.dir, "refs", "heads")); err != nil {
				return err
			}
		}
		return setRef(sto, name, head)
	})
}

// advance moves lastRef to head if head descends from it.
func (g *Git) advance(branch string, head plumbing.Hash) error {
	return g.store.do(func(sto *filesystem.Storage) error {
		last, err := sto.Reference(lastRef)
		if errors.Is(err, plumbing.ErrReferenceNotFound) {
			return setRef(sto, lastRef, head)
		}
		if err != nil || last.Hash() == head {
			return err
		}
		old, err := object.GetCommit(sto, last.Hash())
		if err != nil {
			return fmt.Errorf("commit %s: %w", last.Hash(), err)
		}
		c, err := object.GetCommit(sto, head)
		if err != nil {
			return err
		}
		switch descends, err := old.IsAncestor(c); {
		case err != nil:
			return err
		case !descends:
			return &HistoryRewritten{Branch: cmp.Or(branch, "HEAD"), Old: last.Hash().String(), New: head.String()}
		}
		return setRef(sto, lastRef, head)
	})
}

// nearest is the name that differs from the wanted one in the shortest place, of
// two letters at most, or "".
func nearest(want string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		short, head, tail := min(len(want), len(name)), 0, 0
		for head < short && want[head] == name[head] {
			head++
		}
		for tail < short-head && want[len(want)-1-tail] == name[len(name)-1-tail] {
			tail++
		}
		if differ := max(len(want), len(name)) - head - tail; differ < least {
			best, least = name, differ
		}
	}
	return best
}
