package main

import (
	"maps"
	"slices"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// known names the resources behind the versions that the ledger has of a session.
// A version is of a set: that of a release of the group, or of what lies between
// two, as far as the client follows its references.
type known struct {
	releases []reconcile.Release
	live     schema.Snapshot
	between  []schema.Snapshot
	wildcard [schema.NumTypes]bool
	roots    []string // the listeners that the client asked for by name
	goal     schema.Snapshot
	newest   *reconcile.Release // that goal is of
}

func newKnown(st *reconcile.Status, s *schema.SessionRow, types []*schema.TypeRow) *known {
	k := &known{}
	k.releases, k.live = st.Releases(s.Group)
	for i := range k.releases {
		snap := k.releases[i].Group.Snapshot
		k.between = append(k.between, snap)
		if k.releases[i].Commit == s.Commit {
			k.goal, k.newest = snap, &k.releases[i]
		}
	}
	for _, a := range slices.Clone(k.between) {
		for _, b := range k.between[:len(k.releases)] {
			if !a.Equal(b) {
				k.between = append(k.between, a.Union(b))
			}
		}
	}
	if g := groupOf(st, s.Group); g != nil {
		for i := range k.releases {
			if k.releases[i].Commit == goal(g) {
				k.goal, k.newest = k.releases[i].Group.Snapshot, &k.releases[i]
			}
		}
	}
	for _, row := range types {
		k.wildcard[row.Type] = row.Wildcard
	}
	for _, row := range types {
		if row.Type == schema.Listeners && !row.Wildcard {
			if set, ok := k.find(row, row.Acked, row.Held); ok {
				k.roots = namesOf(set)
			}
		}
	}
	return k
}

// find looks for the set of a version. held is its size, or -1.
func (k *known) find(row *schema.TypeRow, v schema.Version, held int) (schema.Set, bool) {
	if v == (schema.Set{}).Version() || v == "" {
		return schema.Set{}, held <= 0
	}
	for _, snap := range k.between {
		whole := k.bodies(snap.Of(row.Type), row.Type)
		if whole.Version() == v {
			return whole, true
		}
		if part := k.bodies(k.follows(snap)[row.Type], row.Type); part.Version() == v {
			return part, true
		}
		if held != 1 {
			continue
		}
		for r := range whole.All() {
			if one := schema.SetOf(r); one.Version() == v {
				return one, true
			}
		}
	}
	return schema.Set{}, false
}

// desired is what the session will hold of a type at the end.
func (k *known) desired(t schema.Type) schema.Set {
	if k.wildcard[t] {
		return k.bodies(k.goal.Of(t), t)
	}
	return k.bodies(k.follows(k.goal)[t], t)
}

// bodies puts the live resources in the place of their keys.
func (k *known) bodies(set schema.Set, t schema.Type) schema.Set {
	if !t.Live() {
		return set
	}
	return k.live.Of(t).Only(namesOf(set))
}

// follows is what a client asks for by following references: from everything of
// a type that it asks for by wildcard, and from the listeners that it names.
func (k *known) follows(snap schema.Snapshot) [schema.NumTypes]schema.Set {
	var names [schema.NumTypes]map[string]bool
	var walk func(r *schema.Resource)
	reach := func(key schema.Key) {
		if r := snap.Get(key); r != nil && !names[key.Type][key.Name] {
			if names[key.Type] == nil {
				names[key.Type] = map[string]bool{}
			}
			names[key.Type][key.Name] = true
			walk(r)
		}
	}
	walk = func(r *schema.Resource) {
		for _, ref := range r.Refs {
			reach(ref.Key)
		}
	}
	for _, t := range schema.AllTypes() {
		if k.wildcard[t] {
			for r := range snap.Of(t).All() {
				reach(r.Key)
			}
		}
	}
	for _, name := range k.roots {
		reach(schema.Key{Type: schema.Listeners, Name: name})
	}
	var out [schema.NumTypes]schema.Set
	for t := range out {
		out[t] = snap.Of(schema.Type(t)).Only(sortedNames(names[t]))
	}
	return out
}

// origin is the line that made a resource, in the newest release if that has it.
func (k *known) origin(key schema.Key) *schema.Origin {
	if k.newest != nil {
		if o, ok := k.newest.Origins[key]; ok {
			return &o
		}
	}
	for i := range k.releases {
		if o, ok := k.releases[i].Origins[key]; ok {
			return &o
		}
	}
	return nil
}

func namesOf(set schema.Set) []string {
	var names []string
	for r := range set.All() {
		names = append(names, r.Name)
	}
	return names
}

func sortedNames(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
