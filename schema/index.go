package schema

import (
	"iter"
	"maps"
	"slices"
)

// index lists, for one set, who refers to a key: names, sorted. Commits change
// little, so that one index is made of another: it shares all of it, and has what
// differs over it. It holds on to no resource. It is never changed.
type index struct {
	all  [NumTypes]map[string][]string // by the type and the name that is referred to
	over [NumTypes]map[string][]string // of keys that differ from all; nil for nobody
}

func (x *index) of(k Key) []string {
	if x == nil {
		return nil
	}
	if names, ok := x.over[k.Type][k.Name]; ok {
		return names
	}
	return x.all[k.Type][k.Name]
}

// put sets who refers to a key.
func put(m *[NumTypes]map[string][]string, k Key, names []string) {
	if m[k.Type] == nil {
		m[k.Type] = map[string][]string{}
	}
	m[k.Type][k.Name] = names
}

// Referrers lists the resources of the set that refer to a key, but for those
// whose reference may dangle, sorted by name. The first call reads the whole set,
// later ones of the same set or one that shares its root do not.
func (s Set) Referrers(k Key) []*Resource {
	names := s.Referring(k)
	if len(names) == 0 {
		return nil
	}
	out := make([]*Resource, len(names))
	for i, n := range names {
		out[i] = s.Get(n)
	}
	return out
}

// Referring are the names of the Referrers. Callers share them and must not change
// them.
func (s Set) Referring(k Key) []string { return s.indexed().of(k) }

// Indexed reports whether the set has been asked for referrers, or has learned
// them, so that to ask costs little.
func (s Set) Indexed() bool { return s.root == nil || s.root.referrers.Load() != nil }

// Succeed has the set learn who refers to what from the set that it came from, at
// the cost of what differs, instead of reading all of itself when it is asked.
func (s Set) Succeed(from Set) {
	if s.root == nil || from.root == nil || s.root.referrers.Load() != nil {
		return
	}
	if x, ok := from.indexed().next(from, s); ok {
		s.root.referrers.Store(x)
	}
}

// indexed is the index of a set, made if it was not asked for before.
func (s Set) indexed() *index {
	if s.root == nil {
		return nil
	}
	if x := s.root.referrers.Load(); x != nil {
		return x
	}
	x := &index{}
	for r := range s.All() {
		for _, ref := range r.Refs {
			names := x.all[ref.Type][ref.Name]
			if ref.Edge != Optional && (len(names) == 0 || names[len(names)-1] != r.Name) {
				put(&x.all, ref.Key, append(names, r.Name))
			}
		}
	}
	s.root.referrers.Store(x)
	return x
}

// next is the index of a set that came from the one that x is of, unless so much
// differs that it is better made anew.
func (x *index) next(from, to Set) (*index, bool) {
	next := &index{all: x.all}
	has, over := 0, 0
	for t := range x.all {
		has += len(x.all[t])
		over += len(x.over[t])
		next.over[t] = maps.Clone(x.over[t])
	}
	set := func(k Key, names []string) {
		before := len(next.over[k.Type])
		put(&next.over, k, names)
		over += len(next.over[k.Type]) - before
	}
	return next, diff(from.root, to.root, true, func(old, r *Resource) bool {
		for k := range lost(old, r) {
			set(k, slices.DeleteFunc(slices.Clone(next.of(k)), func(n string) bool { return n == old.Name }))
		}
		for k := range lost(r, old) {
			names := next.of(k)
			if i, ok := slices.BinarySearch(names, r.Name); !ok {
				set(k, slices.Insert(slices.Clone(names), i, r.Name))
			}
		}
		return over <= has/8+64
	})
}

// lost yields the keys that a refers to and b does not. Either may be nil.
func lost(a, b *Resource) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		if a == nil {
			return
		}
		var theirs []Ref
		if b != nil {
			theirs = b.Refs
		}
		for _, ref := range a.Refs {
			if ref.Edge == Optional {
				continue
			}
			for len(theirs) > 0 && (theirs[0].Edge == Optional || theirs[0].Compare(ref.Key) < 0) {
				theirs = theirs[1:]
			}
			if (len(theirs) == 0 || theirs[0].Key != ref.Key) && !yield(ref.Key) {
				return
			}
		}
	}
}
