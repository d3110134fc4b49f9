package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// patience is how long a stage waits for its ACKs.
const patience = 30 * time.Second

// plane is one life of the control plane, from its start to its death.
type plane struct {
	h        *history
	loop     *reconcile.Loop
	methods  map[string]grpc.StreamHandler
	stop     context.CancelFunc
	running  sync.WaitGroup
	handlers sync.WaitGroup
	// fuse is after how many more effects it dies: what it writes or sends from
	// then on reaches nobody. Negative: it lives on.
	fuse atomic.Int64
	dead atomic.Bool
}

// newPlane starts a control plane from what is on disk.
func newPlane(h *history) *plane {
	p := &plane{h: h, methods: map[string]grpc.StreamHandler{}}
	p.fuse.Store(-1)
	var err error
	p.loop, err = reconcile.New(reconcile.Options{
		Source: &h.source, Store: &disk{plane: p, saved: &h.saved}, Compile: h.compile,
		// It is told of each commit.
		Poll: 10_000 * time.Hour, Patience: patience,
		Plan: h.noted(h.fault.plan(planner.NewPath)), Around: h.fault.around(h),
	})
	if err != nil {
		h.fail("the control plane does not start: %v", err)
		return nil
	}
	p.loop.Server().Register(p)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.running.Go(func() {
		if err := p.loop.Run(ctx); err != nil {
			h.fail("the control plane ends: %v", err)
		}
	})
	return p
}

// noted writes down what is planned, from what.
func (h *history) noted(p plan) plan {
	if *seed == 0 {
		return p
	}
	list := func(s schema.Snapshot) (out []string) {
		for r := range s.All() {
			if !r.Type.Live() {
				out = append(out, fmt.Sprintf("%s@%.4s", r.Key, r.Version))
			}
		}
		return out
	}
	return func(from schema.State, to *schema.Target) *schema.Path {
		path := p(from, to)
		h.log("plan for %s, blank %v, from %v, maybe %v", to.Group, from.Blank, list(from.Acked), list(from.Maybe))
		for _, st := range path.Stages {
			h.log("  %s %v wants %v", st.Kind, list(st.Snapshot), st.Wants)
		}
		return path
	}
}

// RegisterService takes the handlers of the aggregated service.
func (p *plane) RegisterService(d *grpc.ServiceDesc, _ any) {
	if d.ServiceName != "envoy.service.discovery.v3.AggregatedDiscoveryService" {
		return
	}
	for _, s := range d.Streams {
		p.methods[s.StreamName] = s.Handler
	}
}

// dies counts one effect, and reports whether it is lost because the process is
// dead.
func (p *plane) dies() bool {
	if n := p.fuse.Load(); n >= 0 && p.fuse.Add(-1) < 0 {
		p.dead.Store(true)
	}
	return p.dead.Load()
}

// end waits for what is left of a dead control plane. Its streams are cut.
func (p *plane) end() {
	p.dead.Store(true)
	p.handlers.Wait()
	p.stop()
	p.running.Wait()
}

// source is where commits come from.
type source struct {
	mu     sync.Mutex
	commit string
}

func (s *source) set(commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit = commit
}

func (s *source) Poll(context.Context) (reconcile.Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return reconcile.Revision{Commit: s.commit}, nil
}

func (s *source) Accept(string) error { return nil }

// compile finds the fleet of a commit.
func (h *history) compile(_ context.Context, _ fs.FS, id string) (*schema.Fleet, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.commits {
		if c.id == id {
			return c.fleet, nil
		}
	}
	return nil, errors.New("no such commit")
}

// disk is the store of one life: what it saves is there for the next, and what a
// dead process saves is not.
type disk struct {
	plane *plane
	saved *saved
}

type saved struct {
	mu    sync.Mutex
	state reconcile.State
}

func (d *disk) Load() (reconcile.State, error) {
	d.saved.mu.Lock()
	defer d.saved.mu.Unlock()
	return clone(d.saved.state), nil
}

func (d *disk) Save(st reconcile.State) error {
	if d.plane.dies() {
		return errors.New("the process is dead")
	}
	d.saved.mu.Lock()
	defer d.saved.mu.Unlock()
	d.saved.state = clone(st)
	return nil
}

func (d *disk) Close() error { return nil }

// clone copies what the loop may change.
func clone(st reconcile.State) reconcile.State {
	out := st
	out.Groups = maps.Clone(st.Groups)
	release := func(r *reconcile.Release) *reconcile.Release {
		if r == nil {
			return nil
		}
		c := *r
		return &c
	}
	for name, g := range out.Groups {
		g.Base, g.Target = release(g.Base), release(g.Target)
		trail := make([]*reconcile.Release, len(g.Trail))
		for i, r := range g.Trail {
			trail[i] = release(r)
		}
		g.Trail = trail
		out.Groups[name] = g
	}
	return out
}
