package compile

//lint:file-ignore SA1019 dns_refresh_rate has a successor that gRPC and older Envoys do not know.

import (
	"fmt"
	"sync/atomic"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	upstreamsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/schema"
)

const (
	httpOptions   = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	aggregateName = "envoy.clusters.aggregate"
	lbMetadata    = "envoy.lb"
)

var lbPolicies = map[string]clusterv3.Cluster_LbPolicy{
	"round_robin":   clusterv3.Cluster_ROUND_ROBIN,
	"least_request": clusterv3.Cluster_LEAST_REQUEST,
	"ring_hash":     clusterv3.Cluster_RING_HASH,
	"maglev":        clusterv3.Cluster_MAGLEV,
	"random":        clusterv3.Cluster_RANDOM,
}

var dnsFamilies = map[string]clusterv3.Cluster_DnsLookupFamily{
	"auto": clusterv3.Cluster_AUTO, "v4": clusterv3.Cluster_V4_ONLY, "v6": clusterv3.Cluster_V6_ONLY,
	"v4_preferred": clusterv3.Cluster_V4_PREFERRED, "all": clusterv3.Cluster_ALL,
}

// hasEndpoints reports whether the service's endpoints are a resource of their
// own.
func (s *service) hasEndpoints() bool { return s.DNS == "" && s.Failover == nil }

// service makes what does not depend on the client: the endpoints, which are
// live. Its cluster is made for those kinds of client that some route leads from.
func (lo *lowering) service(name string, s *service) {
	lo.origin(schema.Key{Type: schema.Clusters, Name: lo.wireOf(name)}, schema.Origin{Kind: "service", Name: name, Pos: s.At.pos})
	if s.hasEndpoints() {
		k := schema.Key{Type: schema.Endpoints, Name: name}
		part := schema.Origin{Kind: "service", Name: name, Field: "endpoints", Pos: s.At.at("endpoints")}
		lo.share(lo.once(&s.endpoints, k, name, s.At.pos, func() proto.Message { return s.assignment(name) }), part)
	}
}

// clusterOf is the service's cluster for a kind of client, made once, or nil.
func (lo *lowering) clusterOf(name string, client schema.Client) *schema.Resource {
	if r, ok := lo.clusters[client][name]; ok {
		return r
	}
	s := lo.services[name]
	if s == nil {
		return nil
	}
	k := schema.Key{Type: schema.Clusters, Name: name}
	made := &s.clusters[client]
	if s.Failover != nil && lo.safe(name) {
		made = new(atomic.Pointer[schema.Resource]) // the members' names are part of it
	}
	wire := lo.wireOf(name)
	r := lo.once(made, k, wire, s.At.pos, func() proto.Message {
		c := s.cluster(name, client)
		if wire != name {
			c.Name = wire
			if client == schema.Envoy {
				c.AltStatName = name
			}
		}
		return c
	})
	lo.clusters[client][name] = r
	return r
}

// once makes a resource, or takes the one that was made for another tree.
func (lo *lowering) once(made *atomic.Pointer[schema.Resource], k schema.Key, wire string, at schema.Pos, msg func() proto.Message) *schema.Resource {
	if lo.patches[k.Type][k.Name] != nil {
		return lo.patched(k, msg(), wire, at)
	}
	if r := made.Load(); r != nil {
		return r
	}
	before := len(lo.found)
	r := lo.resource(msg(), wire, at)
	if len(lo.found) == before {
		made.Store(r)
	}
	return r
}

// cluster lowers the service for one kind of client.
func (s *service) cluster(name string, client schema.Client) *clusterv3.Cluster {
	c := &clusterv3.Cluster{Name: name, LbPolicy: lbPolicies[s.LB]}
	switch {
	case s.Failover != nil:
		if client == schema.Envoy {
			c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		} // gRPC refuses that, and balances in each member by the policy of the whole (A37)
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: aggregateName, TypedConfig: pack(&aggregatev3.ClusterConfig{Clusters: s.Failover}),
		}}
		c.ConnectTimeout = duration(s.ConnectTimeout)
		return c // all else is its members' own
	case s.DNS != "":
		s.resolved(c, client)
	default:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: name}
	}
	s.LBSettings.lower(s.LB, c)
	if s.Outliers != nil {
		c.OutlierDetection = s.Outliers.lower()
	}
	if s.Breakers != nil {
		c.CircuitBreakers = s.Breakers.lower()
	}
	if client == schema.GRPC {
		return c // which speaks HTTP/2 anyway and checks no health
	}
	c.ConnectTimeout = duration(s.ConnectTimeout)
	if o := s.options(); o != nil {
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: o}
	}
	if s.Health != nil {
		c.HealthChecks = []*corev3.HealthCheck{s.Health.lower(s.http2())}
	}
	if s.TLS != nil {
		c.TransportSocket = s.TLS.lower(s)
	}
	return c
}

// resolved makes a cluster whose endpoints are looked up.
func (s *service) resolved(c *clusterv3.Cluster, client schema.Client) {
	kind := clusterv3.Cluster_STRICT_DNS
	if s.DNSType == "logical" || client == schema.GRPC {
		kind = clusterv3.Cluster_LOGICAL_DNS // the only one that gRPC takes (rule G7)
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: c.Name,
		Endpoints:   []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{hostAt(s.DNS)}}},
	}
	if client == schema.Envoy {
		c.DnsRefreshRate = duration(s.DNSRefresh)
		c.DnsLookupFamily = dnsFamilies[s.DNSFamily]
	}
}

func (s *service) http2() bool { return s.Protocol == "http2" || s.Protocol == "grpc" }

// options are those of HTTP to the endpoints, or nil if all are Envoy's defaults.
func (s *service) options() *anypb.Any {
	idle := s.At.get("idle_timeout") != nil
	if !s.http2() && !idle {
		return nil
	}
	config := &upstreamsv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &upstreamsv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
		},
	}
	if s.http2() {
		config.ProtocolConfig = &upstreamsv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		}
	}
	o := &upstreamsv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstreamsv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: config},
	}
	if idle {
		o.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(s.IdleTimeout)}
	}
	return pack(o)
}

// assignment puts the endpoints into localities, one for each priority and place,
// in that order. A locality weighs what its endpoints do together: gRPC ignores
// one without a weight.
func (s *service) assignment(name string) *endpointv3.ClusterLoadAssignment {
	places := map[string]*endpointv3.LocalityLbEndpoints{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		key := fmt.Sprintf("%03d/%q/%q/%q", e.Priority, e.Region, e.Zone, e.SubZone)
		l := places[key]
		if l == nil {
			l = &endpointv3.LocalityLbEndpoints{
				Locality:            &corev3.Locality{Region: e.Region, Zone: e.Zone, SubZone: e.SubZone},
				LoadBalancingWeight: wrapperspb.UInt32(0),
				Priority:            e.Priority,
			}
			places[key] = l
		}
		l.LbEndpoints = append(l.LbEndpoints, e.lower())
		l.LoadBalancingWeight.Value += max(e.Weight, 1)
	}
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for _, l := range sorted(places) {
		cla.Endpoints = append(cla.Endpoints, l)
	}
	return cla
}

var healthStatus = map[string]corev3.HealthStatus{
	"healthy": corev3.HealthStatus_HEALTHY, "unhealthy": corev3.HealthStatus_UNHEALTHY,
	"draining": corev3.HealthStatus_DRAINING, "degraded": corev3.HealthStatus_DEGRADED,
}

func (e *endpoint) lower() *endpointv3.LbEndpoint {
	out := hostAt(e.Address)
	out.GetEndpoint().Hostname = e.Hostname
	out.HealthStatus = healthStatus[e.Health]
	if e.Weight > 0 {
		out.LoadBalancingWeight = wrapperspb.UInt32(e.Weight)
	}
	if len(e.Metadata) > 0 {
		fields := map[string]*structpb.Value{}
		for k, v := range e.Metadata {
			fields[k] = structpb.NewStringValue(v)
		}
		out.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{lbMetadata: {Fields: fields}}}
	}
	return out
}

func hostAt(hostport string) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: address(hostport)},
	}}
}

// lower makes an active health check. The timeout and the thresholds are
// Envoy's own examples': it has no defaults for them.
func (h *health) lower(http2 bool) *corev3.HealthCheck {
	or := func(v, otherwise uint32) *wrapperspb.UInt32Value {
		if v == 0 {
			v = otherwise
		}
		return wrapperspb.UInt32(v)
	}
	interval, timeout := h.Interval, h.Timeout
	if interval == 0 {
		interval = 10 * time.Second
	}
	if timeout == 0 {
		timeout = min(interval, 2*time.Second)
	}
	hc := &corev3.HealthCheck{
		Interval:           durationpb.New(interval),
		Timeout:            durationpb.New(timeout),
		UnhealthyThreshold: or(h.Unhealthy, 3),
		HealthyThreshold:   or(h.Healthy, 2),
	}
	switch {
	case h.HTTP != "":
		check := &corev3.HealthCheck_HttpHealthCheck{Path: h.HTTP, Host: h.Host}
		if http2 {
			check.CodecClientType = typev3.CodecClientType_HTTP2
		}
		for _, status := range h.Statuses {
			check.ExpectedStatuses = append(check.ExpectedStatuses, &typev3.Int64Range{Start: int64(status), End: int64(status) + 1})
		}
		hc.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: check}
	case h.GRPC:
		hc.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{
			ServiceName: h.Service, Authority: h.Host,
		}}
	default:
		hc.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}}
	}
	return hc
}
