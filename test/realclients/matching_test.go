//go:build e2e

package realclients

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
	"github.com/sluice-xds/sluice/schema/envoy"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// Sizes of the generated cases.
const (
	caseRules    = 12
	caseRequests = 600
	caseSeeds    = 3
)

// TestMatching: rules and requests that are drawn at random. What the matcher of
// schema/envoy decides is what each client does: with it are decided `sluice test`,
// the impact of a plan and which routes are warm.
func TestMatching(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.driver.Name(), func(t *testing.T) {
			for seed := range caseSeeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { matching(t, k, uint64(seed)) })
			}
		})
	}
}

func matching(t *testing.T, k kind, seed uint64) {
	g := &caseGenerator{r: rand.New(rand.NewPCG(seed, 1)), proxy: k.client == schema.Envoy, name: k.driver.Name()}
	r := newRig(t, k, 20*time.Second, nil)
	r.kind.nodes = 1
	files := g.config(r)
	r.mergeFiles("drawn", files)
	table := tableIn(t, files)
	r.start()
	wrong := 0
	for range caseRequests {
		q := g.request()
		d := table.MatchGRPC(q)
		if g.proxy {
			d = table.Match(q)
		}
		want := d.Cluster
		if want == "" {
			want = fmt.Sprint(d.Status)
		}
		got := r.ask(q)
		if got != want {
			wrong++
			t.Errorf("%s %s%s %v: the matcher says %s (%s), the client went to %s", q.Method, q.Host, q.Path, q.Headers, want, d.Route, got)
		}
	}
	record(k, fmt.Sprintf("drawn matches, seed %d", seed), dataplane.Tally{Requests: caseRequests, Failures: wrong})
	if t.Failed() {
		t.Logf("the rules:\n%s", files["mesh.cue"])
	}
}

// ask sends a request and says which service answered, or the status.
func (r *rig) ask(q schema.Request) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
	defer cancel()
	if r.kind.client == schema.GRPC {
		a, err := r.nodes[0].Send(ctx, dataplane.Request{Path: q.Path, Header: q.Headers})
		if err != nil {
			return "404: " + err.Error()
		}
		return a.Label
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, "http://"+r.bind+q.Path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = q.Host
	for name, v := range q.Headers {
		req.Header.Set(name, v)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Sprint(res.StatusCode)
	}
	return string(body)
}

// tableIn compiles the files and gives the table that they make.
func tableIn(t *testing.T, files map[string]string) *envoy.Table {
	t.Helper()
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	fleet, err := compile.Fleet(t.Context(), tree, compile.Options{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	for r := range fleet.Groups[0].Snapshot.Of(schema.Routes).All() {
		msg, err := envoy.Unpack(r)
		if err != nil {
			t.Fatal(err)
		}
		return envoy.NewTable(msg.(*routev3.RouteConfiguration))
	}
	t.Fatal("there is no route table")
	return nil
}

// mergeFiles commits a configuration as it is.
func (r *rig) mergeFiles(message string, files map[string]string) {
	r.t.Helper()
	r.merged = time.Now()
	commit, err := r.repo.Merge(message, files)
	if err != nil {
		r.t.Fatal(err)
	}
	r.commit = commit
}

// caseGenerator draws rules and requests from small pools, so that they meet. It
// leaves out in what a client is known to differ: TestDifferences has that.
type caseGenerator struct {
	r     *rand.Rand
	proxy bool // else gRPC clients
	name  string
}

func (g *caseGenerator) one(pool ...string) string { return pool[g.r.IntN(len(pool))] }

// chance is true once in n.
func (g *caseGenerator) chance(n int) bool { return g.r.IntN(n) == 0 }

var (
	proxyPaths = []string{"/", "/a", "/A", "/a/", "/a/b", "/ab", "/a/1", "/a/12", "/b", "/b/x", "/a?q=1", "/a/b?q=1&p=2", "/b?q=2", "/b?q", "/a?p="}
	callPaths  = []string{"/a.S/M", "/a.S/N", "/A.s/m", "/b.S/M", "/a.S2/M"}
	values     = []string{"1", "12", "on", "On", "x-on-y", ""}
	headers    = []string{"x-a", "x-b"}
)

func (g *caseGenerator) config(r *rig) map[string]string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("package mesh\n")
	protocol := "grpc"
	if g.proxy {
		protocol = "http"
		line("groups: nodes: {client: \"envoy\", match: id: \"node-*\"}")
		line("listeners: echo: {groups: [\"nodes\"], bind: %q}", r.bind)
	} else {
		line("groups: nodes: {client: \"grpc\", match: id: \"node-*\"}")
		line("listeners: echo: {groups: [\"nodes\"], target: \"echo.mesh\"}")
	}
	hosts := []string{"echo.mesh"}
	if g.proxy {
		hosts = []string{"a.example.com", "*.example.com", "*"}
	}
	service := 0
	for i, h := range hosts {
		line("routes: r%d: {listeners: [\"echo\"], hosts: [%q], allow: {\"unreachable-route\": \"drawn\"}, rules: [", i, h)
		for range caseRules / len(hosts) {
			line("\t{match: {%s}, service: \"s%d\"},", g.match(), service)
			service++
		}
		if h == hosts[len(hosts)-1] || !g.chance(3) { // the last host answers whether the client is ready
			line("\t{match: prefix: \"/\", service: \"s%d\"},", service)
			service++
		}
		line("]}")
	}
	for i := range service {
		s := r.backend(fmt.Sprintf("s%d", i))
		line("services: s%d: {protocol: %q, endpoints: [{address: %q, zone: \"zone-a\"}]}", i, protocol, s.addr)
	}
	return map[string]string{"mesh.cue": b.String()}
}

// match draws one rule's match.
func (g *caseGenerator) match() string {
	parts := []string{g.path()}
	if g.name == "mosn" {
		return parts[0] // it reads no header matcher of today's, and no query
	}
	for _, h := range headers {
		if g.chance(3) {
			parts = append(parts, g.header(h))
		}
	}
	if g.proxy && g.chance(4) {
		parts = append(parts, fmt.Sprintf("method: %q", g.one("GET", "POST")))
	}
	if g.proxy && g.chance(4) {
		parts = append(parts, g.one(`query: q: "1"`, `query_matches: q: present: true`, `query_matches: q: regex: "[0-9]"`))
	}
	return strings.Join(parts, ", ")
}

func (g *caseGenerator) path() string {
	pool := callPaths
	regexes := []string{"/a.*", "/[ab].S/M", ".*M"}
	if g.proxy {
		pool = []string{"/", "/a", "/A", "/a/", "/a/b", "/ab", "/b"}
		regexes = []string{"/a/[0-9]", "/a.*", ".*b", "/[ab]"}
	}
	if g.name == "mosn" {
		pool = []string{"/", "/a", "/a/", "/a/b", "/ab", "/b"} // it reads exact paths in any case
	}
	ways := 4
	if g.name == "mosn" {
		ways = 2
	}
	switch g.r.IntN(ways) {
	case 0:
		return fmt.Sprintf("path: %q", g.one(pool...))
	case 1:
		p := g.one(pool...)
		return fmt.Sprintf("prefix: %q", p[:1+g.r.IntN(len(p))])
	case 2:
		return fmt.Sprintf("regex: %q", g.one(regexes...))
	}
	return fmt.Sprintf("%s: %q, ignore_case: true", g.one("path", "prefix"), g.one(pool...))
}

func (g *caseGenerator) header(name string) string {
	v := g.one(values[:len(values)-1]...)
	how := g.one("exact", "prefix", "suffix", "contains", "regex", "present")
	what := fmt.Sprintf("%s: %q", how, v)
	switch {
	case how == "present":
		what = fmt.Sprintf("present: %t", g.chance(2))
	case how != "regex" && g.chance(4):
		what += ", ignore_case: true"
	}
	if g.chance(4) && (g.name != "grpc-js" || how == "present") {
		what += ", invert: true"
	}
	return fmt.Sprintf("header_matches: %q: {%s}", name, what)
}

// request draws a request.
func (g *caseGenerator) request() schema.Request {
	q := schema.Request{Method: "POST", Host: "echo.mesh", Headers: map[string]string{}}
	if g.proxy {
		q.Method = g.one("GET", "POST")
		q.Host = g.one("a.example.com", "A.example.com", "b.example.com", "example.com", "x.org")
		if q.Path = g.one(proxyPaths...); g.name == "mosn" {
			q.Path = strings.ToLower(q.Path)
		}
	} else {
		q.Path = g.one(callPaths...)
	}
	for _, h := range headers {
		if v := g.one(values...); g.chance(2) && (v != "" || g.name != "grpc-go") {
			q.Headers[h] = v
		}
	}
	return q
}

// differences are what a client is known to do otherwise than Envoy's
// documentation and than the matcher. docs/matching.md lists them.
var differences = []struct {
	kind  kind
	what  string
	match string // of a rule that stands before a prefix of "/"
	path  string
	with  map[string]string
	takes bool // the rule takes the request, by the documentation
}{
	{mosn, "a regular expression may match a part of the path", `regex: "/b"`, "/a/b/c", nil, false},
	{mosn, "an exact path is matched in any case", `path: "/cart"`, "/CART", nil, false},
	{mosn, "a header's value is not matched", `{prefix: "/", headers: "x-a": "1"}`, "/", map[string]string{"x-a": "1"}, true},
	{mosn, "a query parameter is not matched", `{prefix: "/", query: q: "1"}`, "/?q=2", nil, false},
	{mosn, "case is never ignored in a prefix", `{prefix: "/cart", ignore_case: true}`, "/CART/1", nil, true},
	{grpcGo, "a header without a value is absent", `{prefix: "/", header_matches: "x-a": present: true}`, "/a.S/M", map[string]string{"x-a": ""}, true},
	{grpcJS, "an inverted match takes calls without the header", `{prefix: "/", header_matches: "x-a": {exact: "1", invert: true}}`, "/a.S/M", nil, false},
}

// TestDifferences: each is still there. One that is gone is to be drawn by
// TestMatching, and to go from the documentation.
func TestDifferences(t *testing.T) {
	for _, c := range differences {
		t.Run(c.kind.driver.Name()+"/"+c.what, func(t *testing.T) {
			r := newRig(t, c.kind, 20*time.Second, nil)
			r.kind.nodes = 1
			g := &caseGenerator{proxy: c.kind.client == schema.Envoy}
			files := g.two(r, c.match)
			r.mergeFiles("one rule and the rest", files)
			r.start()
			q := schema.Request{Method: "GET", Host: "echo.mesh", Path: c.path, Headers: c.with}
			table, decide := tableIn(t, files), (*envoy.Table).Match
			if !g.proxy {
				decide = (*envoy.Table).MatchGRPC
			}
			documented, other := "rest", "rule"
			if c.takes {
				documented, other = other, documented
			}
			if d := decide(table, q); d.Cluster != documented {
				t.Errorf("the matcher says %s, the documentation %s", d.Cluster, documented)
			}
			if got := r.ask(q); got != other {
				t.Errorf("the client goes to %s: it no longer differs from the documentation", got)
			}
		})
	}
}

// two is a configuration of one rule and of another for the rest.
func (g *caseGenerator) two(r *rig, match string) map[string]string {
	client, at, host, protocol := `"grpc"`, `target: "echo.mesh"`, "echo.mesh", "grpc"
	if g.proxy {
		client, at, host, protocol = `"envoy"`, fmt.Sprintf("bind: %q", r.bind), "*", "http"
	}
	rule, rest := r.backend("rule"), r.backend("rest")
	return map[string]string{"mesh.cue": fmt.Sprintf(`package mesh

groups: nodes: {client: %s, match: id: "node-*"}
listeners: echo: {groups: ["nodes"], %s}
routes: echo: {listeners: ["echo"], hosts: [%q], rules: [
	{match: %s, service: "rule"},
	{match: prefix: "/", service: "rest"},
]}
services: {
	rule: {protocol: %[5]q, endpoints: [{address: %[6]q, zone: "zone-a"}]}
	rest: {protocol: %[5]q, endpoints: [{address: %[7]q, zone: "zone-a"}]}
}
`, client, at, host, match, protocol, rule.addr, rest.addr)}
}
