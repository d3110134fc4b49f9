//go:build e2e

package realclients

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// Times of the engine.
const (
	pollEvery = 50 * time.Millisecond
	ackWait   = 10 * time.Second
)

// rig is a repository, the engine that serves it, and the nodes of one kind of
// client under load. The test's own goroutine owns it.
type rig struct {
	t       *testing.T
	ctx     context.Context
	kind    kind
	repo    *reconcile.Scratch
	loop    *reconcile.Loop
	wire    *recorder
	bind    string // of the proxy's listener
	serveAt string // of the server's listener; "" for none
	commit  string
	merged  time.Time
	nodes   []dataplane.Node
	run     *dataplane.Run
}

// newRig starts an engine with a plan, nil for its own.
func newRig(t *testing.T, k kind, limit time.Duration, p plan) *rig {
	t.Helper()
	if i, ok := k.driver.(dataplane.Installed); ok {
		if why := i.Missing(); why != "" {
			t.Skip(why)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, kind: k, bind: freeAddr(t)}
	dir := t.TempDir()
	var err error
	if r.repo, err = reconcile.NewScratch(filepath.Join(dir, "config.git")); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	end, err := r.serve(dir, addr, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	r.wire = startRecorder(t, addr)
	t.Cleanup(r.dump)
	return r
}

// freeAddr is an address that nothing listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// serve runs the engine as `sluice serve` does, until the function that it gives
// is called.
func (r *rig) serve(dir, addr string, p plan) (end func(), err error) {
	var undo []io.Closer
	end = func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i].Close()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	store, err := reconcile.OpenStore(filepath.Join(dir, "store", "state.db"))
	if err != nil {
		return nil, err
	}
	undo = append(undo, store)
	source, err := reconcile.OpenGit(reconcile.GitOptions{URL: r.repo.URL(), Dir: filepath.Join(dir, "store", "repo")})
	if err != nil {
		return nil, err
	}
	undo = append(undo, source)
	r.loop, err = reconcile.New(reconcile.Options{
		Source: source, Store: store, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Poll: pollEvery, Patience: ackWait, Plan: p,
	})
	if err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	g := grpc.NewServer(append(ads.ServerOptions(), grpc.WaitForHandlers(true))...)
	r.loop.Server().Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.loop.Run(ctx) })
	running.Go(func() { _ = g.Serve(lis) })
	undo = append(undo, closer(func() {
		g.Stop()
		cancel()
		running.Wait()
	}))
	return end, nil
}

type closer func()

func (c closer) Close() error { c(); return nil }

// dump says, of a test that failed, how it stands and what was said last.
func (r *rig) dump() {
	if !r.t.Failed() {
		return
	}
	const few = 120
	said := r.wire.conversation(r.merged)
	if len(said) > few {
		said = said[:few]
	}
	r.t.Logf("groups: %+v\nthe conversation since the last merge:\n%s", r.loop.Status().Groups, text(said))
}

// merge commits everything to the first of some services.
func (r *rig) merge(services ...service) {
	r.t.Helper()
	r.mergeConfig(config{services: services})
}

// mergeConfig commits a configuration, for the rig's kind and addresses.
func (r *rig) mergeConfig(c config) {
	r.t.Helper()
	r.merged = time.Now()
	c.client, c.bind, c.serve = r.kind.client, r.bind, r.serveAt
	commit, err := r.repo.Merge("to "+c.services[0].name, c.files())
	if err != nil {
		r.t.Fatal(err)
	}
	r.commit = commit
}

// await waits until the group has converged at the last commit. What is left to
// prune is not waited for: a client of the C core asks for what it no longer uses
// for a quarter of an hour.
func (r *rig) await() {
	r.t.Helper()
	if why := r.poll(func() (bool, string) {
		st := r.loop.Status()
		if st.Rejected != nil && st.Rejected.Commit == r.commit {
			r.t.Fatalf("commit rejected: %s", st.Rejected.Why)
		}
		if len(st.Groups) == 0 {
			return false, "there is no group"
		}
		g := st.Groups[0] // "nodes"
		if g.Halt != nil {
			r.t.Fatalf("halted: %+v", g.Halt)
		}
		ok := g.Base == r.commit && g.State == reconcile.Converged && g.Connected == len(r.nodes) && g.AtTarget == len(r.nodes)
		return ok, fmt.Sprintf("%+v", g)
	}); why != "" {
		r.t.Fatalf("commit %.7s does not converge: %s", r.commit, why)
	}
}

// poll asks until cond holds, and gives what it said last if it never does.
func (r *rig) poll(cond func() (bool, string)) string {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, why := cond()
		if ok {
			return ""
		}
		select {
		case <-r.ctx.Done():
			return why
		case <-tick.C:
		}
	}
}

// backend starts a server that the kind's clients can be sent to.
func (r *rig) backend(name string) service {
	r.t.Helper()
	s, err := r.kind.backend(name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Stop)
	return service{name, s.Addr()}
}

// start starts the nodes, and returns when each could carry a request. A client
// that comes before there is a configuration is sent away, and is slow to return.
func (r *rig) start() {
	r.t.Helper()
	r.await()
	for i := range r.kind.nodes {
		b := dataplane.Bootstrap{Server: r.wire.addr, NodeID: fmt.Sprintf("node-%d", i), Cluster: "tests", Zone: "zone-a"}
		n, err := r.kind.driver.Start(r.ctx, b, r.kind.target(r))
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(n.Stop)
		r.nodes = append(r.nodes, n)
	}
	for _, n := range r.nodes {
		if err := n.Ready(r.ctx); err != nil {
			r.t.Fatal(err)
		}
	}
}

// load sends requests through every node until the test ends.
func (r *rig) load() {
	r.t.Helper()
	l := &dataplane.Load{Nodes: r.nodes, Rate: loadRate, Workers: 4}
	r.run = l.Start(context.WithoutCancel(r.ctx))
	r.t.Cleanup(func() { r.run.Stop() })
}

// arrives waits until a service answers, and then for some more requests: what
// was under way when the route moved is counted with it.
func (r *rig) arrives(s service) {
	r.t.Helper()
	if why := r.poll(func() (bool, string) {
		t := r.run.Tally()
		return t.ByLabel[s.name] > 0, fmt.Sprintf("answers %v, failures %v", t.ByLabel, t.Errors)
	}); why != "" {
		r.t.Fatalf("nothing reaches %s: %s", s.name, why)
	}
	r.requests(loadBetween)
}

// requests lets some more requests pass.
func (r *rig) requests(n int) {
	r.t.Helper()
	from := r.run.Tally().Requests
	if why := r.poll(func() (bool, string) {
		return r.run.Tally().Requests-from >= n, "the load stands still"
	}); why != "" {
		r.t.Fatal(why)
	}
}

// errorsOf gives the most frequent beginning of the failures' texts: what follows
// may name a cluster or a pointer.
func errorsOf(t dataplane.Tally) string {
	const long = 60
	kinds := map[string]int{}
	for e, n := range t.Errors {
		kinds[fmt.Sprintf("%.*s", long, strings.TrimPrefix(e, "rpc error: code = "))] += n
	}
	most := ""
	for e, n := range kinds {
		if n > kinds[most] || n == kinds[most] && e < most {
			most = e
		}
	}
	return most
}
