package schema

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"pgregory.net/rapid"
)

func res(name string, version int) *Resource {
	return Restore(Key{Clusters, name}, Version(fmt.Sprintf("%016x", version)), nil, nil)
}

// drawSet draws a set and the map that it should equal.
func drawSet(t *rapid.T, label string) (Set, map[string]*Resource) {
	m := map[string]*Resource{}
	for name, v := range rapid.MapOf(rapid.StringMatching("[a-f]{1,2}"), rapid.IntRange(0, 2)).Draw(t, label) {
		m[name] = res(name, v)
	}
	return SetOf(slices.Collect(maps.Values(m))...), m
}

// check holds a set against a map and against the shape of a fresh build.
func check(t *rapid.T, s Set, want map[string]*Resource) {
	t.Helper()
	names := slices.Sorted(maps.Keys(want))
	i := 0
	for r := range s.All() {
		if i >= len(names) || r.Name != names[i] || r.Version != want[r.Name].Version {
			t.Fatalf("element %d is %s@%s, want the names %v", i, r.Name, r.Version, names)
		}
		i++
	}
	fresh := SetOf(slices.Collect(maps.Values(want))...)
	if i != len(names) || s.Len() != len(names) || s.Sum() != fresh.Sum() || !sameShape(s.root, fresh.root) {
		t.Fatalf("set of %d differs from a fresh one of %d", s.Len(), len(names))
	}
	for _, n := range names {
		if s.Get(n) == nil {
			t.Fatalf("Get(%q) finds nothing", n)
		}
	}
	if s.Get("zzz") != nil {
		t.Fatal("Get finds what is not there")
	}
}

func sameShape(a, b *treap) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.res.Name == b.res.Name && a.n == b.n && a.sum == b.sum && sameShape(a.left, b.left) && sameShape(a.right, b.right)
}

func TestSetIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, am := drawSet(t, "a")
		b, bm := drawSet(t, "b")
		check(t, a, am)

		both := maps.Clone(am)
		maps.Copy(both, bm)
		u := a.Union(b)
		check(t, u, both)
		if again := u.Union(b); again != u {
			t.Fatal("a union that adds nothing is a new set")
		}

		diffs := map[string]bool{}
		last := ""
		for o, n := range Diff(a, b) {
			r := n
			if r == nil {
				r = o
			}
			if r.Name <= last && last != "" {
				t.Fatal("diff is out of order")
			}
			last = r.Name
			diffs[r.Name] = true
			if o != nil && am[r.Name] != o || n != nil && bm[r.Name] != n {
				t.Fatalf("diff yields strangers for %s", r.Name)
			}
		}
		for n := range both {
			same := am[n] != nil && bm[n] != nil && am[n].Version == bm[n].Version
			if same == diffs[n] {
				t.Fatalf("%s: same=%v, in diff=%v", n, same, diffs[n])
			}
		}

		names := slices.Sorted(maps.Keys(bm))
		only := maps.Clone(am)
		maps.DeleteFunc(only, func(n string, _ *Resource) bool { return bm[n] == nil })
		check(t, a.Only(names), only)

		without := maps.Clone(am)
		s := a
		for _, n := range names {
			s = s.Without(n)
			delete(without, n)
		}
		check(t, s, without)
	})
}

// One changed element costs the path to it and shares the rest.
func TestSetShares(t *testing.T) {
	var rs []*Resource
	for i := range 10_000 {
		rs = append(rs, res(fmt.Sprintf("cluster-%05d", i), 1))
	}
	a := SetOf(rs...)
	if n := testing.AllocsPerRun(100, func() { a.With(res("cluster-07777", 2)) }); n > 120 {
		t.Errorf("a change of one in 10,000 costs %v allocations", n)
	}
	b := a.With(res("cluster-07777", 2))
	visits := 0
	if n := testing.AllocsPerRun(10, func() {
		for range Diff(a, b) {
			visits++
		}
	}); n > 10 {
		t.Errorf("a diff of one in 10,000 costs %v allocations", n)
	}
	if visits != 11 {
		t.Errorf("diff yields %d changes, want 1 a run", visits)
	}
}

func TestSnapshotDangling(t *testing.T) {
	eds := Key{Endpoints, "a"}
	c := Restore(Key{Clusters, "a"}, "1", []Ref{{eds, Child}, {Key{Clusters, "b"}, Optional}}, nil)
	if d := SnapshotOf(c).Dangling(); len(d) != 1 || d[0].To.Key != eds {
		t.Errorf("Dangling() = %v, want the endpoints alone", d)
	}
	if d := SnapshotOf(c, NewLive(eds)).Dangling(); d != nil {
		t.Errorf("Dangling() = %v in a closed snapshot", d)
	}
}

func TestSnapshotVersionTellsTypesApart(t *testing.T) {
	a := Restore(Key{Clusters, "x"}, "1", nil, nil)
	b := Restore(Key{Listeners, "x"}, "1", nil, nil)
	if SnapshotOf(a).Version() == SnapshotOf(b).Version() {
		t.Error("a cluster and a listener give one version")
	}
}

// Whether it was read or made of the one before, an index says the same.
func TestReferrers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) Set {
			return rapid.Custom(func(t *rapid.T) Set {
				var rs []*Resource
				for i := range rapid.IntRange(0, 12).Draw(t, "n") {
					var refs []Ref
					for range rapid.IntRange(0, 4).Draw(t, "refs") {
						refs = append(refs, Ref{Key{Clusters, rapid.StringMatching("[a-e]").Draw(t, "to")}, Edge(rapid.IntRange(0, int(Optional)).Draw(t, "edge"))})
					}
					rs = append(rs, NewResource(Key{Routes, fmt.Sprint(i)}, refs, []byte(fmt.Sprint(refs))))
				}
				return SetOf(rs...)
			}).Draw(t, label)
		}
		s := draw("first")
		for i := range 4 {
			from := s
			if i > 0 || rapid.Bool().Draw(t, "asked") {
				from.Referrers(Key{})
			}
			s = draw("next")
			s.Succeed(from)
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				to := Key{Clusters, name}
				var want, got []string
				for r := range s.All() {
					if slices.ContainsFunc(r.Refs, func(ref Ref) bool { return ref.Key == to && ref.Edge != Optional }) {
						want = append(want, r.Name)
					}
					if r.Refers(to) != (len(want) > 0 && want[len(want)-1] == r.Name) {
						t.Fatalf("%s refers to %s: %v", r.Name, name, r.Refers(to))
					}
				}
				for _, r := range s.Referrers(to) {
					if r != s.Get(r.Name) {
						t.Fatalf("%s is of another set", r.Name)
					}
					got = append(got, r.Name)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s is referred to by %v, want %v", name, got, want)
				}
			}
		}
	})
}

// A fleet that goes on for long lets go of what it held.
func TestDeriveLetsGo(t *testing.T) {
	gone := make(chan int, 100)
	make1 := func(i int) *Resource {
		r := res("a", i)
		runtime.AddCleanup(r, func(i int) { gone <- i }, i)
		return r
	}
	r, calls := make1(0), 0
	for i := range 50 {
		old := r
		r = make1(i + 1)
		for range 2 {
			got := r.Derive(weak.Make(old), func() any { calls++; return i })
			if got != i {
				t.Fatalf("got %v, want %d", got, i)
			}
		}
	}
	if calls != 50 {
		t.Errorf("computed %d times", calls)
	}
	freed := map[int]bool{}
	for deadline := time.Now().Add(10 * time.Second); len(freed) < 40 && time.Now().Before(deadline); {
		runtime.GC()
		select {
		case i := <-gone:
			freed[i] = true
		case <-time.After(10 * time.Millisecond): // cleanups run on their own
		}
	}
	if len(freed) < 40 {
		t.Errorf("%d of 50 old versions were let go of", len(freed))
	}
	runtime.KeepAlive(r)
}

func TestDeriveIsBounded(t *testing.T) {
	r := res("a", 1)
	for i := range 100 {
		r.Derive(i, func() any { return i })
	}
	n := 0
	for d := r.memory.newest.Load(); d != nil; d = d.next {
		n++
	}
	if n > maxDerived {
		t.Errorf("%d are remembered", n)
	}
}

func TestG10Match(t *testing.T) {
	node := Node{ID: "sidecar~10.0.0.1/24~web", UserAgent: "gRPC Go/1.85.0"}
	for _, c := range []struct {
		m    Match
		want bool
	}{
		{Match{}, true},
		{Match{ID: "sidecar~*~web"}, true},
		{Match{ID: "sidecar~*/24~w?b"}, true},
		{Match{ID: "sidecar~*~cart"}, false},
		{Match{UserAgent: "gRPC Go"}, true},
		{Match{UserAgent: "gRPC*"}, true},
		{Match{UserAgent: "gRPC Go/1.8*"}, true},
		{Match{UserAgent: "gRPC Go/1.7*"}, false},
		{Match{UserAgent: "gRPC"}, false},
		{Match{UserAgent: "envoy"}, false},
		{Match{ID: "["}, false},
	} {
		if got := c.m.Matches(node); got != c.want {
			t.Errorf("%+v matches: %v", c.m, got)
		}
	}
}
