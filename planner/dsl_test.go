package planner

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// A snapshot is written one resource, or one route of a table, a line:
//
//	cluster api            one with endpoints of its name, which have one host
//	cluster api@2 eds all  another content; endpoints of another name
//	cluster db dns         one that needs no endpoints
//	cluster both -> a, b   an aggregate
//	endpoints api 2 hosts  or: empty
//	secret cert
//	route web: v=a.com,b.com / -> api 90, new 10
//	listener in@2 -> web   or: -> cluster db, -> scopes
//	listener in port=80 filters=jwt,rbac chain=2 noreuse fetch=0 api ecds=x -> web
//	scope s -> web
//	ext x@2                an extension configuration
//	vhost web/h: * / -> a  of a table that has "route web: vhds"
//	route web: none        a table without routes
//	runtime layer@2
//
// A route's virtual host is called by its first domain unless a name is given.
// Its match is a prefix, "=/exact" or a header ("/ x-a:b"); what follows the
// arrow may also be "status 403", "redirect example.com", "local", "header x"
// or "api mirror b", and before all that "with jwt,rbac:" configures filters. A
// cluster that ends in "tls cert" speaks TLS with that secret.

// world builds resources. Equal lines give one resource.
type world struct {
	made sync.Map // kind and line → *schema.Resource
}

func (w *world) resource(msg proto.Message, err error, words string) *schema.Resource {
	if err != nil {
		panic(words + ": " + err.Error())
	}
	name := envoy.NameOf(msg)
	r, err := envoy.Resource(msg, name)
	if err != nil {
		panic(words + ": " + err.Error())
	}
	return r
}

// once makes the resource of some words if it was not made before.
func (w *world) once(words string, build func() (proto.Message, error)) *schema.Resource {
	if r, ok := w.made.Load(words); ok {
		return r.(*schema.Resource)
	}
	msg, err := build()
	r := w.resource(msg, err, words)
	w.made.Store(words, r)
	return r
}

// snapshot reads a snapshot and the bodies of its live resources.
func (w *world) snapshot(text string) (snap, live schema.Snapshot) {
	var rs, bodies []*schema.Resource
	tables := map[string][]string{}
	var order []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "", "#":
		case "endpoints":
			bodies = append(bodies, w.once(line, func() (proto.Message, error) { return endpointsOf(rest) }))
		case "secret":
			rs = append(rs, schema.NewLive(schema.Key{Type: schema.Secrets, Name: rest}))
		case "route":
			table, route, _ := strings.Cut(rest, ": ")
			if tables[table] == nil {
				order = append(order, table)
			}
			tables[table] = append(tables[table], route)
		default:
			rs = append(rs, w.once(line, func() (proto.Message, error) { return oneOf(kind, rest) }))
		}
	}
	for _, table := range order {
		words := "route " + table + ": " + strings.Join(tables[table], "; ")
		rs = append(rs, w.once(words, func() (proto.Message, error) { return tableOf(table, tables[table]) }))
	}
	given := schema.SnapshotOf(bodies...)
	for _, r := range slices.Concat(rs, bodies) {
		if r.Type == schema.Endpoints {
			rs = append(rs, schema.NewLive(r.Key))
		}
		for _, ref := range r.Refs {
			if ref.Type == schema.Secrets {
				rs = append(rs, schema.NewLive(ref.Key))
			}
			if ref.Type == schema.Endpoints {
				rs = append(rs, schema.NewLive(ref.Key))
				if given.Get(ref.Key) == nil {
					bodies = append(bodies, w.once("endpoints "+ref.Name+" 1 host", func() (proto.Message, error) {
						return endpointsOf(ref.Name + " 1 host")
					}))
				}
			}
		}
	}
	return schema.SnapshotOf(rs...), schema.SnapshotOf(bodies...)
}

func oneOf(kind, rest string) (proto.Message, error) {
	switch kind {
	case "cluster":
		return clusterOf(rest)
	case "listener":
		return listenerOf(rest)
	case "ext":
		name, v, err := at(rest)
		cfg, err2 := anypb.New(&rbacv3.RBAC{RulesStatPrefix: fmt.Sprint("v", v)})
		return &corev3.TypedExtensionConfig{Name: name, TypedConfig: cfg}, errors.Join(err, err2)
	case "runtime":
		name, v, err := at(rest)
		layer, err2 := structpb.NewStruct(map[string]any{"v": float64(v)})
		return &runtimev3.Runtime{Name: name, Layer: layer}, errors.Join(err, err2)
	case "vhost":
		name, route, _ := strings.Cut(rest, ": ")
		rc, err := tableOf("", []string{route})
		if err != nil {
			return nil, err
		}
		h := rc.(*routev3.RouteConfiguration).VirtualHosts[0]
		h.Name = name
		return h, nil
	case "scope":
		name, table, _ := strings.Cut(rest, " -> ")
		return &routev3.ScopedRouteConfiguration{Name: name, RouteConfigurationName: table, Key: &routev3.ScopedRouteConfiguration_Key{
			Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
				Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: name},
			}},
		}}, nil
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

// at parts "name@2" into the name and the number, 1 if there is none.
func at(words string) (string, int64, error) {
	name, n, ok := strings.Cut(words, "@")
	if !ok {
		return name, 1, nil
	}
	v, err := strconv.ParseInt(n, 10, 32)
	return name, v, err
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}
}

func clusterOf(rest string) (proto.Message, error) {
	words, members, aggregate := strings.Cut(rest, " -> ")
	words, cert, tls := strings.Cut(words, " tls ")
	f := strings.Fields(words)
	name, v, err := at(f[0])
	c := &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(time.Duration(v) * time.Second)}
	switch {
	case aggregate:
		cfg, err2 := anypb.New(&aggregatev3.ClusterConfig{Clusters: strings.Split(members, ", ")})
		err = errors.Join(err, err2)
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: cfg,
		}}
	case len(f) > 1 && f[1] == "dns":
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	default:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()}
		if len(f) > 2 {
			c.EdsClusterConfig.ServiceName = f[2]
		}
	}
	if tls {
		cfg, err2 := anypb.New(&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: cert, SdsConfig: ads()}},
		}})
		err = errors.Join(err, err2)
		c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: cfg}}
	}
	return c, err
}

func endpointsOf(rest string) (proto.Message, error) {
	f := strings.Fields(rest)
	a := &endpointv3.ClusterLoadAssignment{ClusterName: f[0]}
	if f[1] == "empty" {
		return a, nil
	}
	n, err := strconv.Atoi(f[1])
	l := &endpointv3.LocalityLbEndpoints{}
	for i := range n {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: address(8000 + i)},
		}})
	}
	a.Endpoints = []*endpointv3.LocalityLbEndpoints{l}
	return a, err
}

func address(port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

func listenerOf(rest string) (proto.Message, error) {
	words, to, _ := strings.Cut(rest, " -> ")
	opts := strings.Fields(words)
	name, v, err := at(opts[0])
	l := &listenerv3.Listener{Name: name, StatPrefix: fmt.Sprint("v", v)}
	h := &hcmv3.HttpConnectionManager{StatPrefix: "http"}
	var filter proto.Message = h
	source := ads()
	switch cluster, tcp := strings.CutPrefix(to, "cluster "); {
	case tcp:
		filter = &tcpv3.TcpProxy{StatPrefix: "tcp", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}}
	case to == "scopes":
		h.RouteSpecifier = &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
			Name: "s", RdsConfigSource: source,
			ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: source}},
		}}
	default:
		h.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: source, RouteConfigName: to}}
	}
	api := false
	for _, opt := range opts[1:] {
		key, val, _ := strings.Cut(opt, "=")
		switch key {
		case "port":
			port, err2 := strconv.Atoi(val)
			err = errors.Join(err, err2)
			l.Address = address(port)
		case "chain":
			h.StatPrefix = "http" + val
		case "noreuse":
			l.EnableReusePort = wrapperspb.Bool(false)
		case "fetch":
			d, err2 := time.ParseDuration(val)
			err = errors.Join(err, err2)
			source.InitialFetchTimeout = durationpb.New(d)
		case "filters":
			err = errors.Join(err, enforce(h, strings.Split(val, ",")))
		case "ecds":
			h.HttpFilters = append(h.HttpFilters, &hcmv3.HttpFilter{Name: val, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
				ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads(), TypeUrls: []string{"t"}},
			}})
		case "api":
			api = true
		default:
			err = errors.Join(err, fmt.Errorf("unknown option %q", opt))
		}
	}
	cfg, err2 := anypb.New(filter)
	if api {
		l.ApiListener = &listenerv3.ApiListener{ApiListener: cfg}
		return l, errors.Join(err, err2)
	}
	l.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name: "proxy", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: cfg},
	}}}}
	return l, errors.Join(err, err2)
}

// enforce adds filters that judge requests.
func enforce(h *hcmv3.HttpConnectionManager, names []string) error {
	cfg, err := anypb.New(&rbacv3.RBAC{})
	for _, n := range names {
		h.HttpFilters = append(h.HttpFilters, &hcmv3.HttpFilter{Name: n, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: cfg}})
	}
	return err
}

func tableOf(name string, routes []string) (proto.Message, error) {
	rc := &routev3.RouteConfiguration{Name: name}
	hosts := map[string]*routev3.VirtualHost{}
	for _, line := range routes {
		if line == "none" {
			continue
		}
		if line == "vhds" {
			rc.Vhds = &routev3.Vhds{ConfigSource: ads()}
			continue
		}
		match, action, ok := strings.Cut(line, " -> ")
		f := strings.Fields(match)
		if !ok || len(f) < 2 {
			return nil, fmt.Errorf("no route: %q", line)
		}
		vh, domains, named := strings.Cut(f[0], "=")
		if !named {
			domains, vh = vh, strings.Split(vh, ",")[0]
		}
		h := hosts[vh]
		if h == nil {
			h = &routev3.VirtualHost{Name: vh, Domains: strings.Split(domains, ",")}
			hosts[vh] = h
			rc.VirtualHosts = append(rc.VirtualHosts, h)
		}
		r := &routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: f[1]}}}
		if path, ok := strings.CutPrefix(f[1], "="); ok {
			r.Match.PathSpecifier = &routev3.RouteMatch_Path{Path: path}
		}
		for _, header := range f[2:] {
			k, v, _ := strings.Cut(header, ":")
			r.Match.Headers = append(r.Match.Headers, &routev3.HeaderMatcher{
				Name: k, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
					StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: v}},
				},
			})
		}
		if err := act(r, action); err != nil {
			return nil, err
		}
		h.Routes = append(h.Routes, r)
	}
	return rc, nil
}

func act(r *routev3.Route, action string) error {
	if filters, rest, ok := strings.Cut(strings.TrimPrefix(action, "with "), ": "); ok {
		r.TypedPerFilterConfig = map[string]*anypb.Any{}
		for _, f := range strings.Split(filters, ",") {
			cfg, err := anypb.New(&rbacv3.RBACPerRoute{})
			if err != nil {
				return err
			}
			r.TypedPerFilterConfig[f] = cfg
		}
		action = rest
	}
	f := strings.Fields(action)
	a := &routev3.RouteAction{}
	switch f[0] {
	case "status":
		n, err := strconv.ParseUint(f[1], 10, 32)
		r.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: uint32(n)}}
		return err
	case "redirect":
		r.Action = &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{HostRedirect: f[1]}}
		return nil
	case "local":
		r.Action = &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}
		return nil
	case "header":
		a.ClusterSpecifier = &routev3.RouteAction_ClusterHeader{ClusterHeader: f[1]}
	default:
		action, mirror, mirrored := strings.Cut(action, " mirror ")
		if mirrored {
			a.RequestMirrorPolicies = []*routev3.RouteAction_RequestMirrorPolicy{{Cluster: mirror}}
		}
		if err := split(a, action); err != nil {
			return err
		}
	}
	r.Action = &routev3.Route_Route{Route: a}
	return nil
}

func split(a *routev3.RouteAction, action string) error {
	if !strings.Contains(action, " ") {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: action}
		return nil
	}
	w := &routev3.WeightedCluster{}
	for part := range strings.SplitSeq(action, ", ") {
		name, weight, _ := strings.Cut(part, " ")
		n, err := strconv.ParseUint(weight, 10, 32)
		if err != nil {
			return err
		}
		w.Clusters = append(w.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: name, Weight: wrapperspb.UInt32(uint32(n))})
	}
	a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: w}
	return nil
}
