package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

func TestDiffFields(t *testing.T) {
	for _, c := range fieldCases() {
		t.Run(c.name, func(t *testing.T) {
			a, err := envoy.ParseJSON(c.kind, []byte(c.before))
			if err != nil {
				t.Fatal(err)
			}
			b, err := envoy.ParseJSON(c.kind, []byte(c.after))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range diffFields(withoutSecrets(a), withoutSecrets(b)) {
				got = append(got, fmt.Sprintf("%s: %s => %s", f.path, f.before, f.after))
			}
			if got := strings.Join(got, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

type fieldCase struct {
	name          string
	kind          schema.Type
	before, after string // protojson
	want          string // a line for each field
}

func fieldCases() []fieldCase {
	routes := func(s string) string {
		return `{"name": "web", "virtualHosts": [{"name": "api", "domains": ["*"], "routes": [` + s + `]}]}`
	}
	hcm := func(s string) string {
		return `{"name": "web", "filterChains": [{"filters": [{"name": "hcm", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"httpFilters": [` + s + `]}}]}]}`
	}
	return []fieldCase{
		{"equal", schema.Clusters, `{"name": "a"}`, `{"name": "a"}`, ``},
		{
			"a scalar", schema.Clusters, `{"name": "a", "lbPolicy": "MAGLEV"}`, `{"name": "a", "lbPolicy": "RANDOM"}`,
			`lb_policy: MAGLEV => RANDOM`,
		},
		{
			"a duration comes", schema.Clusters, `{"name": "a"}`, `{"name": "a", "connectTimeout": "2s"}`,
			`connect_timeout:  => 2s`,
		},
		{
			"weights", schema.Routes,
			routes(`{"match": {"prefix": "/"}, "route": {"weightedClusters": {"clusters": [{"name": "a", "weight": 9}, {"name": "b", "weight": 1}]}}}`),
			routes(`{"match": {"prefix": "/"}, "route": {"weightedClusters": {"clusters": [{"name": "a", "weight": 5}, {"name": "b", "weight": 5}]}}}`),
			`virtual_hosts["api"].routes["/"].weighted_clusters: a: 9, b: 1 => a: 5, b: 5`,
		},
		{
			"one cluster becomes a split", schema.Routes,
			routes(`{"match": {"prefix": "/"}, "route": {"cluster": "a", "timeout": "1s"}}`),
			routes(`{"match": {"prefix": "/"}, "route": {"weightedClusters": {"clusters": [{"name": "a", "weight": 90}, {"name": "b", "weight": 10}]}}}`),
			`virtual_hosts["api"].routes["/"].weighted_clusters: a: 100 => a: 90, b: 10
virtual_hosts["api"].routes["/"].route.timeout: 1s => `,
		},
		{
			"another cluster", schema.Routes, routes(`{"match": {"path": "/x"}, "route": {"cluster": "a"}}`), routes(`{"match": {"path": "/x"}, "route": {"cluster": "b"}}`),
			`virtual_hosts["api"].routes["/x"].cluster: a => b`,
		},
		{
			"more than weights", schema.Routes,
			routes(`{"match": {"prefix": "/"}, "route": {"weightedClusters": {"clusters": [{"name": "a", "weight": 9, "hostRewriteLiteral": "x"}]}}}`),
			routes(`{"match": {"prefix": "/"}, "route": {"weightedClusters": {"clusters": [{"name": "a", "weight": 5, "hostRewriteLiteral": "y"}]}}}`),
			`virtual_hosts["api"].routes["/"].route.weighted_clusters.clusters["a"].weight: 9 => 5
virtual_hosts["api"].routes["/"].route.weighted_clusters.clusters["a"].host_rewrite_literal: x => y`,
		},
		{
			"an insertion changes nothing else", schema.Routes, routes(`{"match": {"prefix": "/"}, "route": {"cluster": "a"}}`),
			routes(`{"name": "new", "match": {"path": "/x"}, "redirect": {"hostRedirect": "h"}}, {"match": {"prefix": "/"}, "route": {"cluster": "a"}}`),
			`virtual_hosts["api"].routes["new"]:  => {path: /x} → {redirect: {host_redirect: h}}`,
		},
		{
			"order is semantics", schema.Routes,
			routes(`{"match": {"path": "/x"}, "route": {"cluster": "a"}}, {"match": {"prefix": "/"}, "route": {"cluster": "a"}}`),
			routes(`{"match": {"prefix": "/"}, "route": {"cluster": "a"}}, {"match": {"path": "/x"}, "route": {"cluster": "a"}}`),
			`virtual_hosts["api"].routes (order): "/x", "/" => "/", "/x"`,
		},
		{
			"equal names are told by their place", schema.Routes,
			routes(`{"match": {"prefix": "/"}, "route": {"cluster": "a"}}, {"match": {"prefix": "/"}, "route": {"cluster": "b"}}`),
			routes(`{"match": {"prefix": "/"}, "route": {"cluster": "a"}}, {"match": {"prefix": "/"}, "route": {"cluster": "c"}}`),
			`virtual_hosts["api"].routes[1].cluster: b => c`,
		},
		{
			"into an Any", schema.Listeners, hcm(`{"name": "router"}`), hcm(`{"name": "lua"}, {"name": "router"}`),
			`filter_chains[0].filters["hcm"].typed_config.http_filters["lua"]:  => {name: lua}`,
		},
		{
			"a map", schema.Clusters, `{"name": "a", "metadata": {"filterMetadata": {"x": {"k": "1"}}}}`, `{"name": "a", "metadata": {"filterMetadata": {"x": {"k": "2"}, "y": {}}}}`,
			`metadata.filter_metadata["x"].fields["k"].string_value: 1 => 2
metadata.filter_metadata["y"]:  => {}`,
		},
		{
			"a secret value is not shown", schema.Secrets,
			`{"name": "s", "tlsCertificate": {"privateKey": {"inlineString": "old"}, "certificateChain": {"filename": "a.pem"}}}`,
			`{"name": "s", "tlsCertificate": {"privateKey": {"inlineString": "new"}, "certificateChain": {"filename": "b.pem"}}}`,
			`tls_certificate.certificate_chain.filename: a.pem => b.pem`,
		},
		{
			"nor one that comes", schema.Secrets,
			`{"name": "s"}`, `{"name": "s", "tlsCertificate": {"privateKey": {"inlineString": "new"}}}`,
			`tls_certificate:  => {private_key: {}}`,
		},
	}
}
