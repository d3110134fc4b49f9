package schema

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"
)

// Set is an immutable set of resources of one type, ordered by name. Sets made
// from one another share structure, and equal sets have equal shapes, so that
// comparing two costs what differs and not what they hold.
//
// It is a treap whose priorities are hashes of the names: the shape is a
// function of the content. The zero Set is empty.
type Set struct{ root *treap }

type treap struct {
	res         *Resource
	left, right *treap
	n           int
	sum         Sum
	// referrers is the index of the set whose root this is, once it was asked
	// for: a function of the set, so that it is no matter who stores it first.
	referrers atomic.Pointer[index]
}

func join(res *Resource, left, right *treap) *treap {
	t := &treap{res: res, left: left, right: right, n: 1, sum: res.sum}
	for _, c := range [...]*treap{left, right} {
		if c != nil {
			t.n += c.n
			t.sum = t.sum.plus(c.sum)
		}
	}
	return t
}

// above reports whether a stands nearer to the root than b.
func above(a, b *Resource) bool {
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	return a.Name < b.Name
}

// SetOf makes a set. Of two resources of one name the later wins.
func SetOf(rs ...*Resource) Set {
	sorted := slices.Clone(rs)
	slices.SortStableFunc(sorted, func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) })
	out := sorted[:0]
	for i, r := range sorted {
		if i+1 < len(sorted) && sorted[i+1].Name == r.Name {
			continue
		}
		out = append(out, r)
	}
	return Set{build(out)}
}

// build makes a treap of sorted, distinct resources.
func build(rs []*Resource) *treap {
	if len(rs) == 0 {
		return nil
	}
	top := 0
	for i, r := range rs {
		if above(r, rs[top]) {
			top = i
		}
	}
	return join(rs[top], build(rs[:top]), build(rs[top+1:]))
}

// Len is the number of resources.
func (s Set) Len() int {
	if s.root == nil {
		return 0
	}
	return s.root.n
}

// Sum is the hash of the set's (name, version) pairs.
func (s Set) Sum() Sum {
	if s.root == nil {
		return Sum{}
	}
	return s.root.sum
}

// Version is Sum as it goes on the wire.
func (s Set) Version() Version { return s.Sum().Version() }

// Equal reports whether both sets hold the same names at the same versions.
func (s Set) Equal(o Set) bool { return s.root.same(o.root) }

func (t *treap) same(o *treap) bool {
	return t == o || t != nil && o != nil && t.n == o.n && t.sum == o.sum
}

// Get finds a resource by name, or returns nil.
func (s Set) Get(name string) *Resource {
	for t := s.root; t != nil; {
		switch c := strings.Compare(name, t.res.Name); {
		case c == 0:
			return t.res
		case c < 0:
			t = t.left
		default:
			t = t.right
		}
	}
	return nil
}

func (s Set) names() map[string]bool {
	names := make(map[string]bool, s.Len())
	for r := range s.All() {
		names[r.Name] = true
	}
	return names
}

// All yields the resources, sorted by name.
func (s Set) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) { s.root.walk(yield) }
}

func (t *treap) walk(yield func(*Resource) bool) bool {
	return t == nil || t.left.walk(yield) && yield(t.res) && t.right.walk(yield)
}

// With is the set with r in place of any resource of its name.
func (s Set) With(r *Resource) Set { return s.Union(Set{join(r, nil, nil)}) }

// Without is the set without a name.
func (s Set) Without(name string) Set {
	if s.Get(name) == nil {
		return s
	}
	l, _, r := s.root.split(name)
	return Set{meet(l, r)}
}

// Union holds what either set holds; where both name a resource, o wins.
func (s Set) Union(o Set) Set { return Set{union(s.root, o.root)} }

// Filter holds what keep accepts.
func (s Set) Filter(keep func(*Resource) bool) Set {
	var out []*Resource
	for r := range s.All() {
		if keep(r) {
			out = append(out, r)
		}
	}
	if len(out) == s.Len() {
		return s
	}
	return Set{build(out)}
}

// Only holds the resources that names lists; names that s lacks are passed over.
func (s Set) Only(names []string) Set {
	out := make([]*Resource, 0, min(len(names), s.Len()))
	sorted := true
	for i, n := range names {
		if r := s.Get(n); r != nil {
			out = append(out, r)
		}
		sorted = sorted && (i == 0 || names[i-1] < n)
	}
	if len(out) == s.Len() && sorted {
		return s
	}
	if !sorted {
		return SetOf(out...)
	}
	return Set{build(out)}
}

// Diff yields (old, new) for each name whose version differs between two sets,
// in the order of names. Old is nil for what b adds, new for what it lacks.
func Diff(a, b Set) iter.Seq2[*Resource, *Resource] {
	return func(yield func(*Resource, *Resource) bool) { diff(a.root, b.root, false, yield) }
}

// diff yields what differs between two treaps: in its version or, to be exact, in
// anything, such as references that may dangle in one of them only.
func diff(a, b *treap, exact bool, yield func(_, _ *Resource) bool) bool {
	switch {
	case a == b:
		return true
	case a == nil:
		return b.walk(func(r *Resource) bool { return yield(nil, r) })
	case b == nil:
		return a.walk(func(r *Resource) bool { return yield(r, nil) })
	case !exact && a.same(b):
		return true
	case a.res.Name == b.res.Name:
		return diff(a.left, b.left, exact, yield) &&
			(a.res == b.res || !exact && a.res.Version == b.res.Version || yield(a.res, b.res)) &&
			diff(a.right, b.right, exact, yield)
	case above(a.res, b.res):
		l, _, r := b.split(a.res.Name)
		return diff(a.left, l, exact, yield) && yield(a.res, nil) && diff(a.right, r, exact, yield)
	default:
		l, _, r := a.split(b.res.Name)
		return diff(l, b.left, exact, yield) && yield(nil, b.res) && diff(r, b.right, exact, yield)
	}
}

// union shares whatever part of a or b the result is equal to.
func union(a, b *treap) *treap {
	if a == nil || a == b {
		return b
	}
	if b == nil {
		return a
	}
	if a.same(b) {
		return b
	}
	top := a
	if a.res.Name == b.res.Name || above(b.res, a.res) {
		top = b
	}
	al, _, ar := a.around(top)
	bl, _, br := b.around(top)
	l, r := union(al, bl), union(ar, br)
	for _, whole := range [...]*treap{b, a} {
		if whole.res.sum == top.res.sum && l.same(whole.left) && r.same(whole.right) {
			return whole
		}
	}
	return join(top.res, l, r)
}

// around splits t at the name of top, which is t itself or stands elsewhere.
func (t *treap) around(top *treap) (*treap, *Resource, *treap) {
	if t == top || t.res.Name == top.res.Name {
		return t.left, t.res, t.right
	}
	return t.split(top.res.Name)
}

// split parts t into what sorts before a name, the resource of that name or
// nil, and what sorts after.
func (t *treap) split(name string) (*treap, *Resource, *treap) {
	if t == nil {
		return nil, nil, nil
	}
	switch c := strings.Compare(name, t.res.Name); {
	case c == 0:
		return t.left, t.res, t.right
	case c < 0:
		l, m, r := t.left.split(name)
		if r == t.left {
			return l, m, t
		}
		return l, m, join(t.res, r, t.right)
	default:
		l, m, r := t.right.split(name)
		if l == t.right {
			return t, m, r
		}
		return join(t.res, t.left, l), m, r
	}
}

// meet joins two treaps of which every name in l sorts before every name in r.
func meet(l, r *treap) *treap {
	switch {
	case l == nil:
		return r
	case r == nil:
		return l
	case above(l.res, r.res):
		return join(l.res, l.left, meet(l.right, r))
	default:
		return join(r.res, meet(l, r.left), r.right)
	}
}
