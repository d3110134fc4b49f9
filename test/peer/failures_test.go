package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sluice "github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// The failures that peers are known for, numbered as in docs/peers.md. Each is shown
// on go-control-plane's server, and not on sluice's. Those that are of no server of
// go-control-plane's, or that nobody can see from outside, are not here: docs/peers.md
// says why.

// subject is a server of either kind.
type subject interface {
	set(ms ...proto.Message)
	// ids are those by which the server tells its streams apart.
	ids() []string
}

// failures say whether a server fails.
var failures = []struct {
	name  string
	shows func(*testing.T, subject, *wire) bool
}{
	{"01 a refused response is sent again at once", refusedAgain},
	{"02 endpoints that are asked for again after their cluster changed do not come", changedInPlace},
	{"04 what exists is withheld because not all of it was asked for", subset},
	{"05 a missing name is not reported", missing},
	{"06 a name that is subscribed to again is not sent", subscribedAgain},
	{"07 what was refused counts as held", refusedIsHeld},
	{"08 a stream of one variant has the id of one of the other", sameIDs},
}

func TestKnownFailures(t *testing.T) {
	for _, f := range failures {
		for kind, start := range map[string]func(*testing.T, *grpc.Server) subject{"go-control-plane": newGCP, "sluice": newOurs} {
			t.Run(f.name+"/"+kind, func(t *testing.T) {
				lis, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				var opts []grpc.ServerOption
				if kind == "sluice" {
					opts = sluice.ServerOptions()
				}
				g := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
				s := start(t, g)
				done := make(chan struct{})
				go func() { defer close(done); _ = g.Serve(lis) }()
				t.Cleanup(func() { g.Stop(); <-done })
				got := f.shows(t, s, dial(t, lis.Addr().String()))
				if want := kind != "sluice"; got != want {
					t.Errorf("fails: %v, want %v", got, want)
				}
			})
		}
	}
}

// pings are resources that a test asks for to see that nothing came before.
func pings() []proto.Message {
	return []proto.Message{&runtimev3.Runtime{Name: "ping"}, &tlsv3.Secret{Name: "pong"}}
}

func (w *wire) pinged() (seen []string) {
	for url, name := range map[string]string{runtimeURL: "ping", secretURL: "pong"} {
		w.ask(url, name)
		for {
			r := w.recv()
			if r.url == url {
				break
			}
			seen = append(seen, r.names...)
		}
	}
	return seen
}

func refusedAgain(_ *testing.T, s subject, w *wire) bool {
	s.set(append(pings(), cluster("a"))...)
	w.sotw()
	w.ask(clusterURL)
	w.recv()
	w.nack(clusterURL)
	return len(w.pinged()) > 0
}

func changedInPlace(_ *testing.T, s subject, w *wire) bool {
	a := cluster("a")
	s.set(append(pings(), a, endpoints("a", 0))...)
	w.sotw()
	w.ask(clusterURL)
	w.recv()
	w.ask(endpointURL, "a")
	w.recv()
	w.ask(clusterURL)
	w.ask(endpointURL, "a")
	a = cluster("a")
	a.ConnectTimeout = durationpb.New(time.Second)
	s.set(append(pings(), a, endpoints("a", 0))...)
	for w.recv().url != clusterURL {
	}
	w.ask(endpointURL, "a") // Envoy does, for the new cluster, with what it has
	w.ask(clusterURL)
	return !slices.Contains(w.pinged(), "a")
}

func subset(_ *testing.T, s subject, w *wire) bool {
	s.set(append(pings(), cluster("a"), cluster("b"), endpoints("a", 0), endpoints("b", 0))...)
	w.sotw()
	w.ask(endpointURL, "a")
	return !slices.Contains(w.pinged(), "a")
}

func missing(_ *testing.T, s subject, w *wire) bool {
	s.set(append(pings(), cluster("a"), endpoints("a", 0))...)
	w.delta()
	w.ask(endpointURL, "a", "missing")
	return !slices.Contains(append(w.recv().removed, w.pinged()...), "missing")
}

func subscribedAgain(_ *testing.T, s subject, w *wire) bool {
	s.set(append(pings(), cluster("a"), endpoints("a", 0))...)
	w.delta()
	w.ask(endpointURL, "a")
	w.recv()
	w.ack(endpointURL)
	w.ask(endpointURL, "a")
	return !slices.Contains(w.pinged(), "a")
}

// A response with a good and a bad change is refused as a whole. When the bad one
// is mended, the good one must come too.
func refusedIsHeld(_ *testing.T, s subject, w *wire) bool {
	s.set(append(pings(), endpoints("a", 0), endpoints("b", 0))...)
	w.delta()
	w.ask(endpointURL, "a", "b")
	w.recv()
	w.ack(endpointURL)
	s.set(append(pings(), endpoints("a", 1), endpoints("b", 1))...)
	w.recv()
	w.nack(endpointURL)
	s.set(append(pings(), endpoints("a", 1), endpoints("b", 2))...)
	seen := w.recv().names
	w.ack(endpointURL)
	return !slices.Contains(append(seen, w.pinged()...), "a")
}

func sameIDs(_ *testing.T, s subject, w *wire) bool {
	s.set(pings()...)
	w.sotw()
	w.ask(runtimeURL, "ping")
	w.recv()
	w.delta()
	w.ask(runtimeURL, "ping")
	w.recv()
	ids := s.ids()
	slices.Sort(ids)
	return len(slices.Compact(ids)) < 2
}

// wire is a client, and one stream of it at a time.
type wire struct {
	t      *testing.T
	api    discoveryv3.AggregatedDiscoveryServiceClient
	ctx    context.Context
	sotws  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	deltas discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	last   map[string]heard
	asked  map[string][]string
	acked  map[string]string
}

// heard is a response.
type heard struct {
	url, nonce, version string
	names, removed      []string
}

func dial(t *testing.T, addr string) *wire {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(func() { cancel(); conn.Close() })
	return &wire{t: t, ctx: ctx, api: discoveryv3.NewAggregatedDiscoveryServiceClient(conn)}
}

// sotw and delta open a stream.
func (w *wire) sotw()  { w.open(false) }
func (w *wire) delta() { w.open(true) }

func (w *wire) open(delta bool) {
	w.t.Helper()
	w.last, w.asked, w.acked, w.sotws, w.deltas = map[string]heard{}, map[string][]string{}, map[string]string{}, nil, nil
	var err error
	if delta {
		w.deltas, err = w.api.DeltaAggregatedResources(w.ctx)
	} else {
		w.sotws, err = w.api.StreamAggregatedResources(w.ctx)
	}
	w.fatal(err)
}

func (w *wire) fatal(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// ask subscribes to names; in state of the world it is an ACK of the last response
// too. Subscribing in delta is spontaneous.
func (w *wire) ask(url string, names ...string) {
	w.t.Helper()
	w.asked[url] = names
	if w.deltas != nil {
		w.fatal(w.deltas.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: url, ResourceNamesSubscribe: names}))
		return
	}
	w.acked[url] = w.last[url].version
	w.say(url, nil)
}

func (w *wire) ack(url string)  { w.say(url, nil) }
func (w *wire) nack(url string) { w.say(url, &status.Status{Code: 3, Message: "no"}) }

func (w *wire) say(url string, failure *status.Status) {
	w.t.Helper()
	node, last := &corev3.Node{Id: "n"}, w.last[url]
	if w.deltas != nil {
		w.fatal(w.deltas.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url, ResponseNonce: last.nonce, ErrorDetail: failure}))
		return
	}
	w.fatal(w.sotws.Send(&discoveryv3.DiscoveryRequest{
		Node: node, TypeUrl: url, ResourceNames: w.asked[url], VersionInfo: w.acked[url], ResponseNonce: last.nonce, ErrorDetail: failure,
	}))
}

// recv takes the next response; names are of what it brings.
func (w *wire) recv() heard {
	w.t.Helper()
	var h heard
	if w.deltas != nil {
		m, err := w.deltas.Recv()
		w.fatal(err)
		h = heard{url: m.TypeUrl, nonce: m.Nonce, removed: m.RemovedResources}
		for _, r := range m.Resources {
			h.names = append(h.names, r.Name)
		}
	} else {
		m, err := w.sotws.Recv()
		w.fatal(err)
		h = heard{url: m.TypeUrl, nonce: m.Nonce, version: m.VersionInfo}
		for _, a := range m.Resources {
			inner, err := a.UnmarshalNew()
			w.fatal(err)
			h.names = append(h.names, envoy.NameOf(inner))
		}
	}
	w.last[h.url] = h
	return h
}

// gcp is go-control-plane's server over its SnapshotCache, in ADS mode.
type gcp struct {
	t     *testing.T
	cache cache.SnapshotCache
	mu    sync.Mutex
	seen  []string
}

func newGCP(t *testing.T, g *grpc.Server) subject {
	s := &gcp{t: t, cache: cache.NewSnapshotCache(true, oneHash{}, nil)}
	note := func(_ context.Context, id int64, _ string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, fmt.Sprint(id))
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(ctx, s.cache, serverv3.CallbackFuncs{StreamOpenFunc: note, DeltaStreamOpenFunc: note}))
	return s
}

// set gives each type a version of its content.
func (s *gcp) set(ms ...proto.Message) {
	by, sums := map[string][]types.Resource{}, map[string][]byte{}
	for _, m := range ms {
		ty, ok := envoy.TypeOfMessage(m)
		if !ok {
			s.t.Fatalf("%T is no resource", m)
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			s.t.Fatal(err)
		}
		by[ty.URL()] = append(by[ty.URL()], m)
		sum := sha256.Sum256(append(sums[ty.URL()], b...))
		sums[ty.URL()] = sum[:]
	}
	snap, err := cache.NewSnapshot("", by)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, url := range slices.Collect(maps.Keys(by)) {
		snap.Resources[cache.GetResponseType(url)].Version = fmt.Sprintf("%x", sums[url][:8])
	}
	if err := s.cache.SetSnapshot(s.t.Context(), "all", snap); err != nil {
		s.t.Fatal(err)
	}
}

func (s *gcp) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// ours is sluice's engine with its planner.
type ours struct {
	t   *testing.T
	srv *sluice.Server

	mu     sync.Mutex
	target *schema.Target
}

func newOurs(t *testing.T, g *grpc.Server) subject {
	s := &ours{t: t, target: &schema.Target{Group: "all"}}
	s.srv = sluice.New(s, slog.New(slog.NewTextHandler(io.Discard, nil)))
	s.srv.Register(g)
	t.Cleanup(s.srv.Close)
	return s
}

func (s *ours) set(ms ...proto.Message) {
	var keys, live []*schema.Resource
	for _, m := range ms {
		r, err := envoy.Resource(m, envoy.NameOf(m))
		if err != nil {
			s.t.Fatal(err)
		}
		if r.Type.Live() {
			live = append(live, r)
			r = schema.NewLive(r.Key)
		}
		keys = append(keys, r)
	}
	s.srv.Live(schema.SnapshotOf(live...))
	snap := schema.SnapshotOf(keys...)
	s.mu.Lock()
	s.target = &schema.Target{Group: "all", Generation: s.target.Generation + 1, Snapshot: snap, Known: append([]schema.Snapshot{snap}, s.target.Known...)}
	s.mu.Unlock()
	s.srv.Refresh()
}

func (s *ours) Admit(schema.Node, *schema.Target) (*schema.Target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.target, nil
}

func (s *ours) Path(from schema.State, to *schema.Target) *schema.Path {
	return planner.NewPath(from, to)
}

func (s *ours) Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	return planner.Step(p, at, f, now)
}

// ids are those of the sessions that the ledger shows: two of them.
func (s *ours) ids() (out []string) {
	for {
		out = nil
		for _, row := range s.srv.View().Sessions() {
			out = append(out, fmt.Sprint(row.ID))
		}
		if len(out) >= 2 {
			return out
		}
		select {
		case <-s.srv.Changes():
		case <-s.t.Context().Done():
			return out
		}
	}
}

const (
	runtimeURL = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	secretURL  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)
