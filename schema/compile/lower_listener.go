package compile

import (
	"slices"
	"strings"

	alogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	proxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/schema"
)

const (
	hcmName       = "envoy.filters.network.http_connection_manager"
	tcpName       = "envoy.filters.network.tcp_proxy"
	routerName    = "envoy.filters.http.router"
	corsName      = "envoy.filters.http.cors"
	fileLogName   = "envoy.access_loggers.file"
	inspectorName = "envoy.filters.listener.tls_inspector"
	proxyName     = "envoy.filters.listener.proxy_protocol"
	serverName    = "grpc/server?xds.resource.listening_address=" // gRPC's default template (A36)
)

// wireName is the name of the listener's resource.
func (l *listener) wireName(name string) string {
	switch {
	case l.Target != "":
		return l.Target
	case l.Serve != "":
		return serverName + l.Serve
	}
	return name
}

// hasTable reports whether the listener has a route table, which has the
// listener's own name.
func (l *listener) hasTable() bool { return l.Serve == "" && l.Protocol != "tcp" }

// listener makes the resource and its route table, if it has one.
func (lo *lowering) listener(name string, l *listener) {
	wire := l.wireName(name)
	msg := &listenerv3.Listener{Name: wire}
	origins := []schema.Origin{{Kind: "listener", Name: name, Pos: l.At.pos}}
	if l.hasTable() {
		lo.table(name, l, origins[0])
	}
	switch {
	case l.Target != "":
		msg.ApiListener = &listenerv3.ApiListener{ApiListener: pack(connections(name, tableNamed(name)))}
	case l.Serve != "":
		msg.Address = address(l.Serve)
		msg.FilterChains = chain(connections(name, everything()))
	default:
		msg.Address = address(l.Bind)
		if l.ProxyProtocol {
			msg.ListenerFilters = []*listenerv3.ListenerFilter{listenerFilter(proxyName, proxyProtocol)}
		}
		if l.Protocol == "tcp" {
			origins = append(origins, lo.tcp(name, l, msg)...)
		} else {
			msg.FilterChains = chain(lo.http(name, l))
		}
		for _, c := range msg.FilterChains {
			c.TransportSocket = l.TLS.lower(l.Protocol)
		}
	}
	if r := lo.patched(schema.Key{Type: schema.Listeners, Name: name}, msg, wire, l.At.pos); r != nil {
		lo.listeners[name] = r
		lo.origin(r.Key, origins...)
	}
}

// http is the connection manager of a bound port.
func (lo *lowering) http(name string, l *listener) *hcmv3.HttpConnectionManager {
	hcm := connections(name, tableNamed(name))
	switch l.Protocol {
	case "http1":
		hcm.CodecType = hcmv3.HttpConnectionManager_HTTP1
	case "http2":
		hcm.CodecType = hcmv3.HttpConnectionManager_HTTP2
	}
	if l.Edge {
		hcm.UseRemoteAddress = wrapperspb.Bool(true)
	}
	hcm.XffNumTrustedHops = l.TrustedHops
	if l.At.get("idle_timeout") != nil {
		hcm.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(l.IdleTimeout)}
	}
	hcm.AccessLog = l.AccessLog.lower()
	if lo.anyRule(name, func(r *rule) bool { return r.CORS != nil }) {
		cors := &hcmv3.HttpFilter{Name: corsName, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: corsFilter}}
		hcm.HttpFilters = slices.Insert(hcm.HttpFilters, 0, cors)
	}
	return hcm
}

// anyRule reports whether some rule on a listener is as wanted.
func (m *model) anyRule(listener string, is func(*rule) bool) bool {
	for _, name := range m.routesOf(listener) {
		if r := m.routes[name]; slices.ContainsFunc(r.Rules, func(u rule) bool { return is(&u) }) {
			return true
		}
	}
	return false
}

// tcp makes a filter chain for each entry that names the listener: one for the
// names that it asks for, one for all others.
func (lo *lowering) tcp(name string, l *listener, msg *listenerv3.Listener) (origins []schema.Origin) {
	for _, entry := range lo.routesOf(name) {
		r := lo.routes[entry]
		if r.TCP == nil {
			continue // said before
		}
		origins = append(origins, schema.Origin{Kind: "route", Name: entry, Field: "tcp", Pos: r.TCP.At.pos})
		var names []string
		rest := false
		for _, h := range r.Hosts {
			if h == "*" {
				rest = true
			} else {
				names = append(names, strings.ToLower(h))
			}
		}
		proxy := &listenerv3.Filter{Name: tcpName, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(r.TCP.lower(name, l))}}
		if len(names) > 0 {
			slices.Sort(names)
			msg.FilterChains = append(msg.FilterChains, &listenerv3.FilterChain{
				Name: entry, Filters: []*listenerv3.Filter{proxy},
				FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: slices.Compact(names)},
			})
		}
		if rest {
			c := &listenerv3.FilterChain{Name: entry, Filters: []*listenerv3.Filter{proxy}}
			if len(names) > 0 {
				c.Name = entry + " *"
			}
			msg.FilterChains = append(msg.FilterChains, c)
		}
	}
	if slices.ContainsFunc(msg.FilterChains, func(c *listenerv3.FilterChain) bool { return c.FilterChainMatch != nil }) {
		msg.ListenerFilters = append(msg.ListenerFilters, listenerFilter(inspectorName, inspector))
	}
	return origins
}

func (r *tcpRule) lower(name string, l *listener) *tcpv3.TcpProxy {
	p := &tcpv3.TcpProxy{StatPrefix: name, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: r.Service}, AccessLog: l.AccessLog.lower()}
	if r.Split != nil {
		split := &tcpv3.TcpProxy_WeightedCluster{}
		for service, weight := range sorted(r.Split) {
			if weight > 0 { // Envoy refuses a weight of 0 here
				split.Clusters = append(split.Clusters, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: service, Weight: weight})
			}
		}
		p.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: split}
	}
	switch {
	case r.At.get("idle_timeout") != nil:
		p.IdleTimeout = durationpb.New(r.IdleTimeout)
	case l.At.get("idle_timeout") != nil:
		p.IdleTimeout = durationpb.New(l.IdleTimeout)
	}
	if r.ConnectAttempts > 0 {
		p.MaxConnectAttempts = wrapperspb.UInt32(r.ConnectAttempts)
	}
	return p
}

func (a *accessLog) lower() []*alogv3.AccessLog {
	if a == nil {
		return nil
	}
	file := &filelogv3.FileAccessLog{Path: a.Path}
	switch {
	case a.Format != "":
		file.AccessLogFormat = logFormat(&corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: strings.TrimSuffix(a.Format, "\n") + "\n"}},
		}})
	case a.JSON != nil:
		fields := map[string]*structpb.Value{}
		for k, v := range a.JSON {
			fields[k] = structpb.NewStringValue(v)
		}
		file.AccessLogFormat = logFormat(&corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}},
		})
	}
	return []*alogv3.AccessLog{{Name: fileLogName, ConfigType: &alogv3.AccessLog_TypedConfig{TypedConfig: pack(file)}}}
}

func logFormat(f *corev3.SubstitutionFormatString) *filelogv3.FileAccessLog_LogFormat {
	return &filelogv3.FileAccessLog_LogFormat{LogFormat: f}
}

// connections makes an HTTP connection manager without a source of routes.
func connections(name string, routes func(*hcmv3.HttpConnectionManager)) *hcmv3.HttpConnectionManager {
	hcm := &hcmv3.HttpConnectionManager{
		StatPrefix: name,
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       routerName,
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
	}
	routes(hcm)
	return hcm
}

var (
	router        = pack(&routerv3.Router{})
	corsFilter    = pack(&corsv3.Cors{})
	inspector     = pack(&inspectorv3.TlsInspector{})
	proxyProtocol = pack(&proxyv3.ProxyProtocol{})
)

func listenerFilter(name string, config *anypb.Any) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config}}
}

func tableNamed(name string) func(*hcmv3.HttpConnectionManager) {
	return func(hcm *hcmv3.HttpConnectionManager) {
		hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: name},
		}
	}
}

// everything is the route table of a gRPC server: all requests are its own.
func everything() func(*hcmv3.HttpConnectionManager) {
	return func(hcm *hcmv3.HttpConnectionManager) {
		hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: "server",
			VirtualHosts: []*routev3.VirtualHost{{
				Name:    "server",
				Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
					Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
				}},
			}},
		}}
	}
}

func chain(hcm *hcmv3.HttpConnectionManager) []*listenerv3.FilterChain {
	return []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{
			Name:       hcmName,
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(hcm)},
		}},
	}}
}
