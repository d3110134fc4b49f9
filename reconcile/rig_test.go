package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/ads"
)

// The tests of the loop run all of it: a repository, its clone, a store on disk,
// a server on a socket, and clients of the tests' own.

// conf is a configuration: one route table for each group, and the services that
// they lead to.
type conf struct {
	groups   string            // CUE
	front    string            // rule of the gRPC group's one route
	edge     string            // rule of the Envoy group's
	services map[string]string // name to host:port, or to CUE
	extra    string            // CUE
}

// to is a rule that sends everything to a service.
func to(service string) string { return fmt.Sprintf("service: %q", service) }

const (
	frontGroup = `front: schema.#Group & {client: "grpc", match: id: "front-*"}` + "\n"
	edgeGroup  = `edge: schema.#Group & {client: "envoy", match: id: "edge-*", rollout: drain: "0s"}` + "\n"
	edgeAfter  = `edge: schema.#Group & {client: "envoy", match: id: "edge-*", rollout: {drain: "0s", after: ["front"]}}` + "\n"
)

// frontOnly is a mesh of one gRPC group that calls one service.
func frontOnly(service string) conf {
	return conf{groups: frontGroup, front: to(service), services: map[string]string{service: "10.0.0.1:80"}}
}

// both is a mesh of a gRPC and of an Envoy group, which comes after it.
func both(service string) conf {
	c := frontOnly(service)
	c.groups, c.edge = frontGroup+edgeAfter, to(service)
	return c
}

func (c conf) files() map[string]string {
	var b strings.Builder
	b.WriteString("package fleet\n\nimport \"github.com/sluice-xds/sluice/schema\"\n\n")
	fmt.Fprintf(&b, "groups: {\n%s}\n", c.groups)
	if c.front != "" {
		b.WriteString("listeners: front: schema.#Listener & {groups: [\"front\"], target: \"shop.mesh\"}\n")
		fmt.Fprintf(&b, "routes: front: schema.#Routes & {listeners: [\"front\"], hosts: [\"shop.mesh\"], rules: [{match: prefix: \"/\", %s}]}\n", c.front)
	}
	if c.edge != "" {
		b.WriteString("listeners: edge: schema.#Listener & {groups: [\"edge\"], bind: \"0.0.0.0:8080\"}\n")
		fmt.Fprintf(&b, "routes: edge: schema.#Routes & {listeners: [\"edge\"], hosts: [\"shop.mesh\"], rules: [{match: prefix: \"/\", %s}]}\n", c.edge)
	}
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		body := c.services[name]
		if !strings.Contains(body, "endpoints") {
			body = fmt.Sprintf("endpoints: [{address: %q}]", body)
		}
		fmt.Fprintf(&b, "services: %q: schema.#Service & {%s}\n", name, body)
	}
	b.WriteString(c.extra)
	return map[string]string{"fleet.cue": b.String()}
}

// lineOf is the line of a configuration that begins with some text.
func (c conf) lineOf(prefix string) int {
	for i, line := range strings.Split(c.files()["fleet.cue"], "\n") {
		if strings.HasPrefix(line, prefix) {
			return i + 1
		}
	}
	return 0
}

// rig is a control plane that can be stopped and started again.
type rig struct {
	t       *testing.T
	repo    *Scratch
	dir     string // of the clone and the store
	opts    Options
	journal *journal
	wrap    func(Store) Store
	alone   bool // beside no other test

	addr  string
	loop  *Loop
	store Store
	git   *Git
	stop  func()
}

// newRig makes a control plane over a repository with one commit, and waits until
// it has read that.
func newRig(t *testing.T, c conf, change ...func(*rig)) (*rig, string) {
	t.Helper()
	r := idleRig(t, change...)
	first := r.merge(c)
	r.start()
	r.read(first)
	return r, first
}

// idleRig is a rig that is not started.
func idleRig(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, journal: &journal{}, stop: func() {}}
	r.opts = Options{Poll: time.Hour, Patience: 20 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, f := range change {
		f(r)
	}
	if !r.alone {
		t.Parallel()
	}
	var err error
	r.repo, err = NewScratch(filepath.Join(t.TempDir(), "config.git"))
	noError(t, err)
	r.dir = t.TempDir()
	t.Cleanup(func() { r.stop() })
	return r
}

// patience of a short time needs the processor to itself.
func patience(d time.Duration) func(*rig) {
	return func(r *rig) { r.opts.Patience, r.alone = d, true }
}

func alone(r *rig) { r.alone = true }

// start brings the control plane up. Its address changes from one start to the
// next: clients are dialled anew.
func (r *rig) start() {
	r.t.Helper()
	var err error
	r.git, err = OpenGit(GitOptions{URL: r.repo.URL(), Dir: filepath.Join(r.dir, "clone")})
	noError(r.t, err)
	r.store, err = OpenStore(filepath.Join(r.dir, "state.db"))
	noError(r.t, err)
	opts := r.opts
	if opts.Source == nil {
		opts.Source = r.git
	}
	opts.Store = &recordingStore{Store: r.store, journal: r.journal}
	if r.wrap != nil {
		opts.Store = r.wrap(opts.Store)
	}
	r.loop, err = New(opts)
	noError(r.t, err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	noError(r.t, err)
	r.addr = lis.Addr().String()
	g := grpc.NewServer(append(ads.ServerOptions(), grpc.WaitForHandlers(true))...)
	r.loop.Server().Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := g.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			r.t.Error(err)
		}
	})
	parts.Go(func() {
		if err := r.loop.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	r.stop = func() {
		g.Stop()
		cancel()
		parts.Wait()
		noError(r.t, r.store.Close())
		noError(r.t, r.git.Close())
		r.stop = func() {}
	}
}

// merge commits a configuration, and has it polled if the loop runs.
func (r *rig) merge(c conf) string {
	r.t.Helper()
	return r.mergeFiles(c.files())
}

func (r *rig) mergeFiles(files map[string]string) string {
	r.t.Helper()
	commit, err := r.repo.Merge("a change", files)
	noError(r.t, err)
	if r.loop != nil {
		r.loop.Sync()
	}
	return commit
}

// eventually waits for something to become true.
func eventually(t *testing.T, ok func() bool, said func() string) {
	t.Helper()
	deadline := time.NewTimer(15 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal(said())
		}
	}
}

// until waits for the status to say something, and returns it.
func (r *rig) until(what string, ok func(*Status) bool) *Status {
	r.t.Helper()
	var st *Status
	eventually(r.t, func() bool { st = r.loop.Status(); return ok(st) }, func() string {
		return fmt.Sprintf("waited in vain for %s: %s", what, describe(st))
	})
	return st
}

func describe(st *Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "source %+v, store error %q, rejected %+v, refused %+v\n", st.Source, st.StoreError, st.Rejected, st.Refused)
	for _, g := range st.Groups {
		fmt.Fprintf(&b, "  group %+v\n", g)
	}
	for _, n := range st.Nodes {
		fmt.Fprintf(&b, "  node %+v\n", n)
	}
	return b.String()
}

// read waits until the loop has taken a commit in.
func (r *rig) read(commit string) *Status {
	r.t.Helper()
	return r.until("commit "+commit, func(st *Status) bool { return st.Source.Commit == commit })
}

// group is a group's status, or an empty one.
func (st *Status) group(name string) GroupStatus {
	for _, g := range st.Groups {
		if g.Name == name {
			return g
		}
	}
	return GroupStatus{}
}

// node is a node's status, or an empty one.
func (st *Status) node(id string) NodeStatus {
	for _, n := range st.Nodes {
		if n.ID == id {
			return n
		}
	}
	return NodeStatus{}
}

// state waits until a group is in a state.
func (r *rig) state(group, state string) *Status {
	r.t.Helper()
	return r.until(group+" to be "+state, func(st *Status) bool { return st.group(group).State == state })
}

// converged waits until a group has finished a commit, with all nodes at target.
func (r *rig) converged(group, commit string) *Status {
	r.t.Helper()
	return r.until(group+" to converge at "+commit, func(st *Status) bool {
		g := st.group(group)
		return g.State == Converged && g.Base == commit && g.AtTarget == g.Connected
	})
}

// done waits until a group has finished a commit, and nothing is left to prune.
func (r *rig) done(group, commit string) *Status {
	r.t.Helper()
	return r.until(group+" to be done with "+commit, func(st *Status) bool {
		g := st.group(group)
		return g.State == Converged && g.Base == commit && g.Done == g.Connected
	})
}

// journal is the order of what was written and what was received.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// first is the index of the first line that begins with some text, or -1.
func (j *journal) first(prefix string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.IndexFunc(j.lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// recordingStore writes into the journal what was saved.
type recordingStore struct {
	Store
	journal *journal
}

func (s *recordingStore) Save(st State) error {
	err := s.Store.Save(st)
	for _, name := range slices.Sorted(maps.Keys(st.Groups)) {
		g := st.Groups[name]
		target := "-"
		if g.Target != nil {
			target = g.Target.Commit
		}
		s.journal.add("saved %s generation %d target %s: %v", name, g.Generation, target, err)
	}
	return err
}
