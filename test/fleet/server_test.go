package fleet

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// served is a real server with one group, and a planner as its guide.
type served struct {
	t    testing.TB
	srv  *ads.Server
	addr string

	mu     sync.Mutex
	target *schema.Target
}

// serve starts a server that serves ms.
func serve(t testing.TB, ms ...proto.Message) *served {
	t.Helper()
	s := &served{t: t}
	s.srv = ads.New(s, slog.New(slog.NewTextHandler(io.Discard, nil)))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(ads.ServerOptions(), grpc.WaitForHandlers(true))...)
	s.srv.Register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { g.Stop(); <-done; s.srv.Close() })
	s.addr = lis.Addr().String()
	s.set(ms...)
	return s
}

// set makes ms the target of all nodes.
func (s *served) set(ms ...proto.Message) {
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
	next := &schema.Target{Group: "all", Client: schema.Envoy, Snapshot: schema.SnapshotOf(keys...), Drain: 20 * time.Millisecond, Patience: time.Minute}
	s.mu.Lock()
	if old := s.target; old != nil {
		next.Generation, next.Known = old.Generation+1, old.Known
		for _, st := range planner.NewPath(schema.State{Acked: old.Snapshot}, next).Stages {
			next.Known = append(next.Known, st.Snapshot)
		}
	}
	next.Known = append(next.Known, next.Snapshot)
	s.target = next
	s.mu.Unlock()
	s.srv.Refresh()
}

func (s *served) Admit(schema.Node, *schema.Target) (*schema.Target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.target, nil
}

func (s *served) Path(from schema.State, to *schema.Target) *schema.Path {
	return planner.NewPath(from, to)
}

func (s *served) Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	return planner.Step(p, at, f, now)
}

func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

// cluster has its endpoints from the server; the timeout tells its versions apart.
func cluster(name string, timeout int) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ConnectTimeout: durationpb.New(time.Duration(timeout) * time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS()},
	}
}

// hosts are the endpoints of a cluster: one, whose port tells versions apart.
func hosts(name string, port int) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
			}}},
		}}}},
	}}}
}

// table sends everything to the clusters, each below a prefix of its own.
func table(name string, to ...string) *routev3.RouteConfiguration {
	host := &routev3.VirtualHost{Name: "all", Domains: []string{"*"}}
	for _, c := range to {
		host.Routes = append(host.Routes, &routev3.Route{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + c}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: c}}},
		})
	}
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{host}}
}

// listener takes a route table.
func listener(name, table string, port int) *listenerv3.Listener {
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix:     name,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: table}},
	})
	if err != nil {
		panic(err)
	}
	return &listenerv3.Listener{
		Name: name,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
		}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}}}},
	}
}

// generation is a whole configuration: ten services that stay, and one that each
// generation names anew and sends requests to.
func generation(g int) []proto.Message {
	newest := fmt.Sprintf("svc-gen-%d", g)
	ms := []proto.Message{
		cluster(newest, 1), hosts(newest, 9000+g),
		listener("web", "main", 8080), table("main", newest, "svc-0", "svc-1"),
		listener("side", "other", 8081), table("other", "svc-2", "svc-3", newest),
	}
	for i := range 10 {
		name := fmt.Sprintf("svc-%d", i)
		ms = append(ms, cluster(name, 1), hosts(name, 8000+i))
	}
	return ms
}
