package envoy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sluice-xds/sluice/schema"
)

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		typ  schema.Type
		json string
		want []string
	}{
		{"nothing", schema.Routes, routing(`"cluster":"a"`), nil},
		{
			"all, not the first", schema.Routes,
			`{"virtual_hosts":[{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":""}},{"match":{},"redirect":{}}]},{"name":""}]}`,
			[]string{
				"virtual_hosts[0].routes[0].route.cluster: value length must be at least 1 runes",
				"virtual_hosts[0].routes[1].match.path_specifier: one of prefix, path, safe_regex, connect_matcher, path_separated_prefix, path_match_policy is required",
				"virtual_hosts[1].domains: value must contain at least 1 item(s)",
				"virtual_hosts[1].name: value length must be at least 1 runes",
			},
		},
		{
			"inside of an Any", schema.Listeners, hcm(`"rds":{"route_config_name":"r"},"http_filters":[{"name":"j","typed_config":` +
				typed("envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication", `"providers":{"p.x":{"remote_jwks":{"http_uri":{"uri":"","cluster":"c","timeout":"1s"}}}}`) + `}]`),
			[]string{
				`filter_chains[0].filters[0].typed_config.http_filters[0].typed_config.providers["p.x"].remote_jwks.http_uri.uri: value length must be at least 1 runes`,
				"filter_chains[0].filters[0].typed_config.stat_prefix: value length must be at least 1 runes",
			},
		},
		{
			"inside of a map of Any", schema.Routes, `{"typed_per_filter_config":{"x":` + typed("envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute", "") + `}}`,
			[]string{`typed_per_filter_config["x"].override: one of disabled, check_settings is required`},
		},
		{
			"names with digits and capitals", schema.Clusters, `{"name":"c","connect_timeout":"0s","typed_extension_protocol_options":{"p":` +
				typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", `"explicit_http_config":{"http2_protocol_options":{"max_concurrent_streams":0}}`) + `}}`,
			[]string{
				"connect_timeout: value must be greater than 0s",
				`typed_extension_protocol_options["p"].explicit_http_config.http2_protocol_options.max_concurrent_streams: value must be inside range [1, 2147483647]`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, v := range Validate(parse(t, tt.typ, tt.json)) {
				got = append(got, v.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every linked field is found again by the name that Go gives it.
func TestLocateKnowsEveryField(t *testing.T) {
	linked(func(fd protoreflect.FieldDescriptor) {
		mt, err := protoregistry.GlobalTypes.FindMessageByName(fd.ContainingMessage().FullName())
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := locate(mt.Descriptor(), goName(string(fd.Name()))); got != string(fd.Name()) {
			t.Errorf("%s is found as %s", fd.FullName(), got)
		}
	})
}

func TestParseJSON(t *testing.T) {
	for _, tt := range []struct {
		name, json string
		want       FormatError
	}{
		{"both kinds of names", `{"name":"l","filterChains":[{"filter_chain_match":{}}]}`, nil},
		{"a type that agrees", `{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":"l"}`, nil},
		{
			"a type that does not", `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"l"}`,
			FormatError{{"@type", `this is a "type.googleapis.com/envoy.config.cluster.v3.Cluster", not a type.googleapis.com/envoy.config.listener.v3.Listener`}},
		},
		{
			"every unknown field and type", `{"nam":1,"filterChains":[{"filters":[{"typed_config":{"@type":"type.googleapis.com/foo.Bar"}},{"nome":1}]}]}`,
			FormatError{
				{"filter_chains[0].filters[0].typed_config", `unknown type "type.googleapis.com/foo.Bar"`},
				{"filter_chains[0].filters[1].nome", `unknown field "nome" in envoy.config.listener.v3.Filter`},
				{"nam", `unknown field "nam" in envoy.config.listener.v3.Listener`},
			},
		},
		{
			"inside of an Any", hcm(`"stat_prefix":5,"rds":{"route":"x"},"http_filters":[{"name":"r","typed_config":{"x":1}}]`),
			FormatError{
				{"filter_chains[0].filters[0].typed_config.http_filters[0].typed_config", `an Any needs an "@type"`},
				{"filter_chains[0].filters[0].typed_config.rds.route", `unknown field "route" in envoy.extensions.filters.network.http_connection_manager.v3.Rds`},
				{"filter_chains[0].filters[0].typed_config.stat_prefix", `invalid value for string field stat_prefix: 5`},
			},
		},
		{
			"values", `{"name":5,"reuse_port":"yes","connection_balance_config":[],"traffic_direction":"SIDEWAYS","listener_filters_timeout":"soon"}`,
			FormatError{
				{"connection_balance_config", "unexpected token ["},
				{"listener_filters_timeout", `invalid google.protobuf.Duration value "soon"`},
				{"name", "invalid value for string field name: 5"},
				{"reuse_port", `invalid value for bool field reuse_port: "yes"`},
				{"traffic_direction", `invalid value for enum field traffic_direction: "SIDEWAYS"`},
			},
		},
		{"a field twice", `{"name":"a","name":"b"}`, FormatError{{"", `duplicate field "name"`}}},
		{
			"two of a oneof", `{"filter_chains":[{"filters":[{"typed_config":{},"config_discovery":{}}]}]}`,
			FormatError{{"filter_chains[0].filters[0]", `error parsing "typed_config", oneof envoy.config.listener.v3.Filter.config_type is already set`}},
		},
		{"no JSON", `{"name":`, FormatError{{"", "this is no JSON: unexpected EOF"}}},
		{"no object", `[]`, FormatError{{"", "unexpected token ["}}},
		{"a Struct takes any field", `{"metadata":{"filter_metadata":{"x":{"any":"thing"}}}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 3 { // the order of a map's keys changes
				_, err := ParseJSON(schema.Listeners, []byte(tt.json))
				var got FormatError
				if err != nil && !errors.As(err, &got) {
					t.Fatalf("%T is no FormatError: %v", err, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
