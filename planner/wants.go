package planner

import (
	"iter"
	"maps"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// wants are the gates of a stage.
type wants map[schema.Key]schema.Want

// add wants a resource in its version.
func (w wants) add(r *schema.Resource) {
	w[r.Key] = schema.Want{Key: r.Key, Version: r.Version, Usable: w[r.Key].Usable}
}

// usable wants that some request could be sent to what is wanted (rule P14).
func (w wants) usable(k schema.Key) {
	want := w[k]
	want.Key, want.Usable = k, true
	w[k] = want
}

// list sorts the wants and finds their parents: what refers to them in a
// snapshot, in the version that the session is sure to hold once the gate opens.
// What it only may hold promises no subscription: to wait for one could be to
// wait for ever. Most of a snapshot is the target's, of which the referrers are
// known; the rest is looked through.
func (w wants) list(sure, next, target schema.Snapshot) []schema.Want {
	if len(w) == 0 {
		return nil
	}
	parents := make(map[schema.Key][]schema.Key, len(w))
	for _, t := range schema.AllTypes() {
		if t.Live() || next.Of(t).Len() == 0 {
			continue
		}
		add := func(to schema.Key, r *schema.Resource) {
			if same(sure.Get(r.Key), r) {
				parents[to] = append(parents[to], r.Key)
			}
		}
		for k := range w {
			for _, r := range target.Of(t).Referrers(k) {
				if same(next.Get(r.Key), r) {
					add(k, r)
				}
			}
		}
		for _, r := range schema.Diff(target.Of(t), next.Of(t)) {
			for k := range w.of(r) {
				add(k, r)
			}
		}
	}
	out := make([]schema.Want, 0, len(w))
	for k, want := range w {
		want.Parents = parents[k]
		slices.SortFunc(want.Parents, schema.Key.Compare)
		out = append(out, want)
	}
	slices.SortFunc(out, func(a, b schema.Want) int { return a.Key.Compare(b.Key) })
	return out
}

// of yields those that r refers to. It is nil where something goes.
func (w wants) of(r *schema.Resource) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		if r == nil {
			return
		}
		if 8*len(w) < len(r.Refs) {
			for k := range w {
				if r.Refers(k) && !yield(k) {
					return
				}
			}
			return
		}
		for _, ref := range r.Refs {
			if _, ok := w[ref.Key]; ok && ref.Edge != schema.Optional && !yield(ref.Key) {
				return
			}
		}
	}
}

// makes wants, of the first stage: the target's resources that the session is
// not sure to hold, with the endpoints of each cluster among them; every cluster
// that a route gains weight on; and the clusters of whatever may stand in place
// of what was acknowledged, since a later stage may serve it (rule P3).
func (b *builder) makes(next schema.Snapshot) wants {
	w := wants{}
	for _, t := range made {
		for _, r := range schema.Diff(b.certain.Of(t), b.target.Of(t)) {
			if r != nil {
				w.add(r)
				w.children(r)
			}
		}
	}
	for name := range b.gains {
		b.ready(w, b.target, name)
	}
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		for _, r := range schema.Diff(b.certain.Of(t), b.now.Of(t)) {
			if r == nil {
				continue
			}
			for _, ref := range r.Refs {
				to := next.Get(ref.Key)
				if to == nil || to.Body == nil { // it cannot be sent
					continue
				}
				if ref.Type == schema.Clusters && !same(b.certain.Get(ref.Key), to) {
					w.add(to)
				}
			}
		}
	}
	return w
}

// children wants the live resources of r.
func (w wants) children(r *schema.Resource) {
	for _, ref := range r.Refs {
		if ref.Type.Live() && ref.Edge != schema.Optional {
			w[ref.Key] = schema.Want{Key: ref.Key, Usable: w[ref.Key].Usable}
		}
	}
}

// follow wants what wanted listeners and scoped routes are made of: tables,
// secrets and extensions. A client that holds the parent may have had no use for
// the child before, and so never have asked for it.
func (b *builder) follow(w wants, next schema.Snapshot) {
	for _, k := range sorted(w) {
		if k.Type != schema.Listeners && k.Type != schema.ScopedRoutes {
			continue
		}
		r := next.Get(k)
		w.children(r)
		for _, ref := range r.Refs {
			if to := next.Get(ref.Key); ref.Edge == schema.Child && !ref.Type.Live() && same(b.certain.Get(ref.Key), to) {
				w.add(to)
			}
		}
	}
}

// sorted lists the keys, so that a caller may add some.
func sorted(w wants) []schema.Key { return slices.SortedFunc(maps.Keys(w), schema.Key.Compare) }

// ready wants a cluster of a snapshot with its members and the endpoints of all. If
// a route gains weight on it, requests must be possible: to its endpoints or, which
// only a plan can tell, to those of some member.
func (b *builder) ready(w wants, in schema.Snapshot, name string) {
	c := in.Of(schema.Clusters).Get(name)
	if c == nil {
		return
	}
	w.add(c)
	w.children(c)
	for _, ref := range c.Refs {
		switch {
		case ref.Edge == schema.Optional:
		case b.gains[name] && ref.Type == schema.Endpoints:
			w.usable(ref.Key)
		case ref.Type == schema.Clusters && ref.Edge == schema.Traffic:
			if b.gains[name] {
				w.usable(c.Key)
			}
			if _, seen := w[ref.Key]; !seen {
				b.ready(w, in, ref.Name)
			}
		}
	}
}
