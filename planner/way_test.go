package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-xds/sluice/schema"
)

// What a target remembers for all its sessions changes no path: whoever was planned
// for before, a session is led as if it were the first.
func TestP08ASharedWayIsOnesOwn(t *testing.T) {
	equal := cmp.Comparer(schema.Snapshot.Equal)
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		other := drawState(t, to.Client)
		alone := *to
		to.Memory = new(schema.Memory)
		for _, before := range []schema.State{
			other,
			{Acked: from.Acked, Maybe: other.Maybe},
			{Acked: other.Acked, Maybe: from.Maybe},
			withClustersOf(from, other),
		} {
			NewPath(before, to)
		}
		got, want := NewPath(from, to), NewPath(from, &alone)
		if diff := cmp.Diff(want.Stages, got.Stages, equal); diff != "" || got.Converged != want.Converged {
			t.Errorf("the path is\n%sand alone\n%s%s", pathWords(got), pathWords(want), diff)
		}
	})
}

// Classes that differ in nothing but clusters find one way.
func TestP08ClassesShareTheirWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		to.Memory = new(schema.Memory)
		if first := wayOf(from, to); wayOf(withClustersOf(from, drawState(t, to.Client)), to) != first {
			t.Error("the way was found twice")
		}
	})
}

// withClustersOf is a state with the clusters, and what is made with them, of another.
func withClustersOf(s, other schema.State) schema.State {
	for _, t := range made {
		s.Acked = s.Acked.Replace(t, other.Acked.Of(t))
		s.Maybe = s.Maybe.Replace(t, other.Maybe.Of(t))
	}
	return s
}
