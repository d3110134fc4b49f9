package envoy

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
)

const (
	ads    = `{"ads":{}}`
	hcmURL = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)

func parse(t testing.TB, typ schema.Type, json string) proto.Message {
	t.Helper()
	msg, err := ParseJSON(typ, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// typed writes a typed_config.
func typed(name, fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"@type":"type.googleapis.com/` + name + `"` + fields + `}`
}

func listener(filter string) string {
	return `{"name":"l","filter_chains":[{"filters":[{"name":"f","typed_config":` + filter + `}]}]}`
}

func hcm(fields string) string { return listener(typed(hcmURL, fields)) }

func httpFilter(cfg string) string {
	return hcm(`"http_filters":[{"name":"h","typed_config":` + cfg + `}]`)
}

func routing(fields string) string {
	return `{"name":"r","virtual_hosts":[{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{` + fields + `}}]}]}`
}

func cluster1(fields string) string { return `{"name":"c",` + fields + `}` }

const (
	grpc    = `{"envoy_grpc":{"cluster_name":"g"}}`
	httpURI = `{"uri":"http://x","cluster":"u","timeout":"1s"}`
	tlsURL  = "envoy.extensions.transport_sockets.tls.v3."
)

var refTests = []struct {
	name string
	typ  schema.Type
	json string
	want string
}{
	{"route cluster", schema.Routes, routing(`"cluster":"a"`), "clusters/a traffic"},
	{
		"weighted clusters, also of weight 0", schema.Routes,
		routing(`"weighted_clusters":{"clusters":[{"name":"b","weight":1},{"name":"a","weight":0}]}`), "clusters/a traffic, clusters/b traffic",
	},
	{
		"mirrors of route, host and table", schema.Routes,
		`{"name":"r","request_mirror_policies":[{"cluster":"m3"}],"virtual_hosts":[{"name":"v","domains":["*"],"request_mirror_policies":[{"cluster":"m2"}],` +
			`"routes":[{"match":{"prefix":"/"},"route":{"cluster":"a","request_mirror_policies":[{"cluster":"m1"}]}}]}]}`,
		"clusters/a traffic, clusters/m1 traffic, clusters/m2 traffic, clusters/m3 traffic",
	},
	{"tcp proxy", schema.Listeners, listener(typed("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", `"stat_prefix":"s","cluster":"t"`)), "clusters/t traffic"},
	{"tcp proxy, weighted", schema.Listeners, listener(typed("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
		`"stat_prefix":"s","weighted_clusters":{"clusters":[{"name":"t1","weight":1},{"name":"t2","weight":1}]}`)), "clusters/t1 traffic, clusters/t2 traffic"},
	{"aggregate cluster", schema.Clusters, cluster1(`"lb_policy":"CLUSTER_PROVIDED","cluster_type":{"name":"x","typed_config":` +
		typed("envoy.extensions.clusters.aggregate.v3.ClusterConfig", `"clusters":["p","s"]`) + `}`), "clusters/p traffic, clusters/s traffic"},
	{"endpoints by the service name", schema.Clusters, cluster1(`"type":"EDS","eds_cluster_config":{"eds_config":` + ads + `,"service_name":"s"}`), "endpoints/s child"},
	{"endpoints by the cluster's own name", schema.Clusters, cluster1(`"type":"EDS","eds_cluster_config":{"eds_config":{"self":{}}}`), "endpoints/c child"},
	{"endpoints from a file", schema.Clusters, cluster1(`"type":"EDS","eds_cluster_config":{"eds_config":{"path_config_source":{"path":"/x"}}}`), ""},
	{
		"endpoints from another server", schema.Clusters,
		cluster1(`"type":"EDS","eds_cluster_config":{"eds_config":{"api_config_source":{"api_type":"GRPC","grpc_services":[` + grpc + `]}}}`), "clusters/g filter",
	},
	{
		"secrets of a cluster", schema.Clusters, cluster1(`"transport_socket":{"name":"tls","typed_config":` + typed(tlsURL+"UpstreamTlsContext",
			`"common_tls_context":{"tls_certificate_sds_secret_configs":[{"name":"cert","sds_config":`+ads+`},{"name":"boot"}],`+
				`"combined_validation_context":{"default_validation_context":{},"validation_context_sds_secret_config":{"name":"ca","sds_config":`+ads+`}}}`) + `}`),
		"secrets/ca child, secrets/cert child",
	},
	{
		"secrets of a listener", schema.Listeners, `{"name":"l","filter_chains":[{"transport_socket":{"name":"tls","typed_config":` + typed(tlsURL+"DownstreamTlsContext",
			`"common_tls_context":{"tls_certificate_sds_secret_configs":[{"name":"cert","sds_config":`+ads+`}]},"session_ticket_keys_sds_secret_config":{"name":"keys","sds_config":`+ads+`}`) + `}}]}`,
		"secrets/cert child, secrets/keys child",
	},
	{"rds", schema.Listeners, hcm(`"rds":{"route_config_name":"r","config_source":` + ads + `}`), "routes/r child"},
	{"rds of an API listener", schema.Listeners, `{"name":"l","api_listener":{"api_listener":` + typed(hcmURL, `"rds":{"route_config_name":"r","config_source":`+ads+`}`) + `}}`, "routes/r child"},
	{"an inline table is traffic of the listener", schema.Listeners, hcm(`"route_config":` + routing(`"cluster":"a"`)), "clusters/a traffic"},
	{"scoped routes name no resource", schema.Listeners, hcm(`"scoped_routes":{"name":"s","rds_config_source":` + ads + `,"scoped_rds":{"scoped_rds_config_source":` + ads + `}}`), ""},
	{"a scoped route", schema.ScopedRoutes, `{"name":"s","route_configuration_name":"r","key":{"fragments":[{"string_key":"k"}]}}`, "routes/r child"},
	{"vhds names no resource", schema.Routes, `{"name":"r","vhds":{"config_source":` + ads + `}}`, ""},
	{"ecds of an HTTP filter", schema.Listeners, hcm(`"http_filters":[{"name":"x","config_discovery":{"config_source":` + ads + `,"type_urls":["t"]}}]`), "extensions/x child"},
	{"ecds of a network filter", schema.Listeners, `{"name":"l","filter_chains":[{"filters":[{"name":"x","config_discovery":{"config_source":` + ads + `,"type_urls":["t"]}}]}]}`, "extensions/x child"},
	{"ecds with a default is walked", schema.Listeners, hcm(`"http_filters":[{"name":"x","config_discovery":{"config_source":` + ads + `,"type_urls":["t"],"default_config":` +
		typed("envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", `"grpc_service":`+grpc) + `}}]`), "clusters/g filter, extensions/x child"},
	{"ext_authz over gRPC", schema.Listeners, httpFilter(typed("envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", `"grpc_service":`+grpc)), "clusters/g filter"},
	{"ext_authz over HTTP", schema.Listeners, httpFilter(typed("envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", `"http_service":{"server_uri":`+httpURI+`}`)), "clusters/u filter"},
	{"rate limit", schema.Listeners, httpFilter(typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit",
		`"domain":"d","rate_limit_service":{"transport_api_version":"V3","grpc_service":`+grpc+`}`)), "clusters/g filter"},
	{"JWT keys", schema.Listeners, httpFilter(typed("envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
		`"providers":{"p":{"remote_jwks":{"http_uri":`+httpURI+`}}}`)), "clusters/u filter"},
	{
		"oauth2, uri and secrets", schema.Listeners, httpFilter(typed("envoy.extensions.filters.http.oauth2.v3.OAuth2",
			`"config":{"token_endpoint":`+httpURI+`,"credentials":{"client_id":"x","token_secret":{"name":"t","sds_config":`+ads+`},"hmac_secret":{"name":"h","sds_config":`+ads+`}}}`)),
		"clusters/u filter, secrets/h child, secrets/t child",
	},
	{"access log", schema.Listeners, hcm(`"access_log":[{"name":"a","typed_config":` +
		typed("envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig", `"common_config":{"log_name":"x","grpc_service":`+grpc+`}`) + `}]`), "clusters/g filter"},
	{"tracing", schema.Listeners, hcm(`"tracing":{"provider":{"name":"z","typed_config":` +
		typed("envoy.config.trace.v3.ZipkinConfig", `"collector_cluster":"z","collector_endpoint":"/"`) + `}}`), "clusters/z filter"},
	{"per-route configuration, deep in Any", schema.Routes, `{"name":"r","typed_per_filter_config":{"x":` + typed("envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute",
		`"check_settings":{"grpc_service":`+grpc+`}`) + `}}`, "clusters/g filter"},
	{"the strictest of two edges stays", schema.Listeners, hcm(`"route_config":` + routing(`"cluster":"g"`) + `,"access_log":[{"name":"a","typed_config":` +
		typed("envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig", `"common_config":{"log_name":"x","grpc_service":`+grpc+`}`) + `}]`), "clusters/g traffic"},
	{"an extension resource", schema.Extensions, `{"name":"e","typed_config":` + typed("envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", `"grpc_service":`+grpc) + `}`, "clusters/g filter"},
	{"keys of a map", schema.Extensions, `{"name":"e","typed_config":` + typed("envoy.extensions.filters.http.health_check.v3.HealthCheck",
		`"pass_through_mode":false,"cluster_min_healthy_percentages":{"a":{"value":20},"b":{"value":10}}`) + `}`, "clusters/a filter, clusters/b filter"},
	{"routes in a matcher tree", schema.Routes, `{"name":"r","virtual_hosts":[{"name":"v","domains":["*"],"matcher":{"on_no_match":{"action":{"name":"r","typed_config":` +
		typed("envoy.config.route.v3.Route", `"match":{"prefix":"/"},"route":{"cluster":"deep"}`) + `}}}}]}`, "clusters/deep traffic"},
	{"a virtual host of its own", schema.VirtualHosts, `{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"a"}}]}`, "clusters/a traffic"},
	{"redis routes", schema.Listeners, listener(typed("envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
		`"stat_prefix":"s","settings":{"op_timeout":"1s"},"prefix_routes":{"catch_all_route":{"cluster":"redis","request_mirror_policy":[{"cluster":"m"}]}}`)), "clusters/m traffic, clusters/redis traffic"},
}

func refsText(refs []schema.Ref) string {
	parts := make([]string, len(refs))
	for i, r := range refs {
		parts[i] = fmt.Sprintf("%s %s", r.Key, r.Edge)
	}
	return strings.Join(parts, ", ")
}

func TestReferences(t *testing.T) {
	for _, tt := range refTests {
		t.Run(tt.name, func(t *testing.T) {
			refs, err := References(parse(t, tt.typ, tt.json))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, refsText(refs)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReferencesToThisServer(t *testing.T) {
	const api = `"type":"EDS","eds_cluster_config":{"eds_config":{"api_config_source":{"api_type":"GRPC","grpc_services":[` + grpc + `]}}}`
	refs, err := References(parse(t, schema.Clusters, cluster1(api)), "xds", "g")
	if want := "clusters/g filter, endpoints/c child"; err != nil || refsText(refs) != want {
		t.Errorf("References() = %s, %v, want %s", refsText(refs), err, want)
	}
}

func TestReferencesRefuseWhatTheyCannotRead(t *testing.T) {
	msg := parse(t, schema.Listeners, hcm(`"stat_prefix":"s"`))
	b, err := proto.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	b = []byte(strings.Replace(string(b), "HttpConnectionManager", "HttpConnectionMystery", 1))
	if err := proto.Unmarshal(b, msg); err != nil {
		t.Fatal(err)
	}
	if _, err := References(msg); err == nil || !strings.Contains(err.Error(), "filter_chains[0].filters[0].typed_config") {
		t.Errorf("References() of an unknown Any: %v, want its path", err)
	}
	want := []string{"filter_chains[0].filters[0].typed_config: a type.googleapis.com/" + strings.Replace(hcmURL, "Manager", "Mystery", 1) + " cannot be read"}
	if diff := cmp.Diff(want, Unprovable(msg)); diff != "" {
		t.Error(diff)
	}
}

func TestUnprovable(t *testing.T) {
	for _, tt := range []struct {
		name string
		typ  schema.Type
		json string
		want []string
	}{
		{"nothing", schema.Routes, routing(`"cluster":"a"`), nil},
		{
			"cluster header", schema.Routes, routing(`"cluster_header":"x"`),
			[]string{"virtual_hosts[0].routes[0].route.cluster_header: a request header chooses the cluster"},
		},
		{
			"Lua", schema.Listeners, httpFilter(typed("envoy.extensions.filters.http.lua.v3.Lua", `"default_source_code":{"inline_string":"x"}`)),
			[]string{"filter_chains[0].filters[0].typed_config.http_filters[0].typed_config: a Lua script may call any cluster"},
		},
		{
			"TypedStruct", schema.Listeners, httpFilter(typed("xds.type.v3.TypedStruct", `"type_url":"x","value":{"cluster":"hidden"}`)),
			[]string{"filter_chains[0].filters[0].typed_config.http_filters[0].typed_config: a TypedStruct is read by the proxy alone"},
		},
		{
			"the old TypedStruct", schema.Listeners, httpFilter(typed("udpa.type.v1.TypedStruct", `"type_url":"x"`)),
			[]string{"filter_chains[0].filters[0].typed_config.http_filters[0].typed_config: a TypedStruct is read by the proxy alone"},
		},
		{
			"on demand", schema.Routes, `{"name":"r","typed_per_filter_config":{"od":` + typed("envoy.extensions.filters.http.on_demand.v3.PerRouteConfig",
				`"odcds":{"source":`+ads+`}`) + `}}`,
			[]string{`typed_per_filter_config["od"].odcds.source: requests choose the clusters, on demand`},
		},
		{
			"a second host", schema.Routes, `{"name":"r","virtual_hosts":[{"name":"v","domains":["a"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"a"}}]},
				{"name":"w","domains":["b"],"routes":[{"match":{"prefix":"/"},"route":{"weighted_clusters":{"clusters":[{"cluster_header":"x","weight":1}]}}}]}]}`,
			[]string{"virtual_hosts[1].routes[0].route.weighted_clusters.clusters[0].cluster_header: a request header chooses the cluster"},
		},
		{
			"Lua of a route", schema.Routes, `{"name":"r","virtual_hosts":[{"name":"v","domains":["a"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"a"},
				"typed_per_filter_config":{"lua":` + typed("envoy.extensions.filters.http.lua.v3.LuaPerRoute", `"name":"x"`) + `}}]}]}`,
			[]string{`virtual_hosts[0].routes[0].typed_per_filter_config["lua"]: a Lua script may call any cluster`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Unprovable(parse(t, tt.typ, tt.json))); diff != "" {
				t.Error(diff)
			}
			// The same, of the encoded resource.
			doubts, err := Doubts(resource(t, tt.typ, tt.json))
			if diff := cmp.Diff(tt.want, doubts); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

// Plans are made once and shared; run with -race.
func TestReferencesAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for _, tt := range refTests {
		msg := parse(t, tt.typ, tt.json)
		for range 2 {
			wg.Go(func() {
				if refs, err := References(msg); err != nil || refsText(refs) != tt.want {
					t.Errorf("%s: %s, %v", tt.name, refsText(refs), err)
				}
			})
		}
	}
	wg.Wait()
}
