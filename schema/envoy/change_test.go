package envoy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

func TestChangeOfCluster(t *testing.T) {
	aggregate := func(members string) string {
		return cluster1(`"cluster_type":{"name":"agg","typed_config":` + typed("envoy.extensions.clusters.aggregate.v3.ClusterConfig", `"clusters":[`+members+`]`) + `}`)
	}
	eds := func(name string) string {
		return cluster1(`"type":"EDS","eds_cluster_config":{"eds_config":` + ads + `,"service_name":"` + name + `"}`)
	}
	for _, c := range []struct {
		name, old, new string
		want           ClusterChange
	}{
		{"a time-out", cluster1(`"type":"STATIC"`), cluster1(`"type":"STATIC","connect_timeout":"3s"`), ClusterChange{}},
		{"members", aggregate(`"a"`), aggregate(`"a","b"`), ClusterChange{Members: true}},
		{"the order of members", aggregate(`"b","a"`), aggregate(`"a","b"`), ClusterChange{Members: true}},
		{"the type", cluster1(`"type":"STATIC"`), cluster1(`"type":"STRICT_DNS"`), ClusterChange{Connections: true}},
		{"the endpoints' name", eds("a"), eds("b"), ClusterChange{Connections: true}},
		{"TLS", cluster1(`"type":"STATIC"`), cluster1(`"type":"STATIC","transport_socket":{"name":"t"}`), ClusterChange{Connections: true}},
	} {
		got, err := ChangeOfCluster(resource(t, schema.Clusters, c.old), resource(t, schema.Clusters, c.new))
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	if _, err := ChangeOfCluster(resource(t, schema.Routes, twoHosts), resource(t, schema.Routes, twoHosts)); err == nil {
		t.Error("a route table was compared as a cluster")
	}
}

func TestChangeOfListener(t *testing.T) {
	l := func(port, rest string) string {
		return `{"name":"l","address":{"socket_address":{"address":"0.0.0.0","port_value":` + port + `}}` + rest + `}`
	}
	for _, c := range []struct {
		name, old, new string
		want           ListenerChange
	}{
		{"a chain", l("80", ""), l("80", `,"filter_chains":[{"name":"x"}],"default_filter_chain":{"name":"y"}`), ListenerChange{ChainsOnly: true}},
		{"a chain of UDP", strings.Replace(l("80", ""), `"address":"0`, `"protocol":"UDP","address":"0`, 1), strings.Replace(l("80", `,"filter_chains":[{"name":"x"}]`), `"address":"0`, `"protocol":"UDP","address":"0`, 1), ListenerChange{}},
		{"its port", l("80", ""), l("81", ""), ListenerChange{Addresses: true}},
		{"reuse_port", l("80", `,"enable_reuse_port":false`), l("80", ""), ListenerChange{ReusePort: true}},
		{"reuse_port, said or not", l("80", `,"enable_reuse_port":true`), l("80", ""), ListenerChange{}},
	} {
		got, err := ChangeOfListener(resource(t, schema.Listeners, c.old), resource(t, schema.Listeners, c.new))
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	many := resource(t, schema.Listeners, l("80", `,"additional_addresses":[{"address":{"pipe":{"path":"/p"}}},{"address":{"socket_address":{"protocol":"UDP","address":"::","port_value":53}}},
		{"address":{"socket_address":{"address":"::","port_value":0}}}]`))
	got, err := Addresses(many)
	if diff := cmp.Diff([]string{"pipe /p", "tcp 0.0.0.0:80", "udp :::53"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got, err := Addresses(resource(t, schema.Listeners, l("80", `,"bind_to_port":false`))); err != nil || got != nil {
		t.Error("a listener that binds nothing has", got, err)
	}
}

func TestFetchTimeouts(t *testing.T) {
	src := func(fields string) string { return `{"ads":{}` + fields + `}` }
	for fields, want := range map[string][]time.Duration{
		"":                               {15 * time.Second},
		`,"initial_fetch_timeout":"0s"`:  {0, 15 * time.Second},
		`,"initial_fetch_timeout":"20s"`: {20 * time.Second, 15 * time.Second},
	} {
		r := resource(t, schema.Listeners, `{"name":"l","filter_chains":[{"filters":[`+
			`{"name":"a","typed_config":`+typed(hcmURL, `"rds":{"route_config_name":"r","config_source":`+src(fields)+`}`)+`},`+
			`{"name":"b","typed_config":`+typed(hcmURL, `"rds":{"route_config_name":"s","config_source":`+src("")+`}`)+`}]}]}`)
		got, err := FetchTimeouts(r)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", fields, got, err)
		}
	}
}

// What a listener's new filters are told goes where the old routes are.
func TestPrepare(t *testing.T) {
	table := func(hosts string) *schema.Resource {
		return resource(t, schema.Routes, `{"name":"r","virtual_hosts":[`+hosts+`]}`)
	}
	host := func(rest, routes string) string {
		return `{"name":"v","domains":["*"],"routes":[` + routes + `]` + rest + `}`
	}
	per := `,"typed_per_filter_config":{"rbac":` + typed("envoy.extensions.filters.http.rbac.v3.RBACPerRoute", "") + `}`
	route := func(prefix, cluster, rest string) string {
		return `{"match":{"prefix":"` + prefix + `"},"route":{"cluster":"` + cluster + `"}` + rest + `}`
	}
	old := table(host("", route("/a", "a", "")+","+route("/", "b", "")))
	for _, c := range []struct {
		name    string
		new     string
		want    string // of the old table with more
		refused bool
	}{
		{"nothing is said", host("", route("/", "b", "")), host("", route("/a", "a", "")+","+route("/", "b", "")), false},
		{"of a route that also moves", host("", route("/", "c", "")+","+route("/a", "a", per)), host("", route("/a", "a", per)+","+route("/", "b", "")), false},
		{"of the host", host(per, route("/a", "a", "")+","+route("/", "b", "")), host(per, route("/a", "a", "")+","+route("/", "b", "")), false},
		{"of another host", host("", route("/a", "a", "")+","+route("/", "b", "")) + `,{"name":"w","domains":["w"]` + per + `}`, host("", route("/a", "a", "")+","+route("/", "b", "")), false},
		{"and a route is lost", host("", route("/", "b", per)), "", true},
	} {
		made, ok, err := Prepare(old, table(c.new), []string{"rbac"})
		switch {
		case err != nil || ok == c.refused:
			t.Errorf("%s: ok is %v, %v", c.name, ok, err)
		case ok && made.Version != table(c.want).Version:
			t.Errorf("%s: another table", c.name)
		}
	}
}
