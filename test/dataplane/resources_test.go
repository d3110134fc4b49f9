package dataplane

import (
	"net"
	"strconv"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	target    = "xds:///echo.test"
	listener  = "echo.test"
	routeName = "echo-routes"
)

var overADS = &corepb.ConfigSource{
	ConfigSourceSpecifier: &corepb.ConfigSource_Ads{Ads: &corepb.AggregatedConfigSource{}},
	ResourceApiVersion:    corepb.ApiVersion_V3,
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

var routerFilters = []*hcmpb.HttpFilter{{
	Name:       "router",
	ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: pack(&routerpb.Router{})},
}}

// clientListener is the Listener of target, with its routes over ADS.
func clientListener() named {
	hcm := &hcmpb.HttpConnectionManager{
		HttpFilters: routerFilters,
		RouteSpecifier: &hcmpb.HttpConnectionManager_Rds{Rds: &hcmpb.Rds{
			ConfigSource: overADS, RouteConfigName: routeName,
		}},
	}
	return named{listener, &listenerpb.Listener{
		Name:        listener,
		ApiListener: &listenerpb.ApiListener{ApiListener: pack(hcm)},
	}}
}

// serverListener is what a Server at addr asks for.
func serverListener(t *testing.T, addr string) named {
	t.Helper()
	hcm := &hcmpb.HttpConnectionManager{
		HttpFilters: routerFilters,
		RouteSpecifier: &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: &routepb.RouteConfiguration{
			VirtualHosts: []*routepb.VirtualHost{{
				Domains: []string{"*"},
				Routes: []*routepb.Route{{
					Match:  prefix(),
					Action: &routepb.Route_NonForwardingAction{NonForwardingAction: &routepb.NonForwardingAction{}},
				}},
			}},
		}},
	}
	name := ServerListenerName(addr)
	return named{name, &listenerpb.Listener{
		Name:    name,
		Address: address(t, addr),
		FilterChains: []*listenerpb.FilterChain{{
			Filters: []*listenerpb.Filter{{
				Name:       "hcm",
				ConfigType: &listenerpb.Filter_TypedConfig{TypedConfig: pack(hcm)},
			}},
		}},
	}}
}

func address(t *testing.T, addr string) *corepb.Address {
	t.Helper()
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{
		Address:       host,
		PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

func cluster(name string) named {
	return named{name, &clusterpb.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: clusterpb.Cluster_EDS},
		EdsClusterConfig:     &clusterpb.Cluster_EdsClusterConfig{EdsConfig: overADS},
	}}
}

func endpoints(t *testing.T, name, addr string) named {
	t.Helper()
	return named{name, &endpointpb.ClusterLoadAssignment{
		ClusterName: name,
		Endpoints: []*endpointpb.LocalityLbEndpoints{{
			Locality:            &corepb.Locality{Zone: "a"},
			LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpointpb.LbEndpoint{{
				LoadBalancingWeight: wrapperspb.UInt32(1),
				HostIdentifier: &endpointpb.LbEndpoint_Endpoint{
					Endpoint: &endpointpb.Endpoint{Address: address(t, addr)},
				},
			}},
		}},
	}}
}

func prefix() *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Prefix{}}
}

// routes sends every request to one cluster. The warm clusters are named first,
// behind a match that never fires.
func routes(to string, warm ...string) named {
	all := []*routepb.Route{{
		Match: prefix(),
		Action: &routepb.Route_Route{Route: &routepb.RouteAction{
			ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: to},
		}},
	}}
	if len(warm) > 0 {
		all = append([]*routepb.Route{warmRoute(warm)}, all...)
	}
	return named{routeName, &routepb.RouteConfiguration{
		Name:         routeName,
		VirtualHosts: []*routepb.VirtualHost{{Domains: []string{"*"}, Routes: all}},
	}}
}

const warmHeader = "x-sluice-warm"

// warmRoute never fires, whatever the application sends: it wants the header
// present and absent.
func warmRoute(clusters []string) *routepb.Route {
	match := prefix()
	for _, present := range []bool{true, false} {
		match.Headers = append(match.Headers, &routepb.HeaderMatcher{
			Name:                 warmHeader,
			HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: present},
		})
	}
	//lint:ignore SA1019 the C core of gRPC NACKs weights that are not 100 in all without their sum
	weighted := &routepb.WeightedCluster{TotalWeight: wrapperspb.UInt32(uint32(len(clusters)))}
	for _, c := range clusters {
		weighted.Clusters = append(weighted.Clusters,
			&routepb.WeightedCluster_ClusterWeight{Name: c, Weight: wrapperspb.UInt32(1)})
	}
	return &routepb.Route{
		Match: match,
		Action: &routepb.Route_Route{Route: &routepb.RouteAction{
			ClusterSpecifier: &routepb.RouteAction_WeightedClusters{WeightedClusters: weighted},
		}},
	}
}
