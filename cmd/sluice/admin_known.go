package main

import (
	"maps"
	"slices"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// known is what a session is led to, and where that comes from.
type known struct {
	releases []reconcile.Release
	live     schema.Snapshot
	wildcard [schema.NumTypes]bool
	roots    []string // the listeners that the client asked for by name
	goal     schema.Snapshot
	newest   *reconcile.Release // that goal is of
	base     *reconcile.Release // what its group finished last
}

func newKnown(st *reconcile.Status, s *schema.SessionRow, types []*schema.TypeRow) *known {
	k := &known{}
	k.releases, k.live = st.Releases(s.Group)
	aims := []string{s.Commit}
	g := st.Group(s.Group)
	if g != nil {
		aims = append(aims, g.Goal())
	}
	for _, commit := range aims {
		if r := k.release(commit); r != nil {
			k.goal, k.newest = r.Group.Snapshot, r
		}
	}
	if g != nil {
		k.base = k.release(g.Base)
	}
	for _, row := range types {
		k.wildcard[row.Type] = row.Wildcard
		if row.Type == schema.Listeners && !row.Wildcard {
			k.roots = namesOf(row.ServedSet)
		}
	}
	return k
}

func (k *known) release(commit string) *reconcile.Release {
	for i := range k.releases {
		if k.releases[i].Commit == commit {
			return &k.releases[i]
		}
	}
	return nil
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
	var all []schema.Origin
	if k.newest != nil {
		all = k.newest.Origins[key]
	}
	for i := 0; len(all) == 0 && i < len(k.releases); i++ {
		all = k.releases[i].Origins[key]
	}
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

// blame finds the lines that a refusal is about: those of the halt, if it is the
// same.
func (k *known) blame(n *schema.Nack, g *reconcile.GroupStatus) []schema.Origin {
	if h := g.Halt; h != nil && h.Nack != nil && h.Nack.At.Equal(n.At) {
		return h.Origins
	}
	if k.newest == nil {
		return nil
	}
	return k.newest.Blame(n, k.base)
}

func namesOf(set schema.Set) []string {
	var names []string
	for r := range set.All() {
		names = append(names, r.Name)
	}
	return names
}

func sortedNames(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
