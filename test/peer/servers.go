package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	sluice "github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// engine is a server under test.
type engine interface {
	register(*grpc.Server)
	options() []grpc.ServerOption
	// update changes the endpoints of one cluster for every node.
	update(generation int)
	// rollout prepares a generation, and begin walks every node to it in five stages,
	// none before the ACK of the one before. It returns at any time.
	rollout(generation int) (begin func())
}

// engines make a server of a world, for nodes of a number of groups.
var engines = map[string]func(w world, groups int) engine{
	"sluice":       newSluice,
	"gcp-snapshot": newSnapshotCache,
	"gcp-per-node": newSnapshotPerNode,
	"gcp-linear":   newLinearCache,
	"raw":          newRaw,
}

// clusterOf is node.cluster of the nodes of a group, counted from 0.
func clusterOf(group int) string { return fmt.Sprintf("bench-%d", group) }

// report is what a server says of itself.
type report struct {
	Addr     string
	CPU      time.Duration // user and system, since the start
	RSS      int64         // bytes, the peak
	Mallocs  uint64
	Bytes    uint64
	Updated  time.Time
	Routines int
	Requests int64 // that came until now
}

// counted is a stream whose requests are counted.
type counted struct {
	grpc.ServerStream
	n *atomic.Int64
}

func (c counted) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	c.n.Add(1)
	return err
}

// serve runs an engine, and obeys lines on standard input: "update", "rollout",
// "gc" and "stat".
func serve(kind string, s size, groups int) error {
	newEngine, ok := engines[kind]
	if !ok {
		return fmt.Errorf("no engine %q", kind)
	}
	e := newEngine(world{size: s}, groups)
	var requests atomic.Int64
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := grpc.NewServer(append(e.options(), grpc.StreamInterceptor(
		func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			return handler(srv, counted{s, &requests})
		}))...)
	e.register(g)
	go g.Serve(lis)
	defer g.Stop()
	if stop, err := profile(os.Getenv("PEER_PROFILE")); err != nil {
		return err
	} else {
		defer stop()
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(report{Addr: lis.Addr().String()}); err != nil {
		return err
	}
	generation, rollouts := 0, 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		r := report{}
		switch in.Text() {
		case "update":
			generation++
			r.Updated = time.Now()
			e.update(generation)
		case "rollout":
			rollouts++
			begin := e.rollout(rollouts)
			r.Updated = time.Now()
			go begin()
		case "gc":
			runtime.GC()
		}
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			return err
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		r.CPU = time.Duration(use.Utime.Nano() + use.Stime.Nano())
		r.RSS, r.Mallocs, r.Bytes, r.Routines = rss(), m.Mallocs, m.TotalAlloc, runtime.NumGoroutine()
		r.Requests = requests.Load()
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// profile writes FILE.cpu and FILE.mem when the server ends.
func profile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	runtime.MemProfileRate = 1024
	c, err := os.Create(file + ".cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(c); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		c.Close()
		if m, err := os.Create(file + ".mem"); err == nil {
			pprof.Lookup("allocs").WriteTo(m, 0)
			m.Close()
		}
	}, nil
}

// rss is the resident size of this process, from /proc.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	var kb int64
	if _, rest, ok := strings.Cut(string(b), "VmRSS:"); ok {
		fmt.Sscanf(rest, "%d", &kb)
	}
	return kb << 10
}

// sluiceEngine is the engine with a guide that gives each group a target.
type sluiceEngine struct {
	srv     *sluice.Server
	world   world
	pool    map[string]*schema.Resource // of give alone
	mu      sync.Mutex
	targets map[string]*schema.Target // by node.cluster
	paths   map[pathKey]*schema.Path
}

func newSluice(w world, groups int) engine {
	e := &sluiceEngine{world: w, pool: map[string]*schema.Resource{}, targets: map[string]*schema.Target{}, paths: map[pathKey]*schema.Path{}}
	e.srv = sluice.New(e, slog.New(slog.NewTextHandler(io.Discard, nil)))
	e.give(w, groups)
	return e
}

// give makes every group's target of a world.
func (e *sluiceEngine) give(w world, groups int) {
	for g := range groups {
		if groups > 1 {
			w.group = g + 1
		}
		var keys, live []*schema.Resource
		for _, named := range w.all() {
			for name, msg := range named {
				r, err := envoy.Resource(msg, name)
				if err != nil {
					panic(err)
				}
				if r.Type.Live() {
					if w.generation == 0 || name == nextName(w.generation) {
						live = append(live, r)
					}
					r = schema.NewLive(r.Key)
				}
				keys = append(keys, e.shared(r))
			}
		}
		snap := schema.SnapshotOf(keys...)
		t := &schema.Target{Group: clusterOf(g), Generation: uint64(w.generation + 1), Snapshot: snap, Known: []schema.Snapshot{snap}}
		e.mu.Lock()
		if old := e.targets[t.Group]; old != nil {
			t.Known = append(t.Known, old.Snapshot)
		}
		e.targets[t.Group] = t
		e.mu.Unlock()
		e.srv.Live(schema.SnapshotOf(live...))
	}
}

// shared is what the pool holds of a resource: groups share what is alike.
func (e *sluiceEngine) shared(r *schema.Resource) *schema.Resource {
	id := r.Type.URL() + r.Name + string(r.Version)
	if old := e.pool[id]; old != nil {
		return old
	}
	e.pool[id] = r
	return r
}

func (e *sluiceEngine) rollout(generation int) (begin func()) {
	w := e.world
	w.generation = generation
	e.give(w, len(e.targets))
	return e.srv.Refresh
}

func (e *sluiceEngine) register(g *grpc.Server)      { e.srv.Register(g) }
func (e *sluiceEngine) options() []grpc.ServerOption { return sluice.ServerOptions() }

func (e *sluiceEngine) update(generation int) {
	r, err := envoy.Resource(endpoints(clusterName(0), generation), clusterName(0))
	if err != nil {
		panic(err)
	}
	e.srv.Live(schema.SnapshotOf(r))
}

func (e *sluiceEngine) Admit(n schema.Node, _ *schema.Target) (*schema.Target, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.targets[n.Cluster]
	if t == nil {
		return nil, fmt.Errorf("no group %q", n.Cluster)
	}
	return t, nil
}

// Path plans once for all sessions in the same state, as the loop does.
func (e *sluiceEngine) Path(from schema.State, to *schema.Target) *schema.Path {
	key := pathKey{from.Acked.ID(), from.Maybe.ID(), from.Blank, to}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paths[key] == nil {
		e.paths[key] = planner.NewPath(from, to)
	}
	return e.paths[key]
}

type pathKey struct {
	acked, maybe schema.ID
	blank        bool
	to           *schema.Target
}

func (e *sluiceEngine) Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	return planner.Step(p, at, f, now)
}
