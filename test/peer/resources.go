package main

import (
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// size is how much a node holds.
type size struct{ clusters, listeners, tables, routes int }

// The sizes of performance.md: (a) 65 KB, (b) 0.89 MB.
var sizes = map[string]size{
	"a": {clusters: 100, listeners: 10, tables: 10, routes: 10},
	"b": {clusters: 1000, listeners: 10, tables: 50, routes: 100},
}

// Type URLs, in the order in which a proxy asks for them.
const (
	clusterURL  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerURL = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routeURL    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

func clusterName(i int) string { return fmt.Sprintf("cluster-%04d", i) }
func tableName(i int) string   { return fmt.Sprintf("routes-%03d", i) }

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func cluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(5 * time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
}

// endpoints has three hosts; the generation moves the port of one.
func endpoints(name string, generation int) *endpointv3.ClusterLoadAssignment {
	host := func(last, port int) *endpointv3.LbEndpoint {
		return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: fmt.Sprintf("10.0.0.%d", last), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
			}}},
		}}}
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		Locality:    &corev3.Locality{Zone: "zone-a"},
		LbEndpoints: []*endpointv3.LbEndpoint{host(1, 1024+generation%60000), host(2, 8080), host(3, 8080)},
	}}}
}

func listener(i int, tables int) *listenerv3.Listener {
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix:     "http",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: tableName(i % tables)}},
	})
	if err != nil {
		panic(err)
	}
	return &listenerv3.Listener{
		Name: fmt.Sprintf("listener-%02d", i),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm},
		}}}},
	}
}

func table(i int, s size) *routev3.RouteConfiguration {
	host := &routev3.VirtualHost{Name: "all", Domains: []string{"*"}}
	for r := range s.routes {
		host.Routes = append(host.Routes, &routev3.Route{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: fmt.Sprintf("/service/%d/%d", i, r)}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{
				ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: clusterName((i*s.routes + r) % s.clusters)},
			}},
		})
	}
	return &routev3.RouteConfiguration{Name: tableName(i), VirtualHosts: []*routev3.VirtualHost{host}}
}

// world is what a group of nodes holds at a moment: rollouts move it from one
// generation to the next in five stages.
type world struct {
	size
	group      int // 0 for nodes that are all alike; else it has a cluster of its own
	generation int
	stage      int // 0: the generation as it stays; 1 to 5: on the way to it
}

func nextName(generation int) string { return fmt.Sprintf("next-%d", generation) }
func groupName(group int) string     { return fmt.Sprintf("group-%d", group) }

// stages of a rollout: a cluster, its endpoints, a listener, a table, and the
// cluster of before goes.
const stages = 5

var stageURL = [stages + 1]string{1: clusterURL, 2: endpointURL, 3: listenerURL, 4: routeURL, 5: clusterURL}

// resources are those of one type, by name.
func (w world) resources(url string) map[string]proto.Message {
	// at is the generation that a stage has brought, if it is open.
	at := func(stage int) int {
		if w.stage > 0 && w.stage < stage {
			return w.generation - 1
		}
		return w.generation
	}
	out := map[string]proto.Message{}
	switch url {
	case clusterURL, endpointURL:
		names := []string{nextName(w.generation)}
		if w.stage > 0 && (w.stage < stages || url == endpointURL) {
			names = append(names, nextName(w.generation-1))
		}
		if w.group > 0 {
			names = append(names, groupName(w.group))
		}
		for i := range w.clusters {
			names = append(names, clusterName(i))
		}
		for _, name := range names {
			if url == clusterURL {
				out[name] = cluster(name)
			} else {
				out[name] = endpoints(name, 0)
			}
		}
		if url == endpointURL && w.stage == 1 {
			delete(out, nextName(w.generation))
		}
	case listenerURL:
		for i := range w.listeners {
			l := listener(i, w.tables)
			if i == 0 {
				l.StatPrefix = nextName(at(3))
			}
			out[l.Name] = l
		}
	case routeURL:
		for i := range w.tables {
			t := table(i, w.size)
			if i == 0 {
				t.VirtualHosts[0].Routes[0].GetRoute().ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: nextName(at(4))}
			}
			out[t.Name] = t
		}
	}
	return out
}

// all are the resources of a node, by type URL, with names.
func (w world) all() map[string]map[string]proto.Message {
	out := map[string]map[string]proto.Message{}
	for _, url := range allURLs {
		out[url] = w.resources(url)
	}
	return out
}

var allURLs = []string{clusterURL, endpointURL, listenerURL, routeURL}
