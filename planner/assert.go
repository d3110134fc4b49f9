package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// Assertion is a route test along a path, at one listener (rule P10): each step
// must give the old answer or the new one.
type Assertion struct {
	Test     schema.RouteTest
	Listener string
	// Answers are in words, as before the first stage and at each of the path:
	// "api 90, api-v2 10", "status 404". An empty one is none: no table of the
	// listener is for the request's host, or the listener is not there.
	Answers []string
	// Broken are the stages, counted from 0, that give another answer than the
	// old one or the new one.
	Broken []int
}

// Assert runs route tests at each step of a path, on each listener that answers
// for their host. Tests that no listener answers have no assertion.
func Assert(p *schema.Path, tests []schema.RouteTest) []Assertion {
	if len(tests) == 0 {
		return nil
	}
	c := tableCache{}
	var steps []map[string][]*envoy.Table
	names := map[string]bool{}
	for i := schema.Before; i < len(p.Stages); i++ {
		at := c.listeners(p.At(i))
		steps = append(steps, at)
		for l := range at {
			names[l] = true
		}
	}
	var out []Assertion
	for _, t := range tests {
		for _, l := range slices.Sorted(maps.Keys(names)) {
			if p.Target.Client == schema.GRPC && !strings.EqualFold(l, t.Request.Host) {
				continue // a gRPC client comes to a table by its target alone
			}
			if a := along(steps, l, t); a != nil {
				out = append(out, *a)
			}
		}
	}
	return out
}

// along runs a test at a listener, step by step.
func along(steps []map[string][]*envoy.Table, listener string, t schema.RouteTest) *Assertion {
	a := &Assertion{Test: t, Listener: listener}
	answered := false
	for _, at := range steps {
		words := answersAt(at[listener], t.Request)
		answered = answered || words != ""
		a.Answers = append(a.Answers, words)
	}
	if !answered {
		return nil
	}
	old, last := endAnswers(steps[0], listener, t), endAnswers(steps[len(steps)-1], listener, t)
	for i, words := range a.Answers[1:] {
		if !slices.Contains(old, words) && !slices.Contains(last, words) {
			a.Broken = append(a.Broken, i)
		}
	}
	return a
}

// endAnswers are what a listener may answer as far as one end of the path goes:
// its own answer there; of a listener that is not there none, or what others
// answer, since it may share their tables.
func endAnswers(at map[string][]*envoy.Table, listener string, t schema.RouteTest) []string {
	if own, ok := at[listener]; ok {
		return []string{answersAt(own, t.Request)}
	}
	all := []string{""}
	for _, tables := range at {
		all = append(all, answersAt(tables, t.Request))
	}
	return all
}

// answersAt are the answers of all tables that have a host for a request.
func answersAt(tables []*envoy.Table, req schema.Request) string {
	var words []string
	for _, t := range tables {
		if d := t.Match(req); d.VirtualHost != "" {
			words = append(words, decisionWords(d))
		}
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " or ")
}

func decisionWords(d envoy.Decision) string {
	switch d.Kind {
	case envoy.Forward:
		if d.Split == nil {
			return schema.StableName(d.Cluster)
		}
		var parts []string
		for _, c := range slices.Sorted(maps.Keys(d.Split)) {
			parts = append(parts, fmt.Sprintf("%s %d", schema.StableName(c), d.Split[c]))
		}
		return strings.Join(parts, ", ")
	case envoy.Redirect:
		return fmt.Sprintf("redirect to %s (status %d)", d.Redirect, d.Status)
	case envoy.Local:
		return "the node itself"
	}
	return fmt.Sprintf("status %d", d.Status)
}

// tableCache compiles each table once.
type tableCache map[*schema.Resource][]*envoy.Table

// listeners are the tables of each listener of a snapshot.
func (c tableCache) listeners(s schema.Snapshot) map[string][]*envoy.Table {
	hosts := map[string][]*schema.Resource{} // of VHDS, by table
	for vh := range s.Of(schema.VirtualHosts).All() {
		if table, _, ok := strings.Cut(vh.Name, "/"); ok {
			hosts[table] = append(hosts[table], vh)
		}
	}
	out := map[string][]*envoy.Table{}
	for l := range s.Of(schema.Listeners).All() {
		tables := slices.Clone(c.inside(l))
		for _, ref := range l.Refs {
			if r := s.Get(ref.Key); ref.Type == schema.Routes && r != nil {
				tables = append(tables, c.with(r, hosts[r.Name])...)
			}
		}
		if scoped(l) {
			for sr := range s.Of(schema.ScopedRoutes).All() {
				for _, ref := range sr.Refs {
					if r := s.Get(ref.Key); ref.Type == schema.Routes && r != nil {
						tables = append(tables, c.with(r, hosts[r.Name])...)
					}
				}
			}
		}
		if len(tables) > 0 {
			out[l.Name] = tables
		}
	}
	return out
}

// inside are the tables that stand in a resource.
func (c tableCache) inside(r *schema.Resource) []*envoy.Table {
	if t, ok := c[r]; ok {
		return t
	}
	rcs, err := envoy.Tables(r)
	if err != nil {
		rcs = nil // Prove reports what cannot be read
	}
	var out []*envoy.Table
	for _, rc := range rcs {
		out = append(out, envoy.NewTable(rc))
	}
	c[r] = out
	return out
}

// with is a table with the virtual hosts that come apart from it.
func (c tableCache) with(r *schema.Resource, hosts []*schema.Resource) []*envoy.Table {
	if len(hosts) == 0 {
		return c.inside(r)
	}
	msg, err := envoy.Unpack(r)
	rc, ok := msg.(*routev3.RouteConfiguration)
	if err != nil || !ok {
		return nil
	}
	rc = proto.CloneOf(rc)
	for _, h := range hosts {
		if vh, err := envoy.Unpack(h); err == nil {
			if vh, ok := vh.(*routev3.VirtualHost); ok {
				rc.VirtualHosts = append(rc.VirtualHosts, vh)
			}
		}
	}
	return []*envoy.Table{envoy.NewTable(rc)}
}

// scoped reports whether a listener chooses its table by scopes.
func scoped(l *schema.Resource) bool {
	managers, err := envoy.Managers(l)
	return err == nil && slices.ContainsFunc(managers, func(m *hcmv3.HttpConnectionManager) bool { return m.GetScopedRoutes() != nil })
}
