package envoy

import (
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

const twoHosts = `{"name":"r","virtual_hosts":[
	{"name":"v","domains":["a.com"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"a","request_mirror_policies":[{"cluster":"m"}]}}]},
	{"name":"w","domains":["*"],"require_tls":"ALL","routes":[
		{"name":"split","match":{"prefix":"/x","headers":[{"name":"h","string_match":{"exact":"1"}}]},"route":{"weighted_clusters":{"clusters":[{"name":"b","weight":20},{"name":"c","weight":40},{"name":"z","weight":0}]}}},
		{"match":{"path":"/old"},"redirect":{"https_redirect":true,"prefix_rewrite":"/new","strip_query":true,"port_redirect":444}},
		{"match":{"safe_regex":{"regex":"/d.*"}},"direct_response":{"status":204}},
		{"match":{"prefix":"/h"},"route":{"cluster_header":"x-c"}}]}]}`

func resource(t *testing.T, typ schema.Type, json string) *schema.Resource {
	t.Helper()
	msg := parse(t, typ, json)
	r, err := Resource(msg, NameOf(msg))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func warm(t *testing.T, r *schema.Resource, names map[string][]string) *schema.Resource {
	t.Helper()
	w, err := Warm(r, names)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWarm(t *testing.T) {
	r := resource(t, schema.Routes, twoHosts)
	w := warm(t, r, map[string][]string{"v": {"new2", "new1", "b", "new1"}, "w": nil})
	if w.Version == r.Version || w.Key != r.Key {
		t.Errorf("the warm table is %s at %s, after %s", w.Key, w.Version, r.Version)
	}
	const want = "clusters/a traffic, clusters/b traffic, clusters/c traffic, clusters/m traffic, " +
		"clusters/new1 child, clusters/new2 child, clusters/z traffic"
	if diff := cmp.Diff(want, refsText(w.Refs)); diff != "" {
		t.Error(diff)
	}
	msg, err := Unpack(w)
	if err != nil {
		t.Fatal(err)
	}
	if v := Validate(msg); v != nil {
		t.Errorf("Envoy would refuse the table: %v", v)
	}
	again, err := Resource(msg, "r")
	if err != nil || refsText(again.Refs) != want || again.Version != w.Version {
		t.Errorf("walked again: %s, %v", refsText(again.Refs), err)
	}
	first := msg.(*routev3.RouteConfiguration).VirtualHosts[0].Routes[0]
	if first.Name != WarmName || len(first.GetRoute().GetWeightedClusters().GetClusters()) != 3 {
		t.Errorf("the first route is %v", first)
	}
}

// Nothing that a client sends is matched, the header itself included.
func TestWarmRouteNeverMatches(t *testing.T) {
	w := warm(t, resource(t, schema.Routes, twoHosts), map[string][]string{"v": {"new"}})
	msg, err := Unpack(w)
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(msg.(*routev3.RouteConfiguration))
	for _, headers := range []map[string]string{nil, {WarmHeader: ""}, {WarmHeader: "true"}} {
		d := table.Match(schema.Request{Host: "a.com", Headers: headers})
		if d.Cluster != "a" || d.Index != 1 {
			t.Errorf("with %v: %+v", headers, d)
		}
	}
}

func TestWarmReplacesWarm(t *testing.T) {
	r := resource(t, schema.Routes, twoHosts)
	one := warm(t, r, map[string][]string{"v": {"new1"}, "w": {"new1"}})
	two := warm(t, one, map[string][]string{"v": {"new2"}})
	if direct := warm(t, r, map[string][]string{"v": {"new2"}}); direct.Version != two.Version || refsText(direct.Refs) != refsText(two.Refs) {
		t.Errorf("warm again gives %s, warm once %s", refsText(two.Refs), refsText(direct.Refs))
	}
	if cool := warm(t, two, nil); cool.Version != r.Version || refsText(cool.Refs) != refsText(r.Refs) {
		t.Errorf("cooled down it refers to %s, before %s", refsText(cool.Refs), refsText(r.Refs))
	}
}

// What a caller made optional stays so; its Refs are not changed.
func TestWarmKeepsOptional(t *testing.T) {
	r := resource(t, schema.Routes, twoHosts)
	refs := []schema.Ref{{Key: schema.Key{Type: schema.Clusters, Name: "a"}, Edge: schema.Optional}}
	r = schema.Restore(r.Key, r.Version, refs, r.Body)
	if got := refsText(warm(t, r, map[string][]string{"v": {"a", "n"}}).Refs); got != "clusters/a optional, clusters/n child" {
		t.Error(got)
	}
	if len(refs) != 1 {
		t.Error("the caller's references were changed")
	}
}

func TestWarmRefuses(t *testing.T) {
	if _, err := Warm(resource(t, schema.Routes, twoHosts), map[string][]string{"nope": {"a"}}); err == nil {
		t.Error("an unknown virtual host was warmed")
	}
	if _, err := Warm(resource(t, schema.Clusters, cluster1(`"type":"STATIC"`)), nil); err == nil {
		t.Error("a cluster was warmed")
	}
}

// A route of the reserved name that can match is an author's, and is traffic.
func TestOnlyWarmRoutesAreWarm(t *testing.T) {
	r := resource(t, schema.Routes, `{"name":"r","virtual_hosts":[{"name":"v","domains":["*"],"routes":[{"name":"sluice-warm","match":{"prefix":"/","headers":[`+
		`{"name":"x-sluice-warm","present_match":true},{"name":"x-sluice-warm","present_match":false,"invert_match":true}]},"route":{"cluster":"a"}}]}]}`)
	if got := refsText(r.Refs); got != "clusters/a traffic" {
		t.Error(got)
	}
}

func TestHostsOf(t *testing.T) {
	type host struct {
		Name              string
		Domains, Clusters []string
		Warm              []string
		Lines             int
	}
	list := func(r *schema.Resource) (out []host) {
		hosts, err := HostsOf(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hosts {
			clusters, err1 := h.Clusters()
			lines, err2 := h.Lines()
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			out = append(out, host{h.Name(), h.Domains(), clusters, h.WarmClusters(), len(lines)})
		}
		return out
	}
	w := warm(t, resource(t, schema.Routes, twoHosts), map[string][]string{"v": {"new"}})
	want := []host{
		{"v", []string{"a.com"}, []string{"a", "m"}, []string{"new"}, 1},
		{"w", []string{"*"}, []string{"b", "c", "z"}, nil, 5},
	}
	if diff := cmp.Diff(want, list(w)); diff != "" {
		t.Error(diff)
	}
	// A table inside of a listener.
	inline := resource(t, schema.Listeners, hcm(`"route_config":`+twoHosts))
	want[0].Warm = nil
	if diff := cmp.Diff(want, list(inline)); diff != "" {
		t.Error(diff)
	}
}

// Hosts that are equal byte by byte are not looked into, in whatever order.
func TestUnlike(t *testing.T) {
	table := func(rest string, hosts ...string) []Host {
		body := `{"name":"r",` + rest + `"virtual_hosts":[`
		for i, h := range hosts {
			name, cluster, _ := strings.Cut(h, ":")
			if i > 0 {
				body += ","
			}
			body += `{"name":"` + name + `","domains":["` + name + `.com"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"` + cluster + `"}}]}`
		}
		out, err := HostsOf(resource(t, schema.Routes, body+"]}"))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	words := func(hosts []Host, unlike []bool) (out []string) {
		for i, h := range hosts {
			if unlike[i] {
				out = append(out, h.Name())
			}
		}
		return out
	}
	a := table("", "a:1", "b:1", "c:1")
	for _, c := range []struct {
		name     string
		b        []Host
		ofA, ofB []string
	}{
		{"equal", table("", "a:1", "b:1", "c:1"), nil, nil},
		{"another order", table("", "c:1", "a:1", "b:1"), nil, nil},
		{"changed and added", table("", "z:1", "c:1", "b:2", "a:1"), []string{"b"}, []string{"z", "b"}},
		{"removed", table("", "c:1"), []string{"a", "b"}, nil},
		{"another table", table(`"ignore_path_parameters_in_path_matching":true,`, "a:1"), []string{"a", "b", "c"}, []string{"a"}},
	} {
		ofA, ofB := Unlike(a, c.b)
		if diff := cmp.Diff([][]string{c.ofA, c.ofB}, [][]string{words(a, ofA), words(c.b, ofB)}); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestRoutes(t *testing.T) {
	w := warm(t, resource(t, schema.Routes, twoHosts), map[string][]string{"v": {"new"}})
	lines, err := Routes(w)
	if err != nil {
		t.Fatal(err)
	}
	a, star := []string{"a.com"}, []string{"*"}
	want := []RouteLine{
		{VirtualHost: "v", Domains: a, Index: 0, Match: `prefix "/"`, PathKind: PathPrefix, Path: "/", Kind: Forward, Weights: map[string]uint32{"a": 1}},
		{
			VirtualHost: "w", Domains: star, Index: -1, Name: "require_tls", Match: `prefix "", scheme http`, PathKind: PathPrefix, Headers: "scheme http",
			Kind: Redirect, Redirect: "https://{host}{path}", Status: 301,
		},
		{
			VirtualHost: "w", Domains: star, Index: 0, Name: "split", Match: `prefix "/x", header h = "1"`, PathKind: PathPrefix, Path: "/x", Headers: `header h = "1"`,
			Kind: Forward, Weights: map[string]uint32{"b": 1, "c": 2},
		},
		{
			VirtualHost: "w", Domains: star, Index: 1, Match: `path "/old"`, PathKind: PathExact, Path: "/old",
			Kind: Redirect, Redirect: "https://{host}:444/new{rest} without query", Status: 301,
		},
		{VirtualHost: "w", Domains: star, Index: 2, Match: `regex "/d.*"`, PathKind: PathRegex, Path: "/d.*", Kind: Respond, Status: 204},
		{VirtualHost: "w", Domains: star, Index: 3, Match: `prefix "/h"`, PathKind: PathPrefix, Path: "/h", Kind: Forward, Unprovable: "header x-c chooses the cluster"},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

// A listener's inline table and a virtual host of its own have routes too.
func TestRoutesElsewhere(t *testing.T) {
	for _, r := range []*schema.Resource{
		resource(t, schema.Listeners, hcm(`"stat_prefix":"s","route_config":`+routing(`"cluster":"a"`))),
		resource(t, schema.VirtualHosts, `{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"a"}}]}`),
	} {
		lines, err := Routes(r)
		if err != nil || len(lines) != 1 || lines[0].Weights["a"] != 1 {
			t.Errorf("%s: %v, %v", r.Key, lines, err)
		}
	}
	if lines, err := Routes(resource(t, schema.Clusters, cluster1(`"type":"STATIC"`))); err != nil || lines != nil {
		t.Errorf("a cluster has the routes %v, %v", lines, err)
	}
}
