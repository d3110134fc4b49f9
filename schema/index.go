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
	all  map[Key][]string
	over map[Key][]string // of keys that differ from all; nil for nobody
}

func (x *index) of(k Key) []string {
	if x == nil {
		return nil
	}
	if names, ok := x.over[k]; ok {
		return names
	}
	return x.all[k]
}

// Referrers lists the resources of the set that refer to a key, but for those
// whose reference may dangle, sorted by name. The first call reads the whole set,
// later ones of the same set or one that shares its root do not.
func (s Set) Referrers(k Key) []*Resource {
	names := s.indexed().of(k)
	if len(names) == 0 {
		return nil
	}
	out := make([]*Resource, len(names))
	for i, n := range names {
		out[i] = s.Get(n)
	}
	return out
}

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
	x := &index{all: map[Key][]string{}}
	for r := range s.All() {
		for _, ref := range r.Refs {
			names := x.all[ref.Key]
			if ref.Edge != Optional && (len(names) == 0 || names[len(names)-1] != r.Name) {
				x.all[ref.Key] = append(names, r.Name)
			}
		}
	}
	s.root.referrers.Store(x)
	return x
}

// next is the index of a set that came from the one that x is of, unless so much
// differs that it is better made anew.
func (x *index) next(from, to Set) (*index, bool) {
	next := &index{x.all, maps.Clone(x.over)}
	if next.over == nil {
		next.over = map[Key][]string{}
	}
	most := len(x.all)/8 + 64
	return next, diff(from.root, to.root, true, func(old, r *Resource) bool {
		for k := range lost(old, r) {
			next.over[k] = slices.DeleteFunc(slices.Clone(next.of(k)), func(n string) bool { return n == old.Name })
		}
		for k := range lost(r, old) {
			names := next.of(k)
			if i, ok := slices.BinarySearch(names, r.Name); !ok {
				next.over[k] = slices.Insert(slices.Clone(names), i, r.Name)
			}
		}
		return len(next.over) <= most
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
