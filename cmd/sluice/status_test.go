package main

import (
	"testing"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// While a commit waits, nodes are counted at the one before, which is named.
func TestStatusOfAWaitingCommit(t *testing.T) {
	g := reconcile.GroupStatus{
		Name: "edge", State: reconcile.PausedState, Why: "by ann", Paused: &reconcile.Mark{By: "ann"}, Wave: reconcile.Wave{Index: 1, Count: 1},
		Base: "9be01d40000", Next: "3f2a91c0000", Connected: 2, AtTarget: 2,
	}
	st := &reconcile.Status{Groups: []reconcile.GroupStatus{g}, Source: reconcile.SourceStatus{Commit: "3f2a91c0000"}}
	wants(t, statusTable(st, false), `^edge +- +9be01d4 → 3f2a91c +1/1 +paused +- +2 +2 +2 \(9be01d4\) +0$`)
	if got, want := outcomeOf(st, wanted{}).said, "group edge is paused at 9be01d4 → 3f2a91c: 2/2 at 9be01d4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	g.State, g.Target, g.Next, g.AtTarget = reconcile.RollingOut, g.Next, "", 0
	g.Stages = []reconcile.StageStatus{{Stage: schema.Make, Acked: 1, Of: 2}}
	st.Groups[0] = g
	wants(t, statusTable(st, false), `^edge .* rolling out +make 1/2 +2 +2 +0 +0$`)
	if got, want := outcomeOf(st, wanted{}).said, "group edge is rolling out at 9be01d4 → 3f2a91c: make 1/2, 0/2 at target"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A node that refuses what its group is at is named, with its words, by a group
// that has converged too.
func TestStatusOfARefusalAfterwards(t *testing.T) {
	st := &reconcile.Status{
		Groups: []reconcile.GroupStatus{{Name: "edge", State: reconcile.Converged, Base: "3f2a91c0000", Connected: 3, AtTarget: 2}},
		Nodes: []reconcile.NodeStatus{{
			ID: "edge-3", Group: "edge", State: reconcile.NodeNacked, Why: "clusters refused: no \x1b[2Jgood",
			Nack: &schema.Nack{Type: schema.Clusters, Words: "no good"},
		}},
		Source: reconcile.SourceStatus{Commit: "3f2a91c0000"},
	}
	wants(t, statusTable(st, false), `(?m)^NACK  node edge-3 of group edge: clusters refused: no .*good$`)
	o := outcomeOf(st, wanted{})
	if want := "converged: 1 group, 2 nodes at target, 1 not: see sluice nodes"; !o.done || o.said != want {
		t.Errorf("got %q, %v, want %q", o.said, o.done, want)
	}
}

// What is advised about a halt can be done: no abort of what was aborted, and none
// where there is nothing to walk back to.
func TestWayOutOfAHalt(t *testing.T) {
	const base, target = "9be01d40000", "3f2a91c0000"
	halt := &reconcile.Halt{Node: "edge-1", Stage: "routes", Cause: "routes refused: no", Commit: target}
	g := reconcile.GroupStatus{Name: "edge", State: reconcile.Halted, Base: base, Target: target, Halt: halt}
	st := &reconcile.Status{Source: reconcile.SourceStatus{Commit: target}}
	table := func() string {
		st.Groups = []reconcile.GroupStatus{g}
		return statusTable(st, false)
	}
	wants(t, table(), `^halted  edge at 3f2a91c: node edge-1, stage routes$`, `^    mend it and merge; or sluice retry edge, or sluice abort edge$`)
	g.Base = ""
	wants(t, table(), `^    mend it and merge; or sluice retry edge; there is no finished commit to walk back to$`)
	g.Base, g.Target, halt.Commit = base, base, base
	g.Parked = &reconcile.Parked{Mark: reconcile.Mark{By: "ann"}, Commit: target}
	wants(t, table(), `^edge +- +3f2a91c → 9be01d4 `,
		`^halted  edge at 9be01d4: node edge-1, stage routes, on the way back from 3f2a91c$`,
		`^    3f2a91c is parked, and this is the walk back from it: sluice retry edge tries that again; or merge a fix$`)
	if got, want := outcomeOf(st, wanted{}), "group edge: commit 3f2a91c was aborted by ann, and the walk back to 9be01d4 halted"; !got.refused || got.said != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}
