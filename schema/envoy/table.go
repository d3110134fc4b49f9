package envoy

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-xds/sluice/schema"
)

// meaning is what one field of the API says about references (rule P2).
type meaning struct {
	does action
	to   schema.Type
	edge schema.Edge
	// name is the sibling that holds the names, for source. If it is empty the
	// enclosing cluster's name counts, as it does for endpoints.
	name protoreflect.Name
	// reason is why nothing is referred to, or what only a running proxy knows.
	reason string
}

type action uint8

const (
	// nothing: the field looks like a reference and is none, or what it holds
	// is found by walking into it.
	nothing action = iota
	// names: the field's strings name resources.
	names
	// source: the field says where a resource comes from that its sibling names.
	source
	// doubt: once the field is set, only a running proxy knows what is referred to.
	doubt
)

func cluster(e schema.Edge) meaning  { return meaning{does: names, to: schema.Clusters, edge: e} }
func none(reason string) meaning     { return meaning{reason: reason} }
func doubtful(reason string) meaning { return meaning{does: doubt, reason: reason} }
func from(t schema.Type, name protoreflect.Name) meaning {
	return meaning{does: source, to: t, edge: schema.Child, name: name}
}

var (
	traffic = cluster(schema.Traffic)
	calls   = cluster(schema.Filter)
	// inside marks a message that is found by walking into it: what it refers
	// to is said by its own fields.
	inside = none("walked into")
)

// outside are packages whose messages no xDS resource holds: their fields need
// no entry.
var outside = map[string]string{
	"envoy.admin.":              "answers of the admin endpoint",
	"envoy.config.bootstrap.":   "a node's own file",
	"envoy.data.accesslog.":     "what a proxy logs",
	"envoy.data.cluster.":       "what a proxy logs",
	"envoy.data.core.":          "what a proxy logs",
	"envoy.service.load_stats.": "a protocol",
	"envoy.service.health.":     "a protocol",
	"envoy.service.status.":     "a protocol",
}

// opaque are messages whose presence means that only a running proxy knows
// which clusters are used.
var opaque = map[protoreflect.FullName]string{
	"xds.type.v3.TypedStruct":  "a TypedStruct is read by the proxy alone",
	"udpa.type.v1.TypedStruct": "a TypedStruct is read by the proxy alone",

	"envoy.extensions.filters.http.lua.v3.Lua":                    "a Lua script may call any cluster",
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute":            "a Lua script may call any cluster",
	"envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig": "a Lua script chooses the cluster",
	"envoy.extensions.wasm.v3.PluginConfig":                       "a Wasm plugin may call any cluster",
	"envoy.extensions.dynamic_modules.v3.DynamicModuleConfig":     "a dynamic module may call any cluster",
	"envoy.extensions.filters.network.sni_cluster.v3.SniCluster":  "the SNI chooses the cluster",
	"envoy.extensions.filters.http.set_filter_state.v3.Config":    "filter state may choose the cluster",
	"envoy.extensions.filters.network.set_filter_state.v3.Config": "filter state may choose the cluster",
}

// table says of each field of the API that could refer to a resource what it
// means. A test holds it against the descriptors of all linked messages, so that
// no new field slips by.
var table = map[protoreflect.FullName]meaning{
	// Sources.
	"envoy.config.core.v3.ConfigSource.ads":                    none("the answer of isOurs"),
	"envoy.config.core.v3.ConfigSource.self":                   none("the answer of isOurs"),
	"envoy.config.core.v3.ConfigSource.api_config_source":      inside,
	"envoy.config.core.v3.ConfigSource.path_config_source":     none("a file on the node"),
	"envoy.config.core.v3.ApiConfigSource.cluster_names":       calls,
	"envoy.config.core.v3.ApiConfigSource.grpc_services":       inside,
	"envoy.config.core.v3.ExtensionConfigSource.config_source": inside,

	// Calls.
	"envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name":                                     calls,
	"envoy.config.core.v3.HttpUri.cluster":                                                        calls,
	"envoy.config.core.v3.HttpService.http_uri":                                                   inside,
	"envoy.config.core.v3.RemoteDataSource.http_uri":                                              inside,
	"envoy.config.core.v3.EventServiceConfig.grpc_service":                                        inside,
	"envoy.config.metrics.v3.MetricsServiceConfig.grpc_service":                                   inside,
	"envoy.config.metrics.v3.StatsdSink.tcp_cluster_name":                                         calls,
	"envoy.config.ratelimit.v3.RateLimitServiceConfig.grpc_service":                               inside,
	"envoy.config.tap.v3.StreamingGrpcSink.grpc_service":                                          inside,
	"envoy.config.trace.v3.OpenTelemetryConfig.grpc_service":                                      inside,
	"envoy.config.trace.v3.OpenTelemetryConfig.http_service":                                      inside,
	"envoy.config.trace.v3.SkyWalkingConfig.grpc_service":                                         inside,
	"envoy.config.trace.v3.TraceServiceConfig.grpc_service":                                       inside,
	"envoy.config.trace.v3.ZipkinConfig.collector_service":                                        inside,
	"envoy.config.trace.v3.ZipkinConfig.collector_cluster":                                        calls,
	"envoy.config.trace.v3.DatadogConfig.collector_cluster":                                       calls,
	"envoy.config.trace.v3.LightstepConfig.collector_cluster":                                     calls,
	"envoy.extensions.tracers.fluentd.v3.FluentdConfig.cluster":                                   calls,
	"envoy.extensions.tracers.opentelemetry.samplers.v3.DynatraceSamplerConfig.http_service":      inside,
	"envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig.cluster":                   calls,
	"envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig.grpc_service":              inside,
	"envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig.grpc_service": inside,
	"envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig.http_service": inside,
	"envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig.grpc_service":                       inside,
	"envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig.http_service":                       inside,
	"envoy.extensions.filters.common.jwks.v3.RemoteJwks.http_uri":                                 inside,
	"envoy.extensions.filters.http.ext_authz.v3.CheckSettings.grpc_service":                       inside,
	"envoy.extensions.filters.http.ext_authz.v3.CheckSettings.http_service":                       inside,
	"envoy.extensions.filters.http.ext_authz.v3.ExtAuthz.grpc_service":                            inside,
	"envoy.extensions.filters.http.ext_authz.v3.ExtAuthz.http_service":                            inside,
	"envoy.extensions.filters.http.ext_authz.v3.HttpService.server_uri":                           inside,
	"envoy.extensions.filters.http.ext_proc.v3.ExtProcHttpService.http_service":                   inside,
	"envoy.extensions.filters.http.ext_proc.v3.ExtProcOverrides.grpc_service":                     inside,
	"envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor.grpc_service":                    inside,
	"envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig.http_uri":                    inside,
	"envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig.cluster":                     calls,
	"envoy.extensions.filters.http.jwt_authn.v3.RemoteJwks.http_uri":                              inside,
	"envoy.extensions.filters.http.oauth2.v3.OAuth2Config.token_endpoint":                         inside,
	"envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig.rlqs_server":    inside,
	"envoy.extensions.filters.network.ext_authz.v3.ExtAuthz.grpc_service":                         inside,
	"envoy.extensions.filters.network.ext_proc.v3.NetworkExternalProcessor.grpc_service":          inside,
	"envoy.extensions.filters.network.redis_proxy.v3.RedisExternalAuthProvider.grpc_service":      inside,
	"envoy.extensions.filters.udp.udp_proxy.session.ext_authz.v3.FilterConfig.grpc_service":       inside,
	"envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2.token_endpoint":                  inside,

	// Traffic.
	"envoy.config.route.v3.RouteAction.cluster":                                                                 traffic,
	"envoy.config.route.v3.RouteAction.cluster_header":                                                          doubtful("a request header chooses the cluster"),
	"envoy.config.route.v3.RouteAction.cluster_specifier_plugin":                                                doubtful("a plugin chooses the cluster"),
	"envoy.config.route.v3.RouteAction.inline_cluster_specifier_plugin":                                         doubtful("a plugin chooses the cluster"),
	"envoy.config.route.v3.RouteConfiguration.route_specifiers":                                                 doubtful("a route specifier may choose another route"),
	"envoy.config.route.v3.VirtualHost.route_specifiers":                                                        doubtful("a route specifier may choose another route"),
	"envoy.config.route.v3.Route.route_specifiers":                                                              doubtful("a route specifier may choose another route"),
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster":                                             traffic,
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster_header":                                      doubtful("a request header chooses the mirror's cluster"),
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.name":                                                  traffic,
	"envoy.config.route.v3.WeightedCluster.clusters":                                                            inside,
	"envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.clusters":                                 inside,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.cluster_header":                                        doubtful("a request header chooses the cluster"),
	"envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig.default_cluster":                               traffic,
	"envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction.cluster":                               traffic,
	"envoy.extensions.router.cluster_specifiers.priority_group.v3.ClusterWeight.cluster_name":                   traffic,
	"envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroup.clusters":                       inside,
	"envoy.extensions.clusters.aggregate.v3.ClusterConfig.clusters":                                             traffic,
	"envoy.extensions.clusters.composite.v3.ClusterConfig.clusters":                                             inside,
	"envoy.extensions.clusters.composite.v3.ClusterConfig.ClusterEntry.name":                                    traffic,
	"envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster.cluster":                            traffic,
	"envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpCluster.cluster":                                  traffic,
	"envoy.extensions.filters.http.cache_v2.v3.CacheV2Config.override_upstream_cluster":                         traffic,
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.cluster":                                            traffic,
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.clusters":                           inside,
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight.name":                 traffic,
	"envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction.cluster":                                       traffic,
	"envoy.extensions.filters.network.generic_proxy.action.v3.RouteAction.cluster":                              traffic,
	"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.cluster":                     traffic,
	"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy.cluster": traffic,
	"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.ReadCommandPolicy.cluster":   traffic,
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster":                                      traffic,
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster_header":                               doubtful("a request header chooses the cluster"),
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy.cluster":                  traffic,
	"envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight.name":                       traffic,
	"envoy.extensions.filters.udp.udp_proxy.v3.Route.cluster":                                                   traffic,
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.cluster":                                          traffic,
	"envoy.data.dns.v3.DnsTable.DnsEndpoint.cluster_name":                                                       calls,
	"envoy.data.dns.v3.DnsTable.DnsServiceTarget.cluster_name":                                                  calls,

	// Children.
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig.eds_config":                                                                          from(schema.Endpoints, "service_name"),
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig.service_name":                                                                        none("read with eds_config"),
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.rds":                                                inside,
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds.config_source":                                                        from(schema.Routes, "route_config_name"),
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name":                                                    none("read with config_source"),
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes.rds_config_source":                                           none("ScopedRouteConfiguration names the table"),
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes.scoped_rds":                                                  inside,
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds.scoped_rds_config_source":                                       none("SRDS has no names: a client takes every scoped route it is sent"),
	"envoy.config.route.v3.ScopedRouteConfiguration.route_configuration_name":                                                              {does: names, to: schema.Routes, edge: schema.Child},
	"envoy.config.route.v3.RouteConfiguration.vhds":                                                                                        inside,
	"envoy.config.route.v3.Vhds.config_source":                                                                                             none("VHDS has no names: a client asks for the hosts that it meets"),
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig.sds_config":                                                                 from(schema.Secrets, "name"),
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.tls_certificate_sds_secret_configs":                                        inside,
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.validation_context_sds_secret_config":                                      inside,
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext.validation_context_sds_secret_config": inside,
	"envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext.session_ticket_keys_sds_secret_config":                                 inside,
	"envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.config_source":                                       {does: source, to: schema.Secrets, edge: schema.Child, name: "prefetch_secret_names", reason: "the handshake chooses the secret"},
	"envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.prefetch_secret_names":                               none("read with config_source"),
	"envoy.extensions.filters.http.oauth2.v3.OAuth2Credentials.hmac_secret":                                                                inside,
	"envoy.extensions.filters.http.oauth2.v3.OAuth2Credentials.token_secret":                                                               inside,
	"envoy.extensions.formatter.generic_secret.v3.GenericSecret.secret_configs":                                                            inside,
	"envoy.extensions.http.injected_credentials.generic.v3.Generic.credential":                                                             inside,
	"envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2.ClientCredentials.client_secret":                                          inside,
	"envoy.extensions.quic.connection_id_generator.quic_lb.v3.Config.encryption_parameters":                                                inside,
	"envoy.config.cluster.v3.Filter.config_discovery":                                                                                      from(schema.Extensions, "name"),
	"envoy.config.listener.v3.Filter.config_discovery":                                                                                     from(schema.Extensions, "name"),
	"envoy.config.listener.v3.ListenerFilter.config_discovery":                                                                             from(schema.Extensions, "name"),
	"envoy.extensions.filters.http.composite.v3.DynamicConfig.config_discovery":                                                            from(schema.Extensions, "name"),
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter.config_discovery":                                              from(schema.Extensions, "name"),
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter.config_discovery":                                              from(schema.Extensions, "name"),

	// What this server does not serve, or only a running proxy can name.
	"envoy.config.cluster.v3.Cluster.lrs_server":                                                    none("load reports, not a resource"),
	"envoy.config.endpoint.v3.LedsClusterLocalityConfig.leds_config":                                doubtful("endpoints by LEDS are not served here"),
	"envoy.config.listener.v3.Listener.FcdsConfig.config_source":                                    doubtful("filter chains by FCDS are not served here"),
	"envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket.config_source": doubtful("token buckets are not served here"),
	"envoy.extensions.clusters.aggregate.v3.AggregateClusterResource.config_source":                 doubtful("aggregate members by xDS are not served here"),
	"envoy.extensions.filters.http.on_demand.v3.OnDemandCds.source":                                 doubtful("requests choose the clusters, on demand"),
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.OnDemand.odcds_config":                  doubtful("connections choose the clusters, on demand"),
	"envoy.extensions.filters.network.dubbo_proxy.v3.Drds.config_source":                            doubtful("Dubbo route tables are not served here"),
	"envoy.extensions.filters.network.dubbo_proxy.v3.Drds.route_config_name":                        none("read with config_source"),
	"envoy.extensions.filters.network.generic_proxy.v3.GenericRds.config_source":                    doubtful("generic route tables are not served here"),
	"envoy.extensions.filters.network.generic_proxy.v3.GenericRds.route_config_name":                none("read with config_source"),
	"envoy.extensions.filters.network.thrift_proxy.v3.Trds.config_source":                           doubtful("Thrift route tables are not served here"),
	"envoy.extensions.filters.network.thrift_proxy.v3.Trds.route_config_name":                       none("read with config_source"),

	// What only looks like a reference.
	"envoy.config.core.v3.Node.cluster":                                                                                none("the node's own"),
	"envoy.config.route.v3.VirtualHost.virtual_clusters":                                                               none("names of statistics"),
	"envoy.extensions.clusters.dynamic_forward_proxy.v3.SubClustersConfig.preresolve_clusters":                         none("addresses"),
	"envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.StsService.scope":                                     none("an OAuth scope"),
	"envoy.extensions.grpc_service.call_credentials.sts_service.v3.StsServiceCredentials.scope":                        none("an OAuth scope"),
	"envoy.config.core.v3.HealthCheck.GrpcHealthCheck.service_name":                                                    none("sent to the host that is checked"),
	"envoy.config.endpoint.v3.ClusterLoadAssignment.cluster_name":                                                      none("the resource's own name"),
	"envoy.config.endpoint.v3.ClusterStats.cluster_name":                                                               none("a load report"),
	"envoy.config.endpoint.v3.ClusterStats.cluster_service_name":                                                       none("a load report"),
	"envoy.config.trace.v3.ClientConfig.service_name":                                                                  none("sent to the tracer"),
	"envoy.config.trace.v3.DatadogConfig.service_name":                                                                 none("sent to the tracer"),
	"envoy.config.trace.v3.OpenTelemetryConfig.service_name":                                                           none("sent to the tracer"),
	"envoy.data.dns.v3.DnsTable.DnsService.service_name":                                                               none("part of a DNS name"),
	"envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig.cluster_name":                                          none("a name inside of the module"),
	"envoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigning.service_name":                              none("a name of AWS"),
	"envoy.extensions.filters.network.redis_proxy.v3.AwsIam.service_name":                                              none("a name of AWS"),
	"envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute.per_route_config_name":               none("a name inside of the module"),
	"envoy.extensions.filters.http.fault.v3.HTTPFault.upstream_cluster":                                                none("a condition, which may name what does not exist"),
	"envoy.extensions.filters.http.health_check.v3.HealthCheck.cluster_min_healthy_percentages":                        calls,
	"envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnel.required_cluster_name":                           none("the other side's cluster"),
	"envoy.extensions.filters.network.thrift_proxy.filters.payload_to_metadata.v3.PayloadToMetadata.Rule.service_name": none("part of a Thrift method"),
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteMatch.service_name":                                         none("part of a Thrift method"),
}
