package schema

import "iter"

// Snapshot is an immutable set of resources of all types: what a session is to
// hold. Of live types it holds the keys alone. The zero Snapshot is empty.
type Snapshot struct{ sets [NumTypes]Set }

// SnapshotOf makes a snapshot.
func SnapshotOf(rs ...*Resource) Snapshot {
	var by [NumTypes][]*Resource
	for _, r := range rs {
		by[r.Type] = append(by[r.Type], r)
	}
	var s Snapshot
	for t := range by {
		s.sets[t] = SetOf(by[t]...)
	}
	return s
}

// Of is the snapshot's set of one type.
func (s Snapshot) Of(t Type) Set { return s.sets[t] }

// Get finds a resource by key, or returns nil.
func (s Snapshot) Get(k Key) *Resource { return s.sets[k.Type].Get(k.Name) }

// Replace is the snapshot with another set of one type.
func (s Snapshot) Replace(t Type, set Set) Snapshot {
	s.sets[t] = set
	return s
}

// Union holds what either holds; where both name a resource, o wins.
func (s Snapshot) Union(o Snapshot) Snapshot {
	for t := range s.sets {
		s.sets[t] = s.sets[t].Union(o.sets[t])
	}
	return s
}

// Equal reports whether both hold the same keys at the same versions.
func (s Snapshot) Equal(o Snapshot) bool {
	for t := range s.sets {
		if !s.sets[t].Equal(o.sets[t]) {
			return false
		}
	}
	return true
}

// Len is the number of resources of all types.
func (s Snapshot) Len() int {
	n := 0
	for t := range s.sets {
		n += s.sets[t].Len()
	}
	return n
}

// ID identifies the content: comparable, and equal for equal snapshots.
type ID [NumTypes]Sum

// ID is the snapshot's identity, in constant time.
func (s Snapshot) ID() ID {
	var id ID
	for t := range s.sets {
		id[t] = s.sets[t].Sum()
	}
	return id
}

// Version folds the identity to 16 digits.
func (s Snapshot) Version() Version {
	var sum Sum
	for t := range s.sets {
		part := s.sets[t].Sum()
		// Each type has a multiplier of its own, so that content that moves
		// from one type to another changes the result.
		k := uint64(2*t + 1)
		sum = sum.plus(Sum{part.lo * k, part.hi * k})
	}
	return sum.Version()
}

// All yields every resource: types in the order in which they are made, names
// in theirs.
func (s Snapshot) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		for t := range s.sets {
			if !s.sets[t].root.walk(yield) {
				return
			}
		}
	}
}

// DiffAll yields (old, new) for each key whose version differs, as Diff does.
func DiffAll(a, b Snapshot) iter.Seq2[*Resource, *Resource] {
	return func(yield func(*Resource, *Resource) bool) {
		for t := range a.sets {
			if !diff(a.sets[t].root, b.sets[t].root, false, yield) {
				return
			}
		}
	}
}

// Dangle is a reference whose target is missing.
type Dangle struct {
	From *Resource
	To   Ref
}

// Dangling lists the references that lead out of the snapshot, but for those
// that may. A snapshot without any is closed (rule P2).
func (s Snapshot) Dangling() []Dangle {
	var out []Dangle
	var have [NumTypes]map[string]bool
	for r := range s.All() {
		for _, ref := range r.Refs {
			if ref.Edge == Optional {
				continue
			}
			if have[ref.Type] == nil {
				have[ref.Type] = s.sets[ref.Type].names()
			}
			if !have[ref.Type][ref.Name] {
				out = append(out, Dangle{r, ref})
			}
		}
	}
	return out
}
