package compile

import (
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// coverage counts the tests that each rule decides. A rule is what an author
// wrote: on however many listeners and hosts it is, one test there covers it.
type coverage struct {
	rules []*coveredRule
	// at finds the rule behind each route of a virtual host.
	at map[hostKey][]*coveredRule
}

type hostKey struct {
	in          schema.Key // the resource
	table, host string
}

type coveredRule struct {
	RuleCoverage
	by map[string]bool // names of tests
}

func newCoverage(f *schema.Fleet, tables []routeTable) *coverage {
	c := &coverage{at: map[hostKey][]*coveredRule{}}
	authored := map[schema.Pos]*coveredRule{}
	for i := range tables {
		t := &tables[i]
		rules := rulesOf(f.Provenance[t.key])
		for _, h := range t.message.GetVirtualHosts() {
			key := hostKey{t.key, t.name, h.GetName()}
			if c.at[key] != nil {
				continue // another group has the table too
			}
			places := placesOf(rules, h.GetName(), len(h.GetRoutes()))
			for i, r := range h.GetRoutes() {
				at, words, whole := f.Provenance.Of(t.key).Pos, routeWords(h.GetName(), r.GetName()), false
				switch {
				case i < len(places):
					at, whole = places[i], true
				case r.GetName() == redirectName: // one for all hosts: the listener's word
					words, whole = redirectName, true
				}
				u := authored[at]
				if u == nil || !whole {
					u = &coveredRule{RuleCoverage{Pos: at, Route: words}, map[string]bool{}}
					c.rules = append(c.rules, u)
				}
				if whole {
					authored[at] = u
				}
				c.at[key] = append(c.at[key], u)
			}
		}
	}
	return c
}

// rulesOf are the lines of each entry's rules, in their order.
func rulesOf(origins []schema.Origin) map[string][]schema.Pos {
	rules := map[string][]schema.Pos{}
	for _, o := range origins {
		if o.Kind == "route" && strings.HasPrefix(o.Field, "rules[") {
			rules[o.Name] = append(rules[o.Name], o.Pos)
		}
	}
	return rules
}

// placesOf are the lines of a generated virtual host's rules, in their order, or
// nil if its routes are not those of entries as they stand: its author's own
// message, or a patch. The host's name is that of its entries.
func placesOf(rules map[string][]schema.Pos, host string, routes int) []schema.Pos {
	var find func(rest string) []schema.Pos
	find = func(rest string) []schema.Pos {
		if all := rules[rest]; all != nil {
			return all
		}
		for i := range len(rest) {
			if rest[i] == '+' && rules[rest[:i]] != nil {
				if more := find(rest[i+1:]); more != nil {
					return slices.Concat(rules[rest[:i]], more)
				}
			}
		}
		return nil
	}
	places := find(host)
	if len(places) != routes && len(places)+1 != routes { // one may be the redirect to https
		return nil
	}
	return places
}

// hit notes that a test was decided by a route.
func (c *coverage) hit(test string, t *routeTable, d envoy.Decision) {
	rules := c.at[hostKey{t.key, t.name, d.VirtualHost}]
	if d.Index >= 0 && d.Index < len(rules) {
		rules[d.Index].by[test] = true
	}
}

func (c *coverage) sorted() []RuleCoverage {
	var out []RuleCoverage
	for _, u := range c.rules {
		u.Tests = len(u.by)
		out = append(out, u.RuleCoverage)
	}
	slices.SortStableFunc(out, func(a, b RuleCoverage) int {
		switch {
		case less(a.Pos, b.Pos):
			return -1
		case less(b.Pos, a.Pos):
			return 1
		}
		return strings.Compare(a.Route, b.Route)
	})
	return out
}
