package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// routes finds requests that are answered now, and by no route of the target:
// of tables that stay, since a listener that goes says so itself.
func (hs *hazards) routes(p *schema.Path) {
	hosts := p.Target.Snapshot.Of(schema.VirtualHosts)
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		for old, r := range schema.Diff(p.From.Of(t), p.Target.Snapshot.Of(t)) {
			if old == nil || r == nil || routesElsewhere(old, r, hosts) {
				continue
			}
			lost := lostClasses(old, r)
			if len(lost) == 0 {
				continue
			}
			what := "get a 404 then"
			if p.Target.Client == schema.GRPC {
				what = "fail then"
			}
			if answersNothing(r) {
				hs.add("all-routes-lost", r.Key, "remove the listener if nobody should be answered, or leave some route",
					"%s loses its last route: requests to %s are answered now, and %s", r.Key, someOf(lost), what)
				continue
			}
			hs.add("routes-lost", r.Key, "leave a route for them until nobody asks any more, or answer them on purpose (redirect, respond)",
				"%s loses routes: requests to %s are answered now, and %s", r.Key, someOf(lost), what)
		}
	}
}

// lostClasses are the classes of requests that a table answers and its next
// version does not, in words.
func lostClasses(old, r *schema.Resource) (lost []string) {
	// A table that cannot be read loses nothing that could be told: Prove
	// reports it.
	_ = classes(old, r, func(domains []string, l envoy.RouteLine, was, is Answer, note string) {
		if note == "" && was.served() && !is.served() {
			lost = append(lost, domains[0]+" "+l.Match)
		}
	})
	return lost
}

// served reports whether an answer is any but that nothing is there.
func (a Answer) served() bool {
	return a.Status != 404 && !a.equal(Answer{})
}

// answersNothing reports whether a table has no route at all.
func answersNothing(r *schema.Resource) bool {
	t, err := readTraffic(r)
	if err != nil {
		return false
	}
	for i := range t.list {
		if h, err := t.host(i); err != nil || len(h.lines) > 0 {
			return false
		}
	}
	return true
}

// routesElsewhere reports whether what a resource says itself of routes is not all:
// it comes to refer to tables that it did not refer to, or gives some of its
// virtual hosts one by one.
func routesElsewhere(old, r *schema.Resource, hosts schema.Set) bool {
	for h := range hosts.All() {
		if strings.HasPrefix(h.Name, r.Name+"/") {
			return true
		}
	}
	return slices.ContainsFunc(r.Refs, func(ref schema.Ref) bool {
		return ref.Type > schema.Listeners && ref.Type < schema.Runtimes && !refers(old, ref.Key)
	})
}

// someOf names the first few.
func someOf(all []string) string {
	const few = 3
	if n := len(all) - few; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), n)
	}
	return strings.Join(all, ", ")
}
