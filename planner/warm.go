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
func (b *builder) replaced() map[string][]*schema.Resource {
	befores := map[string][]*schema.Resource{}
	add := func(name string, old *schema.Resource) {
		if old != nil && b.target.Of(schema.Routes).Get(name) != nil && !slices.ContainsFunc(befores[name], func(o *schema.Resource) bool { return o.Key == old.Key && same(o, old) }) {
			befores[name] = append(befores[name], old)
		}
	}
	for _, s := range [...]schema.Snapshot{b.from.Acked, b.now} {
		for old, r := range schema.Diff(s.Of(schema.Routes), b.target.Of(schema.Routes)) {
			if r != nil {
				add(r.Name, old)
			}
		}
		b.leaves(s, func(left, taken schema.Key) {
			add(taken.Name, b.from.Acked.Get(left))
			add(taken.Name, b.now.Get(left))
		})
	}
	return befores
}

// leaves lists the tables that listeners of a snapshot leave for others of the
// target.
func (b *builder) leaves(s schema.Snapshot, each func(left, taken schema.Key)) {
	for old, l := range schema.Diff(s.Of(schema.Listeners), b.target.Of(schema.Listeners)) {
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
func (b *builder) warm() {
	next := b.prepared()
	var w wants
	for _, r := range schema.Diff(b.now.Of(schema.Routes), next.Of(schema.Routes)) {
		if !same(b.certain.Get(r.Key), r) {
			w.add(r)
		}
	}
	if b.path.Target.Client == schema.GRPC {
		next = b.warmed(&w, next)
	}
	b.stage(schema.Warm, next, w)
}

// warmed names clusters in the tables of a snapshot.
func (b *builder) warmed(w *wants, next schema.Snapshot) schema.Snapshot {
	for name, clusters := range b.cold() {
		stands := next.Of(schema.Routes).Get(name)
		for _, h := range warmHosts(stands) {
			clusters[h.host] = append(clusters[h.host], h.clusters...)
		}
		warmed := warmedWith(stands, clusters)
		if warmed == nil {
			continue // Prove reports a table that cannot be read
		}
		next = next.Replace(schema.Routes, next.Of(schema.Routes).With(warmed))
		if same(b.certain.Get(warmed.Key), warmed) {
			continue // acknowledged, and its clusters with it
		}
		w.add(warmed)
		for _, cs := range clusters {
			for _, c := range cs {
				b.ready(w, b.now, c)
			}
		}
	}
	return next
}

// cold lists, by table and virtual host, the clusters that are not named yet.
func (b *builder) cold() map[string]names {
	add := map[string]names{}
	for name, befores := range b.befores {
		r := b.target.Of(schema.Routes).Get(name)
		for _, old := range befores {
			b.missing(add, r, b.now.Get(old.Key), false)
			if own := b.now.Get(r.Key); old.Name != name {
				// The listener takes it as it stands, before the routes switch.
				b.missing(add, own, b.now.Get(old.Key), false)
				// What only may be held comes with the listeners.
				b.missing(add, old, own, b.from.Acked.Get(r.Key) == nil)
			}
		}
	}
	for old, stands := range schema.Diff(b.from.Acked.Of(schema.Routes), b.now.Of(schema.Routes)) {
		if r := b.target.Get(keyOf(old, stands)); r == nil || !b.accepts(r) {
			b.missing(add, old, stands, true) // the session may have either
		}
	}
	return add
}

// comes wants the clusters that wanted tables name. A client may come to a table
// only now, by a listener that it was not sure to have: then all that the table
// names is warm before traffic moves, as if the client had been there.
func (b *builder) comes(w *wants, next schema.Snapshot) {
	for _, want := range *w {
		if want.Type != schema.Routes {
			continue
		}
		for _, ref := range next.Get(want.Key).Refs {
			if ref.Type == schema.Clusters && ref.Edge != schema.Optional {
				b.ready(w, next, ref.Name)
			}
		}
	}
}

// tables are the target's, of all routed types, as they are served while traffic
// moves: those of gRPC clients go on naming, warm, what traffic leaves. A table
// that the session surely routes by already stands as it is.
func (b *builder) tables() schema.Snapshot {
	var tables schema.Snapshot
	for _, t := range routed {
		tables = tables.Replace(t, b.target.Of(t))
	}
	b.accepted = map[string]bool{}
	var cooling []*schema.Resource
	for name, befores := range b.befores {
		r := b.target.Of(schema.Routes).Get(name)
		if b.accepts(r) {
			b.accepted[name] = true
			cooling = append(cooling, b.now.Get(r.Key))
			continue
		}
		going := map[string]names{}
		for _, old := range befores {
			b.missing(going, b.now.Get(old.Key), r, false)
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
func (b *builder) accepts(r *schema.Resource) bool {
	if sure := b.certain.Get(r.Key); sure != nil {
		return equalButWarm(sure, r)
	}
	held, maybe := b.from.Acked.Get(r.Key), b.from.Maybe.Get(r.Key)
	return held != nil && equalButWarm(held, r) && (maybe == nil || equalButWarm(maybe, r))
}

// missing adds, by virtual host of table in, the clusters that table from names
// for some of the same domains and in does not send to or, if warm will do, name.
func (b *builder) missing(add map[string]names, from, in *schema.Resource, warm bool) {
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
