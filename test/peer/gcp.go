package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// snapshotCache is go-control-plane's SnapshotCache: one snapshot for all nodes of a
// group, or one for each node.
type snapshotCache struct {
	cache   cache.SnapshotCache
	world   world
	groups  int
	perNode bool
	barrier

	mu      sync.Mutex
	nodes   map[int64]string // by stream
	walking map[string]int   // the stage that a node is at
	path    [stages + 1]*cache.Snapshot
	updates int
}

// byCluster takes nodes of one cluster for one; byID each for itself.
type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }

type byID struct{}

func (byID) ID(n *corev3.Node) string { return n.GetId() }

type oneHash struct{}

func (oneHash) ID(*corev3.Node) string { return "all" }

func newSnapshotCache(w world, groups int) engine {
	e := &snapshotCache{cache: cache.NewSnapshotCache(true, byCluster{}, nil), world: w, groups: groups, nodes: map[int64]string{}}
	e.update(0)
	return e
}

func newSnapshotPerNode(w world, _ int) engine {
	return &snapshotCache{cache: cache.NewSnapshotCache(true, byID{}, nil), world: w, groups: 1, perNode: true, nodes: map[int64]string{}}
}

// snapshot gives each type a version that changes only with it.
func (e *snapshotCache) snapshot(w world) *cache.Snapshot {
	by := map[string][]types.Resource{}
	for url, named := range w.all() {
		if url == endpointURL {
			named[clusterName(0)] = endpoints(clusterName(0), e.updates)
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			by[url] = append(by[url], named[name])
		}
	}
	snap, err := cache.NewSnapshot("", by)
	if err != nil {
		panic(err)
	}
	for _, url := range allURLs {
		at := fmt.Sprintf("%d", w.generation)
		if w.stage > 0 {
			at = fmt.Sprintf("%d-%d", w.generation, changedBy(url, w.stage))
		}
		if url == endpointURL {
			at += fmt.Sprintf("-%d", e.updates)
		}
		snap.Resources[cache.GetResponseType(url)].Version = at
	}
	return snap
}

// changedBy is the last stage until now that changed a type; 0 for none.
func changedBy(url string, stage int) int {
	for ; stage > 0; stage-- {
		if stageURL[stage] == url {
			return stage
		}
	}
	return 0
}

func (e *snapshotCache) update(updates int) {
	e.updates = updates
	if e.perNode {
		snap := e.snapshot(e.world)
		for _, id := range e.ids() {
			e.set(id, snap)
		}
		return
	}
	for g := range e.groups {
		w := e.world
		if e.groups > 1 {
			w.group = g + 1
		}
		e.set(clusterOf(g), e.snapshot(w))
	}
}

func (e *snapshotCache) set(key string, snap *cache.Snapshot) {
	if err := e.cache.SetSnapshot(context.Background(), key, snap); err != nil {
		panic(err)
	}
}

func (e *snapshotCache) ids() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.nodes))
}

// rollout walks every node at its own pace if it has a snapshot of its own, and all
// of them together if not.
func (e *snapshotCache) rollout(generation int) (begin func()) {
	e.world.generation = generation
	ids := e.ids()
	if e.perNode {
		e.mu.Lock()
		for stage := 1; stage <= stages; stage++ {
			e.path[stage] = e.snapshot(world{size: e.world.size, generation: generation, stage: stage})
		}
		e.walking = map[string]int{}
		for _, id := range ids {
			e.walking[id] = 1
		}
		e.mu.Unlock()
		return func() {
			for _, id := range ids {
				e.set(id, e.path[1])
			}
		}
	}
	var steps []func()
	for stage := 1; stage <= stages; stage++ {
		w := world{size: e.world.size, generation: generation, stage: stage}
		if e.groups == 1 {
			snap := e.snapshot(w)
			steps = append(steps, func() { e.set(clusterOf(0), snap) })
			continue
		}
		// Those of many groups would not fit into memory all at once.
		steps = append(steps, func() {
			for g := range e.groups {
				w.group = g + 1
				e.set(clusterOf(g), e.snapshot(w))
			}
		})
	}
	return func() { e.walk(len(ids), steps) }
}

// heard takes in a request: the first of a stream, or an ACK.
func (e *snapshotCache) heard(stream int64, node *corev3.Node, url, nonce string) {
	e.mu.Lock()
	if e.nodes[stream] == "" {
		e.nodes[stream] = node.GetId()
		if e.perNode {
			snap := e.path[0]
			if snap == nil {
				snap = e.snapshot(e.world)
				e.path[0] = snap
			}
			e.set(node.GetId(), snap)
		}
	}
	id := e.nodes[stream]
	stage := e.walking[id]
	if nonce == "" || e.perNode && (stage == 0 || stage >= stages || stageURL[stage] != url) {
		e.mu.Unlock()
		return
	}
	if !e.perNode {
		e.mu.Unlock()
		e.ack(url)
		return
	}
	e.walking[id]++
	snap := e.path[stage+1]
	e.mu.Unlock()
	go e.set(id, snap) // the cache calls back into the stream that called here
}

func (e *snapshotCache) left(stream int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.nodes, stream)
}

func (e *snapshotCache) options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxConcurrentStreams(1 << 20)}
}

func (e *snapshotCache) register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(context.Background(), e.cache, serverv3.CallbackFuncs{
		StreamRequestFunc: func(id int64, r *discoveryv3.DiscoveryRequest) error {
			e.heard(id, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce())
			return nil
		},
		StreamDeltaRequestFunc: func(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			e.heard(id, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce())
			return nil
		},
		StreamClosedFunc:      func(id int64, _ *corev3.Node) { e.left(id) },
		DeltaStreamClosedFunc: func(id int64, _ *corev3.Node) { e.left(id) },
	}))
}

// linearCache is go-control-plane with one LinearCache a type: all nodes alike.
type linearCache struct {
	by    map[string]*cache.LinearCache
	world world
	barrier

	mu      sync.Mutex
	streams map[int64]bool
}

func newLinearCache(w world, _ int) engine {
	e := &linearCache{by: map[string]*cache.LinearCache{}, world: w, streams: map[int64]bool{}}
	for url, named := range w.all() {
		initial := map[string]types.Resource{}
		for name, m := range named {
			initial[name] = m
		}
		e.by[url] = cache.NewLinearCache(url, cache.WithInitialResources(initial))
	}
	return e
}

func (e *linearCache) update(generation int) {
	e.put(endpointURL, clusterName(0), endpoints(clusterName(0), generation))
}

func (e *linearCache) put(url, name string, m proto.Message) {
	if err := e.by[url].UpdateResource(name, m); err != nil {
		panic(err)
	}
}

func (e *linearCache) rollout(generation int) (begin func()) {
	w := world{size: e.world.size, generation: generation}
	put := func(url, name string) func() {
		m := w.resources(url)[name]
		return func() { e.put(url, name, m) }
	}
	e.mu.Lock()
	n := len(e.streams)
	e.mu.Unlock()
	next := nextName(generation)
	steps := []func(){
		put(clusterURL, next), put(endpointURL, next), put(listenerURL, "listener-00"), put(routeURL, tableName(0)),
		func() {
			if err := e.by[clusterURL].DeleteResource(nextName(generation - 1)); err != nil {
				panic(err)
			}
		},
	}
	return func() { e.walk(n, steps) }
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
	heard := func(id int64, url, nonce string) {
		if nonce != "" {
			e.ack(url)
			return
		}
		e.mu.Lock()
		e.streams[id] = true
		e.mu.Unlock()
	}
	left := func(id int64, _ *corev3.Node) {
		e.mu.Lock()
		delete(e.streams, id)
		e.mu.Unlock()
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(context.Background(), mux, serverv3.CallbackFuncs{
		StreamRequestFunc: func(id int64, r *discoveryv3.DiscoveryRequest) error {
			heard(id, r.GetTypeUrl(), r.GetResponseNonce())
			return nil
		},
		StreamDeltaRequestFunc: func(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			heard(id, r.GetTypeUrl(), r.GetResponseNonce())
			return nil
		},
		StreamClosedFunc: left, DeltaStreamClosedFunc: left,
	}))
}
