//go:build e2e

package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// stage is a control plane on a real port, and one real client of it under load.
// What it serves is what the model is served, dressed for a real client.
type stage struct {
	t       *testing.T
	team    *team
	loop    *reconcile.Loop
	source  source
	backend string // where every request ends
	bind    string // of the proxy's listener
	run     *dataplane.Run
	// unlisted is set when the replay before took the listener away.
	unlisted bool

	mu     sync.Mutex
	fleets map[string]*schema.Fleet
	order  func(plan) plan
}

func newStage(t *testing.T, d dataplane.Driver, client schema.Client, backend func(string) (*dataplane.Server, error)) *stage {
	s := &stage{t: t, team: &team{name: replayGroup, client: client, drain: replayDrain}, fleets: map[string]*schema.Fleet{}}
	b, err := backend("hello")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	s.backend, s.bind = b.Addr(), listen(t, nil)
	living := &plane{}
	living.fuse.Store(-1)
	s.loop, err = reconcile.New(reconcile.Options{
		Source: &s.source, Store: &disk{plane: living, saved: &saved{}}, Compile: s.compile,
		Poll: time.Hour, Patience: patience, Plan: s.plan,
	})
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(ads.ServerOptions(), grpc.WaitForHandlers(true))...)
	s.loop.Server().Register(g)
	addr := listen(t, g)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.loop.Run(ctx) }) // ends with ctx
	t.Cleanup(func() { g.Stop(); cancel(); running.Wait() })
	s.merge(draw(0, "first").commits(s.team)[0])
	s.until(func(g reconcile.GroupStatus) bool { return g.Name != "" })
	to := "xds:///l"
	if client == schema.Envoy {
		to = "http://" + s.bind
	}
	n, err := d.Start(t.Context(), dataplane.Bootstrap{Server: addr, NodeID: replayGroup + "-1", Cluster: "tests"}, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	ready, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	if err := n.Ready(ready); err != nil {
		t.Fatal(err)
	}
	l := &dataplane.Load{Nodes: []dataplane.Node{n}, Workers: 4, Requests: func(i int) dataplane.Request {
		return dataplane.Request{Path: []string{"/sluice.Echo/Say", "/p/Say"}[i%2]}
	}}
	if client == schema.Envoy {
		l.Rate = 1000 // the proxy is a process, and there is one more beside it
	}
	s.run = l.Start(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { s.run.Stop() })
	s.calm()
	s.run.Mark()
	return s
}

// listen serves on a free port, or only finds one.
func listen(t *testing.T, g *grpc.Server) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if g == nil {
		defer lis.Close()
	} else {
		go func() { _ = g.Serve(lis) }() // ends with Stop
	}
	return lis.Addr().String()
}

func (s *stage) compile(_ context.Context, _ fs.FS, id string) (*schema.Fleet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.fleets[id]; f != nil {
		return f, nil
	}
	return nil, errors.New("no such commit")
}

func (s *stage) plan(from schema.State, to *schema.Target) *schema.Path {
	s.mu.Lock()
	order := s.order
	s.mu.Unlock()
	if order == nil {
		return planner.NewPath(from, to)
	}
	return order(planner.NewPath)(from, to)
}

// merge commits what the model was given, under an id of the stage's own, and
// gives that.
func (s *stage) merge(c *commit) string {
	f := *c.fleet
	f.Groups = []schema.Group{c.fleet.Groups[0]}
	f.Groups[0].Snapshot, f.Live = s.dressed(f.Groups[0].Snapshot), s.dressed(f.Live)
	s.mu.Lock()
	f.Commit = fmt.Sprintf("%040d", len(s.fleets)+1)
	s.fleets[f.Commit] = &f
	s.mu.Unlock()
	s.source.set(f.Commit)
	s.loop.Sync()
	return f.Commit
}

func (s *stage) dressed(from schema.Snapshot) schema.Snapshot {
	var out []*schema.Resource
	for r := range from.All() {
		if len(r.Body) > 0 {
			r = s.dress(r)
		}
		out = append(out, r)
	}
	return schema.SnapshotOf(out...)
}

// dress gives a resource what the model does without: addresses, the filter that
// routes, and weights that MOSN, which is wrong by one in their sum, gets right.
func (s *stage) dress(r *schema.Resource) *schema.Resource {
	var a anypb.Any
	if err := proto.Unmarshal(r.Body, &a); err != nil {
		s.t.Fatal(err)
	}
	msg, err := a.UnmarshalNew()
	if err != nil {
		s.t.Fatal(err)
	}
	switch m := msg.(type) {
	case *clusterv3.Cluster:
		m.EdsClusterConfig.EdsConfig.ResourceApiVersion = corev3.ApiVersion_V3
	case *endpointv3.ClusterLoadAssignment:
		for _, l := range m.Endpoints {
			for _, e := range l.LbEndpoints {
				e.LoadBalancingWeight = wrapperspb.UInt32(1)
				e.GetEndpoint().Address = s.address(s.backend)
			}
		}
	case *routev3.RouteConfiguration:
		for _, rt := range m.VirtualHosts[0].Routes {
			for _, c := range rt.GetRoute().GetWeightedClusters().GetClusters() {
				c.Weight.Value *= 100
			}
		}
	case *listenerv3.Listener:
		if m.ApiListener != nil {
			m.ApiListener.ApiListener = s.filter(m.ApiListener.ApiListener)
			break
		}
		m.Address, m.TrafficDirection = s.address(s.bind), corev3.TrafficDirection_OUTBOUND
		f := m.FilterChains[0].Filters[0]
		f.Name = "envoy.filters.network.http_connection_manager"
		f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: s.filter(f.GetTypedConfig())}
	}
	out, err := envoy.Resource(msg, envoy.NameOf(msg))
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *stage) filter(a *anypb.Any) *anypb.Any {
	var m hcmv3.HttpConnectionManager
	if err := a.UnmarshalTo(&m); err != nil {
		s.t.Fatal(err)
	}
	m.GetRds().ConfigSource.ResourceApiVersion = corev3.ApiVersion_V3
	m.HttpFilters = []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(&routerv3.Router{})}}}
	return packed(&m)
}

func (s *stage) address(addr string) *corev3.Address {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		s.t.Fatal(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

// until waits until the group is as it should be.
func (s *stage) until(cond func(reconcile.GroupStatus) bool) {
	s.t.Helper()
	end := time.Now().Add(20 * time.Second)
	for tick := time.Tick(2 * time.Millisecond); ; <-tick {
		var g reconcile.GroupStatus
		if all := s.loop.Status().Groups; len(all) > 0 {
			g = all[0]
		}
		if cond(g) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("it does not get there: %+v", g)
		}
	}
}

func (s *stage) converged(commit string) {
	s.t.Helper()
	s.until(func(g reconcile.GroupStatus) bool {
		return g.Base == commit && g.State == reconcile.Converged && g.Connected == 1 && g.AtTarget == 1
	})
}

// calm waits for a while in which every request is answered: an ACK is not yet
// the use of what it accepts.
func (s *stage) calm() {
	s.t.Helper()
	last := s.run.Tally()
	end := time.Now().Add(20 * time.Second)
	for tick := time.Tick(60 * time.Millisecond); ; {
		<-tick
		now := s.run.Tally()
		if now.Requests-last.Requests >= 20 && now.Failures == last.Failures {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("requests go on failing: %v", now.Errors)
		}
		last = now
	}
}

// play serves a replay to the client, and gives what came of the requests on the
// way to what is to be changed, and since.
func (s *stage) play(r replay) (to, since dataplane.Tally) {
	s.t.Helper()
	commits := r.commits(s.team)
	s.converged(s.merge(commits[0]))
	s.calm()
	to = s.run.Mark()
	after := s.dressed(r.after.snapshot(s.team.client))
	s.mu.Lock()
	s.order = r.order.planned(after.Equal)
	s.mu.Unlock()
	for i, c := range commits[1:] {
		id := s.merge(c)
		if r.late && i == 0 {
			time.Sleep(replayLate) // the outage is the subject
			continue
		}
		s.converged(id)
	}
	s.calm()
	s.mu.Lock()
	s.order = nil
	s.mu.Unlock()
	return to, s.run.Mark()
}
