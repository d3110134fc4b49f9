package planner

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// A gRPC client asks for a cluster only when a route names it, and swaps the
// route before the new cluster's balancer is ready. A warm route names the
// cluster first, behind a match that never fires, and names what traffic leaves
// for one stage longer: to drop that in the same step would swap the balancer
// under requests that are under way (rules P6, G9). What is named once stays so
// until the tables cool.

// names are clusters by virtual host.
type names map[string][]string

// replaced lists, by the name of each of the target's tables that changes, what
// the session may hold in its place: other versions of it, and the tables that
// listeners leave for it.
func (f *finder) replaced() map[string][]*schema.Resource {
	befores := map[string][]*schema.Resource{}
	add := func(name string, old *schema.Resource) {
		if old != nil && f.target.Of(schema.Routes).Get(name) != nil && !slices.ContainsFunc(befores[name], func(o *schema.Resource) bool { return o.Key == old.Key && same(o, old) }) {
			befores[name] = append(befores[name], old)
		}
	}
	for _, s := range [...]schema.Snapshot{f.from.Acked, f.now} {
		for old, r := range schema.Diff(s.Of(schema.Routes), f.target.Of(schema.Routes)) {
			if r != nil {
				add(r.Name, old)
			}
		}
		f.leaves(s, func(left, taken schema.Key) {
			add(taken.Name, f.from.Acked.Get(left))
			add(taken.Name, f.now.Get(left))
		})
	}
	return befores
}

// leaves lists the tables that listeners of a snapshot leave for others of the
// target.
func (f *finder) leaves(s schema.Snapshot, each func(left, taken schema.Key)) {
	for old, l := range schema.Diff(s.Of(schema.Listeners), f.target.Of(schema.Listeners)) {
		for _, left := range tablesOf(old) {
			for _, taken := range tablesOf(l) {
				if !slices.Contains(tablesOf(l), left) && !slices.Contains(tablesOf(old), taken) {
					each(left, taken)
				}
			}
		}
	}
}

func tablesOf(l *schema.Resource) []schema.Key {
	var keys []schema.Key
	if l != nil {
		for _, ref := range l.Refs {
			if ref.Type == schema.Routes {
				keys = append(keys, ref.Key)
			}
		}
	}
	return keys
}

// warm makes the tables that the session holds ready for what comes: with what
// the target says of filters that their listeners gain and, of gRPC clients, with
// the clusters that the target's tables in their place will send to.
func (f *finder) warm() {
	st := step{kind: schema.Warm, sets: f.prepared()}
	if f.client == schema.GRPC {
		f.warmed(&st)
	}
	for _, r := range schema.Diff(f.now.Of(schema.Routes), st.sets.Of(schema.Routes)) {
		if !same(f.certain.Get(r.Key), r) {
			st.wants.add(r)
		}
	}
	f.step(st)
}

// warmed names clusters in the tables of a step.
func (f *finder) warmed(st *step) {
	stand := st.sets.Of(schema.Routes)
	var tables []*schema.Resource
	for name, clusters := range f.cold() {
		r := stand.Get(name)
		for _, h := range warmHosts(r) {
			clusters[h.host] = append(clusters[h.host], h.clusters...)
		}
		warmed := warmedWith(r, clusters)
		if warmed == nil {
			continue // Prove reports a table that cannot be read
		}
		tables = append(tables, warmed)
		if same(f.certain.Get(warmed.Key), warmed) {
			continue // acknowledged, and its clusters with it
		}
		st.wants.add(warmed)
		for _, cs := range clusters {
			st.clusters = append(st.clusters, cs...)
		}
	}
	st.sets = st.sets.Replace(schema.Routes, stand.Union(schema.SetOf(tables...)))
}

// cold lists, by table and virtual host, the clusters that are not named yet.
func (f *finder) cold() map[string]names {
	add := map[string]names{}
	for name, befores := range f.befores {
		r := f.target.Of(schema.Routes).Get(name)
		for _, old := range befores {
			f.missing(add, r, f.now.Get(old.Key), false)
			if own := f.now.Get(r.Key); old.Name != name {
				// The listener takes it as it stands, before the routes switch.
				f.missing(add, own, f.now.Get(old.Key), false)
				// What only may be held comes with the listeners.
				f.missing(add, old, own, f.from.Acked.Get(r.Key) == nil)
			}
		}
	}
	for old, stands := range schema.Diff(f.from.Acked.Of(schema.Routes), f.now.Of(schema.Routes)) {
		if r := f.target.Get(keyOf(old, stands)); r == nil || !f.accepts(r) {
			f.missing(add, old, stands, true) // the session may have either
		}
	}
	return add
}

// comes asks for the clusters that wanted tables name. A client may come to a table
// only now, by a listener that it was not sure to have: then all that the table
// names is warm before traffic moves, as if the client had been there.
func (st *step) comes() {
	for _, want := range st.wants {
		if want.Type != schema.Routes {
			continue
		}
		for _, ref := range st.sets.Get(want.Key).Refs {
			if ref.Type == schema.Clusters && ref.Edge != schema.Optional {
				st.clusters = append(st.clusters, ref.Name)
			}
		}
	}
}

// tables are the target's, of all routed types, as they are served while traffic
// moves: those of gRPC clients go on naming, warm, what traffic leaves. A table
// that the session surely routes by already stands as it is.
func (f *finder) tables() schema.Snapshot {
	var tables schema.Snapshot
	for _, t := range routed {
		tables = tables.Replace(t, f.target.Of(t))
	}
	f.accepted = map[string]bool{}
	var cooling []*schema.Resource
	for name, befores := range f.befores {
		r := f.target.Of(schema.Routes).Get(name)
		if f.accepts(r) {
			f.accepted[name] = true
			cooling = append(cooling, f.now.Get(r.Key))
			continue
		}
		going := map[string]names{}
		for _, old := range befores {
			f.missing(going, f.now.Get(old.Key), r, false)
		}
		if len(going) == 0 {
			continue
		}
		if warmed := warmedWith(r, going[name]); warmed != nil {
			cooling = append(cooling, warmed)
		}
	}
	return tables.Replace(schema.Routes, tables.Of(schema.Routes).Union(schema.SetOf(cooling...)))
}

// accepts reports whether all that the session may hold of a table is the
// target's, but for warm routes.
func (f *finder) accepts(r *schema.Resource) bool {
	if sure := f.certain.Get(r.Key); sure != nil {
		return equalButWarm(sure, r)
	}
	held, maybe := f.from.Acked.Get(r.Key), f.from.Maybe.Get(r.Key)
	return held != nil && equalButWarm(held, r) && (maybe == nil || equalButWarm(maybe, r))
}

// missing adds, by virtual host of table in, the clusters that table from names
// for some of the same domains and in does not send to or, if warm will do, name.
func (f *finder) missing(add map[string]names, from, in *schema.Resource, warm bool) {
	if from == nil || in == nil || from == in {
		return
	}
	for _, h := range missing(from, in, warm) {
		if add[in.Name] == nil {
			add[in.Name] = names{}
		}
		for _, c := range h.clusters {
			if !slices.Contains(add[in.Name][h.host], c) {
				add[in.Name][h.host] = append(add[in.Name][h.host], c)
			}
		}
	}
}
