package schema

import (
	"fmt"
	"maps"
	"slices"
	"testing"

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
