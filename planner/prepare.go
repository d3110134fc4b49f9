package planner

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// A listener that gains a filter which refuses requests would refuse all until
// its routes say which to let through: they arrive a stage later. So what the
// target's tables say of filters that listeners gain goes before, into the tables
// that the session routes by (rule P4). On the way out the order is the usual one:
// first the listener, then its routes.

// gainedFilters lists, by route table, the filters that listeners gain which name
// the table in the target.
func gainedFilters(now, target schema.Snapshot) map[string][]string {
	gained := map[string][]string{}
	for old, l := range schema.Diff(now.Of(schema.Listeners), target.Of(schema.Listeners)) {
		tables := tablesOf(l)
		if len(tables) == 0 {
			continue
		}
		had, err1 := filtersOf(old)
		has, err2 := filtersOf(l)
		if err1 != nil || err2 != nil {
			continue // Prove reports what cannot be read
		}
		for _, f := range has {
			for _, k := range tables {
				if !slices.Contains(had, f) && !slices.Contains(gained[k.Name], f) {
					gained[k.Name] = append(gained[k.Name], f)
				}
			}
		}
	}
	return gained
}

// prepared are the tables that the session may hold, with what the target says of
// the filters that their listeners gain.
func (f *finder) prepared() schema.Snapshot {
	next := f.now
	for name, filters := range gainedFilters(f.now, f.target) {
		k := schema.Key{Type: schema.Routes, Name: name}
		old, r := f.now.Get(k), f.target.Get(k)
		if old == nil || r == nil || same(old, r) {
			continue
		}
		if made := preparedFor(old, r, filters); made != nil { // else hazard filter-order
			next = next.Replace(schema.Routes, next.Of(schema.Routes).With(made))
		}
	}
	return next
}

// filterOrders finds listeners that gain a filter before their tables can say
// which requests it lets through.
func (hs *hazards) filterOrders(p *schema.Path) {
	gained := gainedFilters(p.From, p.Target.Snapshot)
	for name, filters := range gained {
		k := schema.Key{Type: schema.Routes, Name: name}
		old, r := p.From.Get(k), p.Target.Snapshot.Get(k)
		if old == nil || r == nil || same(old, r) {
			continue
		}
		if preparedFor(old, r, filters) != nil {
			continue
		}
		slices.Sort(filters)
		hs.add("filter-order", k, "merge what the routes say of the filter first, and the filter itself after that has converged",
			"a listener gains the filter %s, and %s changes its routes along with what they say of it: until the new routes come, the filter judges requests by the old ones, without that",
			quotedList(filters), k)
	}
}
