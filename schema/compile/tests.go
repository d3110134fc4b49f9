package compile

import (
	"fmt"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// TestReport is the outcome of a fleet's route tests.
type TestReport struct {
	// Results are in the order of the tests, then of the groups.
	Results []TestResult
	// Rules are all rules of the groups' route tables, in the order in which
	// they stand in the configuration.
	Rules []RuleCoverage
}

// TestResult is the outcome of one route test on one route table. A test runs
// on each table that answers for its host; if none does, it has one result
// without a group.
type TestResult struct {
	Test     schema.RouteTest
	Group    string // whose table
	Table    string
	Route    string // virtual host and route that decided
	OK       bool
	Expected string // in words: service "web"
	Actual   string
}

// RuleCoverage says how many tests a rule decided.
type RuleCoverage struct {
	Pos   schema.Pos // where the rule stands, or the table if that is not known
	Route string     // virtual host and route: "shop /cart*"
	Tests int
}

// Covered is the number of rules that some test reached.
func (r *TestReport) Covered() int {
	n := 0
	for _, u := range r.Rules {
		if u.Tests > 0 {
			n++
		}
	}
	return n
}

// RunTests runs the fleet's route tests on the tables of its groups.
func RunTests(f *schema.Fleet) *TestReport {
	tables := tablesOf(f)
	c := newCoverage(f, tables)
	out := &TestReport{}
	for _, t := range f.Tests {
		n := len(out.Results)
		for i := range tables {
			d, ok := tables[i].decide(t)
			if !ok {
				continue
			}
			c.hit(t.Name, &tables[i], d)
			out.Results = append(out.Results, tables[i].result(t, d))
		}
		if len(out.Results) == n {
			out.Results = append(out.Results, TestResult{
				Test: t, Expected: asked(t.Expect).String(), OK: asked(t.Expect).String() == "status 404",
				Actual: fmt.Sprintf("status 404: %s for host %q", nobody(t.Listener), t.Request.Host),
			})
		}
	}
	out.Rules = c.sorted()
	return out
}

func nobody(listener string) string {
	if listener == "" {
		return "no listener answers"
	}
	return fmt.Sprintf("listener %q does not answer", listener)
}

// routeTable is one of a listener of a group.
type routeTable struct {
	group, name string
	listener    string     // its author's name
	tls         bool       // requests arrive by https
	target      string     // what a gRPC client dials to get here; empty for a port
	key         schema.Key // of the resource that it is in
	message     *routev3.RouteConfiguration
	table       *envoy.Table
}

// tablesOf lists the route tables of the groups' listeners: those that they name,
// and those inside listeners that are their author's own.
func tablesOf(f *schema.Fleet) []routeTable {
	compiled := map[*schema.Resource][]routeTable{} // groups share resources
	read := func(r *schema.Resource) []routeTable {
		tables, ok := compiled[r]
		if !ok {
			rcs, err := envoy.Tables(r)
			if err != nil {
				rcs = nil // made or checked by this package, so it does not happen
			}
			for _, rc := range rcs {
				if envoy.RenameClusters(rc, schema.StableName) != nil {
					continue
				}
				tables = append(tables, routeTable{name: rc.GetName(), key: r.Key, message: rc, table: envoy.NewTable(rc)})
			}
			compiled[r] = tables
		}
		return tables
	}
	var out []routeTable
	for i := range f.Groups {
		g := &f.Groups[i]
		for l := range g.Snapshot.Of(schema.Listeners).All() {
			port := portOf(l)
			origin := f.Provenance.Of(l.Key)
			var tables []routeTable
			if origin.Kind == "resource" { // else it is that of a gRPC server: all is its own
				tables = slices.Clone(read(l))
			}
			for _, ref := range l.Refs {
				if r := g.Snapshot.Get(ref.Key); ref.Type == schema.Routes && r != nil {
					tables = append(tables, read(r)...)
				}
			}
			for _, t := range tables {
				t.group, t.listener, t.target, t.tls = g.Name, origin.Name, port.target, port.tls
				out = append(out, t)
			}
		}
	}
	return out
}

// port is how requests come to a listener.
type port struct {
	target string // what a gRPC client dials
	tls    bool
}

func portOf(l *schema.Resource) port {
	msg, err := envoy.Unpack(l)
	lis, ok := msg.(*listenerv3.Listener)
	if err != nil || !ok {
		return port{} // made or checked by this package, so it does not happen
	}
	var p port
	if lis.GetApiListener() != nil {
		p.target = l.Name
	}
	p.tls = slices.ContainsFunc(lis.GetFilterChains(), func(c *listenerv3.FilterChain) bool {
		return c.GetTransportSocket().GetName() == tlsName
	})
	return p
}

// decide asks the table, if the test is for its listener and it has a host for
// the request. A gRPC client gets to
// a table by its target alone.
func (t *routeTable) decide(test schema.RouteTest) (envoy.Decision, bool) {
	var d envoy.Decision
	switch {
	case test.Listener != "" && test.Listener != t.listener:
	case t.tls && test.Request.Scheme == "http": // which does not get in
	case t.target == "":
		r := test.Request
		if t.tls {
			r.Scheme = "https"
		}
		d = t.table.Match(r)
	case strings.EqualFold(t.target, test.Request.Host):
		d = t.table.MatchGRPC(test.Request)
	}
	return d, d.VirtualHost != ""
}

func (t *routeTable) result(test schema.RouteTest, d envoy.Decision) TestResult {
	r := TestResult{Test: test, Group: t.group, Table: t.name, Route: routeWords(d.VirtualHost, d.Route)}
	r.Expected, r.Actual, r.OK = asked(test.Expect).String(), given(test, d).String(), met(test, d)
	return r
}

func routeWords(host, route string) string {
	if route == "" {
		return host
	}
	return host + " " + route
}
