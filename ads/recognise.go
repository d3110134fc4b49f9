package ads

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// What a client holds, by the versions that it reports.

// recognise finds the snapshot that a reported version is of: the one that the
// session is assumed to hold, or else the first of those that it may.
func (s *session) recognise(t schema.Type, v schema.Version) (schema.Snapshot, schema.Set, bool) {
	sub := s.types[t].sub
	if s.path != nil {
		if set := s.held.Of(t); sub.pick(set).Version() == v {
			return s.held, set, true
		}
	}
	if set, ok := s.was.at(t, v, sub); ok {
		return s.was.held.Replace(t, set), set, true
	}
	for _, k := range s.trail() {
		if set := k.Of(t); sub.pick(set).Version() == v {
			return k, set, true
		}
	}
	// All of it together is what a session of an unknown version is sent.
	all := known(s.target)
	if set := all.Of(t); sub.pick(set).Version() == v {
		return all, set, true
	}
	return s.recogniseMix(t, v)
}

// mixLimit bounds how many combinations of tables are tried.
const mixLimit = 1 << 12

// recogniseMix finds the tables, each of another snapshot that a session of the group may
// have held, that have a version together: a way that another superseded serves
// some tables of the one and some of the other. Those of the least advanced
// snapshots come first.
func (s *session) recogniseMix(t schema.Type, v schema.Version) (schema.Snapshot, schema.Set, bool) {
	sub, trail := s.types[t].sub, s.trail()
	if sub.Wildcard || sub.Globs || len(trail) == 0 {
		return schema.Snapshot{}, schema.Set{}, false
	}
	choices, n := make([][]*schema.Resource, 0, len(sub.Names)), 1
	for _, name := range sub.Names {
		all := []*schema.Resource{nil} // or none: it may wait for it
		for _, k := range trail {
			r := k.Of(t).Get(name)
			if !slices.ContainsFunc(all, func(o *schema.Resource) bool { return o == r || o != nil && r != nil && o.Version == r.Version }) {
				all = append(all, r)
			}
		}
		choices = append(choices, all)
		if n *= len(all); n > mixLimit {
			return schema.Snapshot{}, schema.Set{}, false
		}
	}
	for i := range n {
		var picked []*schema.Resource
		for _, all := range choices {
			if r := all[i%len(all)]; r != nil {
				picked = append(picked, r)
			}
			i /= len(all)
		}
		if set := schema.SetOf(picked...); set.Version() == v {
			k := trail[0]
			k = k.Replace(t, without(k.Of(t), sub.pick(k.Of(t))).Union(set))
			return k, k.Of(t), true
		}
	}
	return schema.Snapshot{}, schema.Set{}, false
}

// recogniseList finds what a delta client holds by the versions that it lists. What no
// snapshot of the group has at that version is strange.
func (s *session) recogniseList(t schema.Type, req *request) (was schema.Snapshot, set, strange schema.Set) {
	from := slices.Concat([]schema.Snapshot{s.held}, s.was.snapshots(), s.trail())
	for _, k := range from {
		if set := k.Of(t); s.holds(t, set, req) {
			return k, set, schema.Set{}
		}
	}
	var has, other []*schema.Resource
next:
	for _, e := range req.initial {
		for _, k := range from {
			if r := k.Of(t).Get(string(e[0])); r != nil && string(r.Version) == string(e[1]) {
				has = append(has, r)
				continue next
			}
		}
		other = append(other, schema.Restore(schema.Key{Type: t, Name: string(e[0])}, schema.Version(e[1]), nil, nil))
	}
	set = schema.SetOf(has...)
	if len(s.target.Known) > 0 {
		was = s.target.Known[0].Replace(t, set)
	}
	return was, set, schema.SetOf(other...)
}

// holds reports whether the client's list is what it asks for of a set.
func (s *session) holds(t schema.Type, set schema.Set, req *request) bool {
	picked := s.types[t].sub.pick(set)
	if picked.Len() != len(req.initial) {
		return false
	}
	for _, e := range req.initial {
		if r := picked.Get(string(e[0])); r == nil || string(r.Version) != string(e[1]) {
			return false
		}
	}
	return true
}

// trail is what the client may have come back with: also what was on record when it
// came, if it was given another target before it has said all.
func (s *session) trail() []schema.Snapshot { return slices.Concat(s.target.Known, s.earlier) }

// known is everything that a session of the group may hold.
func known(t *schema.Target) schema.Snapshot {
	var all schema.Snapshot
	for i := len(t.Known) - 1; i >= 0; i-- {
		all = t.Known[i].Union(all)
	}
	return all
}
