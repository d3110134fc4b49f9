package compile

import (
	"fmt"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

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

// RunTests runs the fleet's route tests on the tables of its groups. Results are
// in the order of the tests, then of the groups.
func RunTests(f *schema.Fleet) []TestResult {
	tables := tablesOf(f)
	var out []TestResult
	for _, t := range f.Tests {
		n := len(out)
		for i := range tables {
			if r, ok := tables[i].run(t); ok {
				out = append(out, r)
			}
		}
		if len(out) == n {
			out = append(out, TestResult{
				Test: t, Expected: expected(t.Expect), OK: t.Expect.Status == 404,
				Actual: fmt.Sprintf("status 404: no listener answers for host %q", t.Request.Host),
			})
		}
	}
	return out
}

type routeTable struct {
	group, name string
	target      string // what a gRPC client dials to get here; empty for a port
	table       *envoy.Table
}

// tablesOf lists the route tables that the groups' listeners name.
func tablesOf(f *schema.Fleet) []routeTable {
	compiled := map[*schema.Resource]*envoy.Table{}
	var out []routeTable
	for i := range f.Groups {
		g := &f.Groups[i]
		for l := range g.Snapshot.Of(schema.Listeners).All() {
			target := ""
			if msg, err := envoy.Unpack(l); err == nil {
				if lis, ok := msg.(*listenerv3.Listener); ok && lis.GetApiListener() != nil {
					target = l.Name
				}
			}
			for _, ref := range l.Refs {
				r := g.Snapshot.Get(ref.Key)
				if ref.Type != schema.Routes || r == nil {
					continue
				}
				if compiled[r] == nil {
					msg, err := envoy.Unpack(r)
					rc, ok := msg.(*routev3.RouteConfiguration)
					if err != nil || !ok {
						continue // made by this package, so it does not happen
					}
					compiled[r] = envoy.NewTable(rc)
				}
				out = append(out, routeTable{g.Name, r.Name, target, compiled[r]})
			}
		}
	}
	return out
}

// run runs a test, if the table has a host for it. A gRPC client gets to a table
// by its target alone.
func (t *routeTable) run(test schema.RouteTest) (TestResult, bool) {
	if t.target != "" && !strings.EqualFold(t.target, test.Request.Host) {
		return TestResult{}, false
	}
	d := t.table.Match(test.Request)
	if d.VirtualHost == "" {
		return TestResult{}, false
	}
	r := TestResult{Test: test, Group: t.group, Table: t.name, Expected: expected(test.Expect)}
	r.Actual, r.OK = actual(d), met(test.Expect, d)
	r.Route = d.VirtualHost
	if d.Route != "" {
		r.Route += " " + d.Route
	}
	return r, true
}

func expected(e schema.Expect) string {
	switch {
	case e.Service != "":
		return quoted("service", e.Service)
	case e.Split != nil:
		return "split " + splitWords(e.Split)
	case e.Redirect != "":
		return "redirect to " + e.Redirect
	}
	return fmt.Sprintf("status %d", e.Status)
}

func actual(d envoy.Decision) string {
	switch d.Kind {
	case envoy.Forward:
		if d.Split != nil {
			return "split " + splitWords(d.Split)
		}
		return quoted("service", d.Cluster)
	case envoy.Redirect:
		return fmt.Sprintf("redirect to %s (status %d)", d.Redirect, d.Status)
	case envoy.Local:
		return "the server itself"
	case envoy.None:
		return fmt.Sprintf("status %d: no route matches", d.Status)
	}
	return fmt.Sprintf("status %d", d.Status)
}

func splitWords(split map[string]uint32) string {
	var parts []string
	for name, w := range sorted(split) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, w))
	}
	return strings.Join(parts, ", ")
}

// met reports whether a decision is the one expected. Weights are relative, and
// a service of weight 0 gets nothing.
func met(e schema.Expect, d envoy.Decision) bool {
	switch {
	case e.Service != "":
		return d.Kind == envoy.Forward && d.Cluster == e.Service
	case e.Split != nil:
		got := d.Split
		if got == nil && d.Kind == envoy.Forward {
			got = map[string]uint32{d.Cluster: 1}
		}
		return sameShares(e.Split, got)
	case e.Redirect != "":
		return d.Kind == envoy.Redirect && d.Redirect == e.Redirect
	}
	return d.Kind != envoy.Forward && d.Kind != envoy.Local && d.Status == e.Status
}

func sameShares(a, b map[string]uint32) bool {
	var sumA, sumB uint64
	for _, w := range a {
		sumA += uint64(w)
	}
	for _, w := range b {
		sumB += uint64(w)
	}
	for name := range a {
		if uint64(a[name])*sumB != uint64(b[name])*sumA {
			return false
		}
	}
	for name := range b {
		if b[name] > 0 && a[name] == 0 {
			return false
		}
	}
	return sumA > 0 && sumB > 0
}
