package fleet

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// kind is a type of resource that the clients ask for, in the order in which a
// server makes them.
type kind int

const (
	clusters kind = iota
	endpoints
	listeners
	routes
	kinds
)

const prefix = "type.googleapis.com/"

var urls = [kinds]string{
	prefix + "envoy.config.cluster.v3.Cluster",
	prefix + "envoy.config.endpoint.v3.ClusterLoadAssignment",
	prefix + "envoy.config.listener.v3.Listener",
	prefix + "envoy.config.route.v3.RouteConfiguration",
}

// whole reports whether a state-of-the-world response of the kind is its full
// state, and whether asking for nothing asks for all.
func (k kind) whole() bool { return k == clusters || k == listeners }

func (k kind) String() string { return [kinds]string{"CDS", "EDS", "LDS", "RDS"}[k] }

func kindOf(url string) (kind, bool) {
	i := slices.Index(urls[:], url)
	return kind(i), i >= 0
}

// content is what the fleet reads of a resource. Equal resources are one pointer.
type content struct {
	name     string
	eds      string   // of a cluster: the endpoints that it waits for
	clusters []string // where it sends requests, sorted
	tables   []string // of a listener: the route tables that it takes
}

// maxKnown bounds a library. What is forgotten is read again, as something else:
// a resend may then be overlooked, and nothing is found that is not there.
const maxKnown = 1 << 18

// library reads each distinct resource once for all clients.
type library struct {
	mu    sync.RWMutex
	known [kinds]map[string]*content
	of    [kinds]map[string]int // how many there are of a name
}

func (l *library) read(k kind, a *anypb.Any) (*content, error) {
	if a.GetTypeUrl() != urls[k] {
		return nil, fmt.Errorf("a resource of type %q in a response of %s", a.GetTypeUrl(), k)
	}
	l.mu.RLock()
	c := l.known[k][string(a.Value)]
	l.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := read(k, a.Value)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.known[k][string(a.Value)]; first != nil {
		return first, nil
	}
	if l.known[k] == nil || len(l.known[k]) >= maxKnown {
		l.known[k] = map[string]*content{}
	}
	if l.of[k] == nil {
		l.of[k] = map[string]int{}
	}
	l.known[k][string(a.Value)] = c
	l.of[k][c.name]++
	return c, nil
}

// varies reports whether more than one resource of a name was seen.
func (l *library) varies(k kind, name string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.of[k][name] > 1
}

func read(k kind, b []byte) (*content, error) {
	switch k {
	case clusters:
		var m clusterv3.Cluster
		if err := proto.Unmarshal(b, &m); err != nil {
			return nil, err
		}
		return readCluster(&m)
	case endpoints:
		var m endpointv3.ClusterLoadAssignment
		err := proto.Unmarshal(b, &m)
		return &content{name: m.ClusterName}, err
	case listeners:
		var m listenerv3.Listener
		if err := proto.Unmarshal(b, &m); err != nil {
			return nil, err
		}
		return readListener(&m)
	default:
		var m routev3.RouteConfiguration
		err := proto.Unmarshal(b, &m)
		return &content{name: m.Name, clusters: targets(&m)}, err
	}
}

func readCluster(m *clusterv3.Cluster) (*content, error) {
	c := &content{name: m.Name}
	if m.GetType() == clusterv3.Cluster_EDS {
		c.eds = m.GetEdsClusterConfig().GetServiceName()
		if c.eds == "" {
			c.eds = m.Name
		}
	}
	var agg aggregatev3.ClusterConfig
	if any := m.GetClusterType().GetTypedConfig(); any.MessageIs(&agg) {
		if err := any.UnmarshalTo(&agg); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", m.Name, err)
		}
		c.clusters = agg.Clusters
	}
	return c, nil
}

func readListener(m *listenerv3.Listener) (*content, error) {
	c := &content{name: m.Name}
	to := map[string]bool{}
	configs := []*anypb.Any{m.GetApiListener().GetApiListener()}
	for _, chain := range append(slices.Clone(m.FilterChains), m.DefaultFilterChain) {
		for _, f := range chain.GetFilters() {
			configs = append(configs, f.GetTypedConfig())
		}
	}
	for _, any := range configs {
		var hcm hcmv3.HttpConnectionManager
		var tcp tcpv3.TcpProxy
		switch {
		case any.MessageIs(&hcm):
			if err := any.UnmarshalTo(&hcm); err != nil {
				return nil, fmt.Errorf("listener %s: %w", m.Name, err)
			}
			if table := hcm.GetRds().GetRouteConfigName(); table != "" {
				c.tables = append(c.tables, table)
			}
			for _, t := range targets(hcm.GetRouteConfig()) {
				to[t] = true
			}
		case any.MessageIs(&tcp):
			if err := any.UnmarshalTo(&tcp); err != nil {
				return nil, fmt.Errorf("listener %s: %w", m.Name, err)
			}
			to[tcp.GetCluster()] = true
			for _, w := range tcp.GetWeightedClusters().GetClusters() {
				to[w.GetName()] = true
			}
		}
	}
	delete(to, "")
	c.clusters = slices.Sorted(maps.Keys(to))
	return c, nil
}

// targets lists the clusters that a route table names.
func targets(m *routev3.RouteConfiguration) []string {
	to := map[string]bool{}
	for _, host := range m.GetVirtualHosts() {
		for _, r := range host.GetRoutes() {
			a := r.GetRoute()
			to[a.GetCluster()] = true
			for _, w := range a.GetWeightedClusters().GetClusters() {
				to[w.GetName()] = true
			}
			for _, p := range slices.Concat(host.GetRequestMirrorPolicies(), a.GetRequestMirrorPolicies()) {
				to[p.GetCluster()] = true
			}
		}
	}
	delete(to, "")
	return slices.Sorted(maps.Keys(to))
}
