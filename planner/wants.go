package planner

import (
	"iter"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// wants are the gates of a stage: in any order, and with repeats, until they are
// listed.
type wants []schema.Want

// add wants a resource in its version.
func (w *wants) add(r *schema.Resource) { *w = append(*w, schema.Want{Key: r.Key, Version: r.Version}) }

// usable wants that some request could be sent to what is wanted (rule P14).
func (w *wants) usable(k schema.Key) { *w = append(*w, schema.Want{Key: k, Usable: true}) }

// children wants the live resources of r.
func (w *wants) children(r *schema.Resource) {
	for _, ref := range r.Refs {
		if ref.Type.Live() && ref.Edge != schema.Optional {
			*w = append(*w, schema.Want{Key: ref.Key})
		}
	}
}

// list sorts the wants and finds their parents: what refers to them in a
// snapshot, in the version that the session is sure to hold once the gate opens.
// What it only may hold promises no subscription: to wait for one could be to
// wait for ever.
func (w wants) list(sure, next, target schema.Snapshot) []schema.Want {
	if len(w) == 0 {
		return nil
	}
	out := w.merged()
	for _, t := range schema.AllTypes() {
		if !t.Live() && next.Of(t).Len() > 0 {
			out.parents(t, sure.Of(t), next.Of(t), target.Of(t))
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Parents, schema.Key.Compare)
	}
	return out
}

// merged are the wants in the order of their keys, one of each. Of two versions the
// later counts.
func (w wants) merged() wants {
	slices.SortStableFunc(w, func(a, b schema.Want) int { return a.Key.Compare(b.Key) })
	n := 1
	for _, want := range w[1:] {
		last := &w[n-1]
		if want.Key != last.Key {
			w[n] = want
			n++
			continue
		}
		last.Usable = last.Usable || want.Usable
		if want.Version != "" {
			last.Version = want.Version
		}
	}
	return slices.Clone(w[:n])
}

// parents adds those of one type. Who refers to what is known of the target's set,
// and of some on the way to it: of another what differs is looked through.
func (w wants) parents(t schema.Type, sure, next, target schema.Set) {
	known := target
	if next.Indexed() {
		known = next
	}
	whole, certain := next.Equal(known), sure.Equal(next)
	for i := range w {
		for _, name := range known.Referring(w[i].Key) {
			if (whole || same(known.Get(name), next.Get(name))) && (certain || same(sure.Get(name), next.Get(name))) {
				w[i].Parents = append(w[i].Parents, schema.Key{Type: t, Name: name})
			}
		}
	}
	for _, r := range schema.Diff(known, next) {
		if r == nil || !certain && !same(sure.Get(r.Name), r) {
			continue
		}
		for i := range w.of(r) {
			w[i].Parents = append(w[i].Parents, r.Key)
		}
	}
}

// of yields the places of those that r refers to, of wants that are sorted.
func (w wants) of(r *schema.Resource) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(w) < len(r.Refs) {
			for i := range w {
				if r.Refers(w[i].Key) && !yield(i) {
					return
				}
			}
			return
		}
		var last schema.Key
		for _, ref := range r.Refs {
			if ref.Edge == schema.Optional || ref.Key == last {
				continue
			}
			last = ref.Key
			i, ok := slices.BinarySearchFunc(w, ref.Key, func(want schema.Want, k schema.Key) int { return want.Key.Compare(k) })
			if ok && !yield(i) {
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
	var w wants
	for _, t := range made {
		for _, r := range schema.Diff(b.certain.Of(t), b.target.Of(t)) {
			if r != nil {
				w.add(r)
				w.children(r)
			}
		}
	}
	for name := range b.way.gains {
		b.ready(&w, b.target, name)
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

// ready wants a cluster of a snapshot with its members and the endpoints of all. If
// a route gains weight on it, requests must be possible: to its endpoints or, which
// only a plan can tell, to those of some member.
func (b *builder) ready(w *wants, in schema.Snapshot, name string) {
	b.readies(w, in, in.Of(schema.Clusters).Get(name), nil)
}

// readies does so for a cluster, which may be nil, that those above lead to.
func (b *builder) readies(w *wants, in schema.Snapshot, c *schema.Resource, seen map[string]bool) {
	if c == nil {
		return
	}
	w.add(c)
	w.children(c)
	for _, ref := range c.Refs {
		switch {
		case ref.Edge == schema.Optional:
		case b.way.gains[c.Name] && ref.Type == schema.Endpoints:
			w.usable(ref.Key)
		case ref.Type == schema.Clusters && ref.Edge == schema.Traffic:
			if b.way.gains[c.Name] {
				w.usable(c.Key)
			}
			if seen == nil {
				seen = map[string]bool{c.Name: true}
			}
			if !seen[ref.Name] {
				seen[ref.Name] = true
				b.readies(w, in, in.Of(schema.Clusters).Get(ref.Name), seen)
			}
		}
	}
}
