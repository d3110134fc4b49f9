package envoy

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/sluice-xds/sluice/schema"
)

// bigTable has hosts of ten routes each.
func bigTable(routes int) *routev3.RouteConfiguration {
	rc := &routev3.RouteConfiguration{Name: "big"}
	for i := range routes / 10 {
		h := &routev3.VirtualHost{Name: fmt.Sprintf("h%d", i), Domains: []string{fmt.Sprintf("h%d.example.com", i)}}
		for j := range 10 {
			m := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: fmt.Sprintf("/p%d", j)}}
			if j == 5 {
				m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: fmt.Sprintf("/p%d/[0-9]+", j)}}
			}
			m.Headers = []*routev3.HeaderMatcher{{Name: "x-tenant", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "t"}},
			}}}
			h.Routes = append(h.Routes, &routev3.Route{
				Match:               m,
				RequestHeadersToAdd: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-route", Value: "r"}}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: fmt.Sprintf("c%d", i*10+j)},
					RetryPolicy:      &routev3.RetryPolicy{RetryOn: "5xx"},
				}},
			})
		}
		rc.VirtualHosts = append(rc.VirtualHosts, h)
	}
	return rc
}

func BenchmarkReferences(b *testing.B) {
	rc := bigTable(1000)
	b.ReportAllocs()
	for b.Loop() {
		if refs, err := References(rc); err != nil || len(refs) != 1000 {
			b.Fatal(len(refs), err)
		}
	}
}

func BenchmarkReferencesListener(b *testing.B) {
	l := parse(b, schema.Listeners, hcm(`"stat_prefix":"s","rds":{"route_config_name":"r","config_source":`+ads+`},"http_filters":[`+
		`{"name":"a","typed_config":`+typed("envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", `"grpc_service":`+grpc)+`},`+
		`{"name":"router","typed_config":`+typed("envoy.extensions.filters.http.router.v3.Router", "")+`}]`))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := References(l); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResource(b *testing.B) {
	rc := bigTable(1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Resource(rc, "big"); err != nil {
			b.Fatal(err)
		}
	}
}

const oneCluster = `{"name":"c","type":"EDS","connect_timeout":"1s","eds_cluster_config":{"eds_config":{"ads":{}}},` +
	`"typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":` +
	`{"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions","explicit_http_config":{"http2_protocol_options":{}}}}}`

func BenchmarkValidateCluster(b *testing.B) {
	c := parse(b, schema.Clusters, oneCluster)
	b.ReportAllocs()
	for b.Loop() {
		if v := Validate(c); v != nil {
			b.Fatal(v)
		}
	}
}

func BenchmarkParseCluster(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		parse(b, schema.Clusters, oneCluster)
	}
}

func BenchmarkValidateTable(b *testing.B) {
	rc := bigTable(1000)
	b.ReportAllocs()
	for b.Loop() {
		if v := Validate(rc); v != nil {
			b.Fatal(v)
		}
	}
}

func BenchmarkNewTable(b *testing.B) {
	rc := bigTable(1000)
	b.ReportAllocs()
	for b.Loop() {
		NewTable(rc)
	}
}

func BenchmarkMatch(b *testing.B) {
	t := NewTable(bigTable(1000))
	req := schema.Request{Method: "GET", Host: "h50.example.com", Path: "/p9/x?q=1", Headers: map[string]string{"x-tenant": "t"}}
	b.ReportAllocs()
	for b.Loop() {
		if d := t.Match(req); d.Cluster != "c509" {
			b.Fatal(d)
		}
	}
}

func BenchmarkRoutes(b *testing.B) {
	r, err := Resource(bigTable(1000), "big")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if lines, err := Routes(r); err != nil || len(lines) != 1000 {
			b.Fatal(len(lines), err)
		}
	}
}
