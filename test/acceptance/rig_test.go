package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// rig is a repository, a server and the fleet that it drives. The test's own
// goroutine owns it.
type rig struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	repo   *reconcile.Scratch
	addr   string // of the server
	dial   string // what nodes dial: addr, or a proxy before it
	server control
	proc   *process // server, if it is a process

	commit string    // merged last
	merged time.Time // when
	nodes  []dataplane.Node
	want   map[string]int // connected nodes by group
	run    *dataplane.Run
	route  *dataplane.Answers
	last   *reconcile.Status
}

// newRig makes a repository. A server is started by serve or servePlan, after a
// first merge or before.
func newRig(t *testing.T, limit time.Duration) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dir: t.TempDir(), addr: freeAddr(t), want: map[string]int{}, route: &dataplane.Answers{}}
	r.dial = r.addr
	var err error
	if r.repo, err = reconcile.NewScratch(filepath.Join(r.dir, "config.git")); err != nil {
		t.Fatal(err)
	}
	return r
}

// serve starts the real server.
func (r *rig) serve() {
	r.t.Helper()
	r.proc = newProcess(r.repo.URL(), r.dir, r.addr)
	r.server = r.proc
	r.t.Cleanup(func() {
		r.dump(&r.proc.log)
		r.proc.stop()
	})
	r.restart()
}

// restart starts the process, at first or again.
func (r *rig) restart() {
	r.t.Helper()
	if err := r.proc.start(r.ctx); err != nil {
		r.t.Fatal(err)
	}
}

// servePlan starts a server in this process with a plan of the test's own.
func (r *rig) servePlan(plan func(schema.State, *schema.Target) *schema.Path) {
	r.t.Helper()
	out := &log{}
	s, err := startInProcess(r.repo.URL(), r.dir, r.addr, out, plan)
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = s
	r.t.Cleanup(func() {
		r.dump(out)
		s.stop()
	})
}

// dump says, of a test that failed, what there is to know.
func (r *rig) dump(out *log) {
	if !r.t.Failed() {
		return
	}
	text, _ := json.MarshalIndent(r.last, "", "  ")
	r.t.Logf("last status:\n%s\nserver:\n%s", text, out)
}

// merge commits a configuration.
func (r *rig) merge(subject string, c config) string {
	r.t.Helper()
	return r.mergeFiles(subject, c.files())
}

func (r *rig) mergeFiles(subject string, files map[string]string) string {
	r.t.Helper()
	r.merged = time.Now()
	commit, err := r.repo.Merge(subject, files)
	if err != nil {
		r.t.Fatal(err)
	}
	r.commit = commit
	return commit
}

// await waits until a status satisfies cond.
func (r *rig) await(what string, cond func(*reconcile.Status) bool) *reconcile.Status {
	r.t.Helper()
	st, err := r.watch(r.ctx, cond)
	if err != nil {
		r.t.Fatalf("waiting for %s: %v", what, err)
	}
	return st
}

// watch is await without the test's end. A server that does not answer is asked
// again.
func (r *rig) watch(ctx context.Context, cond func(*reconcile.Status) bool) (*reconcile.Status, error) {
	err := poll(ctx, func() (bool, error) {
		st, err := r.server.status(ctx)
		if err != nil {
			return false, nil
		}
		r.last = st
		return cond(st), nil
	})
	return r.last, err
}

// settled reports whether every group has converged at the last commit, with
// every node that it should have, and owes nothing.
func (r *rig) settled(st *reconcile.Status) bool {
	if st.Source.Commit != r.commit || len(st.Groups) == 0 {
		return false
	}
	for name, n := range r.want {
		g := groupOf(st, name)
		if g.Base != r.commit || g.State != reconcile.Converged || g.Connected != n || g.Done != n || g.Expected != 0 {
			return false
		}
	}
	return true
}

func (r *rig) settle() *reconcile.Status {
	r.t.Helper()
	return r.await("every group to settle at "+short(r.commit), r.settled)
}

func short(commit string) string { return commit[:min(7, len(commit))] }

// backend starts a server without xDS.
func (r *rig) backend(label string) string {
	r.t.Helper()
	s, err := dataplane.StartPlain(label)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Stop)
	return s.Addr()
}

// clients starts grpc-go clients of group frontends, and returns when each could
// carry a request.
func (r *rig) clients(n int) {
	r.t.Helper()
	// Who comes too early is sent away for a second.
	r.await("the first commit to be served", func(st *reconcile.Status) bool { return len(st.Groups) > 0 })
	for range n {
		id := fmt.Sprintf("frontend-%d", len(r.nodes)+1)
		node, err := dataplane.GRPCGo{}.Start(r.ctx, dataplane.Bootstrap{Server: r.dial, NodeID: id, Cluster: "frontend", Zone: "zone-a"}, target)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(node.Stop)
		r.nodes = append(r.nodes, node)
		r.want["frontends"]++
	}
	for _, node := range r.nodes {
		if err := node.Ready(r.ctx); err != nil {
			r.t.Fatal(err)
		}
	}
}

// load sends requests through every client, at a rate for each, until the test
// ends. labels are those that may answer until the route says otherwise.
func (r *rig) load(rate float64, labels ...string) {
	r.t.Helper()
	r.route.Only(labels...)
	l := &dataplane.Load{Nodes: slices.Clone(r.nodes), Rate: rate, Workers: 4, Allow: r.route.Allow}
	r.run = l.Start(context.WithoutCancel(r.ctx))
	r.t.Cleanup(func() { r.run.Stop() })
}

// requests waits for n more answers or failures, and tallies all since the last
// call of requests or Mark.
func (r *rig) requests(n int) dataplane.Tally {
	r.t.Helper()
	before := r.run.Tally().Requests
	if err := poll(r.ctx, func() (bool, error) { return r.run.Tally().Requests-before >= n, nil }); err != nil {
		r.t.Fatalf("waiting for %d requests: %v", n, err)
	}
	return r.run.Mark()
}

// unfailed complains of a tally with failures.
func (r *rig) unfailed(what string, tally dataplane.Tally) {
	r.t.Helper()
	if tally.Failures > 0 {
		r.t.Errorf("%s: %d of %d requests failed: %v; answers %v", what, tally.Failures, tally.Requests, tally.Errors, tally.ByLabel)
	}
}

// checkStore reads the store of a server that does not run: every snapshot in it
// is closed, every group is on its way to a commit or has finished it.
func checkStore(path string, commits ...string) (reconcile.State, error) {
	store, err := reconcile.OpenStore(filepath.Join(path, "state.db"))
	if err != nil {
		return reconcile.State{}, err
	}
	defer store.Close()
	st, err := store.Load()
	if err != nil {
		return st, err
	}
	var wrong []error
	for name, g := range st.Groups {
		for _, rel := range append([]*reconcile.Release{g.Base, g.Target}, g.Trail...) {
			if rel == nil {
				continue
			}
			for _, d := range rel.Group.Snapshot.Dangling() {
				wrong = append(wrong, fmt.Errorf("group %s at %s: %v dangles", name, short(rel.Commit), d))
			}
			for res := range rel.Group.Snapshot.All() {
				if res.Type.Live() && st.Live.Get(res.Key) == nil && (rel == g.Base || rel == g.Target) {
					wrong = append(wrong, fmt.Errorf("group %s at %s: %v has no body", name, short(rel.Commit), res.Key))
				}
			}
		}
		for _, rel := range []*reconcile.Release{g.Base, g.Target} {
			if rel != nil && !slices.Contains(commits, rel.Commit) {
				wrong = append(wrong, fmt.Errorf("group %s is at %s: want one of %v", name, short(rel.Commit), commits))
			}
		}
		if g.Halt != nil {
			wrong = append(wrong, fmt.Errorf("group %s is halted: %s", name, g.Halt.Cause))
		}
	}
	return st, errors.Join(wrong...)
}
