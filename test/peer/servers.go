package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

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
}

var engines = map[string]func(size) engine{
	"sluice":       newSluice,
	"gcp-snapshot": newSnapshotCache,
	"gcp-linear":   newLinearCache,
	"raw":          newRaw,
}

// report is what a server says of itself.
type report struct {
	Addr     string
	CPU      time.Duration // user and system, since the start
	RSS      int64         // bytes, the peak
	Mallocs  uint64
	Bytes    uint64
	Updated  time.Time
	Routines int
}

// serve runs an engine, and obeys lines on standard input: "update" and "stat".
func serve(kind string, s size) error {
	e := engines[kind](s)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := grpc.NewServer(e.options()...)
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
	generation := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		r := report{}
		switch in.Text() {
		case "update":
			generation++
			r.Updated = time.Now()
			e.update(generation)
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

// sluiceEngine is the engine with a guide that gives everybody one target.
type sluiceEngine struct {
	srv    *sluice.Server
	target *schema.Target
}

func newSluice(s size) engine {
	e := &sluiceEngine{}
	var keys, live []*schema.Resource
	for _, named := range all(s) {
		for name, msg := range named {
			r, err := envoy.Resource(msg, name)
			if err != nil {
				panic(err)
			}
			if r.Type.Live() {
				live = append(live, r)
				r = schema.NewLive(r.Key)
			}
			keys = append(keys, r)
		}
	}
	snap := schema.SnapshotOf(keys...)
	e.target = &schema.Target{Group: "all", Generation: 1, Snapshot: snap, Known: []schema.Snapshot{snap}}
	e.srv = sluice.New(e, slog.New(slog.NewTextHandler(io.Discard, nil)))
	e.srv.Live(schema.SnapshotOf(live...))
	return e
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

func (e *sluiceEngine) Admit(schema.Node, *schema.Target) (*schema.Target, error) {
	return e.target, nil
}

func (e *sluiceEngine) Path(from schema.State, to *schema.Target) *schema.Path {
	return planner.NewPath(from, to)
}

func (e *sluiceEngine) Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	return planner.Step(p, at, f, now)
}

// snapshotCache is go-control-plane with one snapshot shared by all nodes.
type snapshotCache struct {
	cache     cache.SnapshotCache
	resources map[string]map[string]proto.Message
}

type oneHash struct{}

func (oneHash) ID(*corev3.Node) string { return "all" }

func newSnapshotCache(s size) engine {
	e := &snapshotCache{cache: cache.NewSnapshotCache(true, oneHash{}, nil), resources: all(s)}
	e.update(0)
	return e
}

func (e *snapshotCache) update(generation int) {
	e.resources[endpointURL][clusterName(0)] = endpoints(clusterName(0), generation)
	by := map[string][]types.Resource{}
	for url, named := range e.resources {
		for _, m := range named {
			by[url] = append(by[url], m)
		}
	}
	snap, err := cache.NewSnapshot("1", by)
	if err != nil {
		panic(err)
	}
	// Only the type that changed gets a new version.
	snap.Resources[types.Endpoint].Version = fmt.Sprint(generation)
	if err := e.cache.SetSnapshot(context.Background(), "all", snap); err != nil {
		panic(err)
	}
}

func (e *snapshotCache) options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxConcurrentStreams(1 << 20)}
}

func (e *snapshotCache) register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(context.Background(), e.cache, nil))
}

// linearCache is go-control-plane with one LinearCache a type.
type linearCache struct{ by map[string]*cache.LinearCache }

func newLinearCache(s size) engine {
	e := &linearCache{by: map[string]*cache.LinearCache{}}
	for url, named := range all(s) {
		initial := map[string]types.Resource{}
		for name, m := range named {
			initial[name] = m
		}
		e.by[url] = cache.NewLinearCache(url, cache.WithInitialResources(initial))
	}
	return e
}

func (e *linearCache) update(generation int) {
	if err := e.by[endpointURL].UpdateResource(clusterName(0), endpoints(clusterName(0), generation)); err != nil {
		panic(err)
	}
}

func (e *linearCache) options() []grpc.ServerOption { return nil }

func (e *linearCache) register(g *grpc.Server) {
	caches := map[string]cache.Cache{}
	for url, c := range e.by {
		caches[url] = c
	}
	mux := &cache.MuxCache{Caches: caches}
	mux.Classify = func(r *cache.Request) string { return r.GetTypeUrl() }
	mux.ClassifyDelta = func(r *cache.DeltaRequest) string { return r.GetTypeUrl() }
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(context.Background(), mux, nil))
}
