package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// conf is what one group of nodes is to hold. It does not change once it is
// committed.
type conf struct {
	clusters  map[string]cluster
	tables    map[string][]route
	listeners map[string]listener
}

type cluster struct {
	version int
	eds     string   // the name of its endpoints
	members []string // of an aggregate, which has no endpoints
	refuser string   // who refuses it
}

// route sends what a host and a path's prefix match to clusters, in parts that
// need not be equal.
type route struct {
	host, path string
	to         []string
	weight     int // of the first, in a hundred
}

type listener struct {
	version int
	table   string
	tcp     string // the cluster, instead of a table
	refuser string
}

// hosts are the endpoints of one name.
type hosts struct {
	version int
	empty   bool
}

// clone copies what a change may touch.
func (c conf) clone() conf {
	out := conf{maps.Clone(c.clusters), map[string][]route{}, maps.Clone(c.listeners)}
	for name, routes := range c.tables {
		out.tables[name] = slices.Clone(routes)
	}
	return out
}

// commit is one revision: what every group is to hold, and the endpoints of all.
type commit struct {
	id     string
	number int
	groups map[string]conf
	live   map[string]hosts
	fleet  *schema.Fleet
}

// team is a group of nodes, over all commits.
type team struct {
	name   string
	client schema.Client
	after  []string
	drain  time.Duration
}

// lower makes the fleet of a commit.
func (c *commit) lower(teams []*team) {
	c.fleet = &schema.Fleet{Commit: c.id}
	var bodies []*schema.Resource
	for _, name := range slices.Sorted(maps.Keys(c.live)) {
		bodies = append(bodies, made(fmt.Sprintf("endpoints %q %#v", name, c.live[name]), func() proto.Message { return c.live[name].message(name) }))
	}
	c.fleet.Live = schema.SnapshotOf(bodies...)
	for _, t := range teams {
		c.fleet.Groups = append(c.fleet.Groups, schema.Group{
			Name: t.name, Client: t.client, After: t.after, Drain: t.drain,
			Match: schema.Match{ID: t.name + "-*"}, Snapshot: c.groups[t.name].snapshot(t.client),
		})
	}
}

// snapshot encodes a configuration for a kind of client.
func (c conf) snapshot(client schema.Client) schema.Snapshot {
	var rs []*schema.Resource
	add := func(r *schema.Resource) {
		rs = append(rs, r)
		for _, ref := range r.Refs {
			if ref.Type.Live() {
				rs = append(rs, schema.NewLive(ref.Key))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
		add(made(fmt.Sprintf("cluster %q %#v", name, c.clusters[name]), func() proto.Message { return c.clusters[name].message(name) }))
	}
	for _, name := range slices.Sorted(maps.Keys(c.tables)) {
		add(made(fmt.Sprintf("table %q %#v", name, c.tables[name]), func() proto.Message { return tableMessage(name, c.tables[name]) }))
	}
	for _, name := range slices.Sorted(maps.Keys(c.listeners)) {
		add(made(fmt.Sprintf("%v listener %q %#v", client, name, c.listeners[name]), func() proto.Message { return c.listeners[name].message(name, client) }))
	}
	return schema.SnapshotOf(rs...)
}

// resources remembers what was encoded, by its words: quoted, for names have spaces.
var resources sync.Map // string → *schema.Resource

func made(words string, message func() proto.Message) *schema.Resource {
	if r, ok := resources.Load(words); ok {
		return r.(*schema.Resource)
	}
	msg := message()
	r, err := envoy.Resource(msg, envoy.NameOf(msg))
	if err != nil {
		panic(words + ": " + err.Error())
	}
	resources.Store(words, r)
	return r
}

// refused marks what some node refuses: in a field that no other part of the
// model reads.
const refused = "refused by "

func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}
}

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // a message that this package made
	}
	return a
}

func (c cluster) message(name string) proto.Message {
	m := &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(time.Duration(1+c.version) * time.Second)}
	if c.refuser != "" {
		m.AltStatName = refused + c.refuser
	}
	if len(c.members) > 0 {
		m.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		m.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: packed(&aggregatev3.ClusterConfig{Clusters: c.members}),
		}}
		return m
	}
	m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	m.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS()}
	if c.eds != name {
		m.EdsClusterConfig.ServiceName = c.eds
	}
	return m
}

func (h hosts) message(name string) proto.Message {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	if h.empty {
		return m
	}
	m.Endpoints = []*endpointv3.LocalityLbEndpoints{{
		Locality: &corev3.Locality{Zone: "z"}, LoadBalancingWeight: wrapperspb.UInt32(1),
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(8000 + h.version)},
			}}},
		}}}},
	}}
	return m
}

func tableMessage(name string, routes []route) proto.Message {
	m := &routev3.RouteConfiguration{Name: name}
	by := map[string]*routev3.VirtualHost{}
	for _, r := range routes {
		h := by[r.host]
		if h == nil {
			h = &routev3.VirtualHost{Name: "host " + r.host, Domains: []string{r.host}}
			by[r.host] = h
			m.VirtualHosts = append(m.VirtualHosts, h)
		}
		to := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: r.to[0]}}
		if len(r.to) == 2 {
			to.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{
				Clusters: []*routev3.WeightedCluster_ClusterWeight{
					{Name: r.to[0], Weight: wrapperspb.UInt32(uint32(r.weight))},
					{Name: r.to[1], Weight: wrapperspb.UInt32(uint32(100 - r.weight))},
				},
			}}
		}
		h.Routes = append(h.Routes, &routev3.Route{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: r.path}},
			Action: &routev3.Route_Route{Route: to},
		})
	}
	return m
}

func (l listener) message(name string, client schema.Client) proto.Message {
	var filter proto.Message = &hcmv3.HttpConnectionManager{
		StatPrefix: fmt.Sprint("v", l.version),
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: l.table},
		},
	}
	if l.tcp != "" {
		filter = &tcpv3.TcpProxy{StatPrefix: fmt.Sprint("v", l.version), ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: l.tcp}}
	}
	m := &listenerv3.Listener{Name: name}
	if l.refuser != "" {
		m.StatPrefix = refused + l.refuser
	}
	if client == schema.GRPC {
		m.ApiListener = &listenerv3.ApiListener{ApiListener: packed(filter)}
		return m
	}
	m.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name: "proxy", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(filter)},
	}}}}
	return m
}

func (c conf) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
		fmt.Fprintf(&b, "    cluster %s %+v\n", name, c.clusters[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.tables)) {
		for _, r := range c.tables[name] {
			fmt.Fprintf(&b, "    table %s: %s%s -> %v %d\n", name, r.host, r.path, r.to, r.weight)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.listeners)) {
		fmt.Fprintf(&b, "    listener %s %+v\n", name, c.listeners[name])
	}
	return b.String()
}
