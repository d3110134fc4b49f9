package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

func TestR1GroupsInOrder(t *testing.T) {
	r, first := newRig(t, both("v1"))
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	r.done("edge", first)
	before := edge.counts()

	front.hold(rds)
	second := r.merge(both("v2"))
	front.waitsWith(rds)
	st := r.until("the rollout's first stage", func(st *Status) bool { return st.group("front").Target == second })
	if g := st.group("edge"); g.State != Waiting || g.Why != "waits for group front" || g.Next != second || g.Base != first {
		t.Errorf("the second group is %+v", g)
	}
	if edge.counts() != before {
		t.Errorf("the second group was sent something before the first converged")
	}
	front.release(rds)
	r.done("edge", second)
	front1, edge1 := r.journal.first("saved front generation 2"), r.journal.first("saved edge generation 2")
	if front1 < 0 || edge1 < front1 {
		t.Errorf("the second group began first:\n%s", r.journal)
	}
}

func TestR1AHaltedGroupStopsTheNext(t *testing.T) {
	r, first := newRig(t, both("v1"))
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	front.rejects(rds, "no such table")
	second := r.merge(both("v2"))
	st := r.state("front", Halted)
	if g := st.group("edge"); g.State != Waiting || g.Why != "waits for group front, which is halted" || g.Base != first {
		t.Errorf("the second group is %+v", g)
	}
	if g := st.group("front"); g.Base != first || g.Target != second {
		t.Errorf("the first group is %+v", g)
	}
	third := r.merge(both("v3"))
	r.done("edge", third)
	edge.sees("edge → v3, v3@10.0.0.1:80")
}

func TestR1AnUnsupportedGroupStopsTheNext(t *testing.T) {
	r, first := newRig(t, both("v1"))
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	c := both("v2")
	c.groups = strings.Replace(c.groups, `match: id: "front-*"`, `match: id: "front-*", rollout: bake: "5m"`, 1)
	second := r.merge(c)
	st := r.state("edge", Waiting)
	if g := st.group("front"); g.State != Unsupported || !strings.Contains(g.Why, "bake times") || g.Base != first || g.Next != second {
		t.Errorf("the first group is %+v", g)
	}
	if g := st.group("edge"); !strings.Contains(g.Why, "waits for group front") || !strings.Contains(g.Why, "bake times") {
		t.Errorf("the second group is %+v", g)
	}
	r.done("edge", r.merge(both("v2")))
}

// The first group of an empty store converges at once; what comes after it and
// may not begin yet has nothing to give, and says so to its nodes.
func TestNodesOfAGroupThatWaits(t *testing.T) {
	c := both("v1")
	c.groups = strings.Replace(c.groups, `match: id: "front-*"`, `match: id: "front-*", rollout: bake: "5m"`, 1)
	r, _ := newRig(t, c)
	edge := r.connect("edge-1")
	if err := edge.ends(); !strings.Contains(err.Error(), "Unavailable") || !strings.Contains(err.Error(), "group edge") {
		t.Errorf("the node of a group that waits was told %v", err)
	}
	front := r.connect("front-1")
	if err := front.ends(); !strings.Contains(err.Error(), "FailedPrecondition") || !strings.Contains(err.Error(), "bake times") {
		t.Errorf("the node of a group that cannot be rolled out was told %v", err)
	}
	r.until("the refusal", func(st *Status) bool { return len(st.Refused) == 1 && st.Refused[0].Node == "front-1" })
	r.done("edge", r.merge(both("v1")))
	edge.dial(r)
	edge.sees("edge → v1, v1@10.0.0.1:80")
}

func TestR1NobodyMatches(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	r.converged("front", first)
	stray := r.connect("stray-1")
	if err := stray.ends(); !strings.Contains(err.Error(), `no group matches node "stray-1"`) || !strings.Contains(err.Error(), "FailedPrecondition") {
		t.Errorf("the node was told %v", err)
	}
	st := r.until("the refusal", func(st *Status) bool { return len(st.Refused) == 1 })
	if got := st.Refused[0]; got.Node != "stray-1" || !strings.Contains(got.Why, "no group matches") {
		t.Errorf("refused: %+v", got)
	}
}

func TestR1TwoMatchEqually(t *testing.T) {
	c := frontOnly("v1")
	c.groups += `twin: schema.#Group & {client: "grpc", match: id: "*-1"}` + "\n"
	r, first := newRig(t, c)
	r.converged("front", first)
	front := r.connect("front-1")
	if err := front.ends(); !strings.Contains(err.Error(), `matches the groups front and twin equally`) {
		t.Errorf("the node was told %v", err)
	}
	r.connect("front-2").sees("front → v1, v1@10.0.0.1:80")

	c.groups = strings.Replace(c.groups, `match: id: "front-*"`, `match: id: "front-*", priority: 1`, 1)
	r.converged("front", r.merge(c))
	front.dial(r)
	front.sees("front → v1, v1@10.0.0.1:80")
	r.until("no refusal", func(st *Status) bool { return len(st.Refused) == 0 })
}

// A group that vanishes keeps its nodes, also those that come back.
func TestR1AGroupVanishes(t *testing.T) {
	c := both("v1")
	r, first := newRig(t, c)
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	c.groups, c.front = strings.Replace(edgeGroup, "front", "", 1), ""
	r.merge(c)
	st := r.state("front", Gone)
	if g := st.group("front"); !strings.Contains(g.Why, "keep what they have") {
		t.Errorf("the group is %+v", g)
	}
	front.close()
	front.dial(r)
	r.connect("front-2").sees("front → v1, v1@10.0.0.1:80")
	if got := front.view(); got != "front → v1, v1@10.0.0.1:80" {
		t.Errorf("the node holds %s", got)
	}
	r.stop()
	r.opts.Source = deadSource{}
	r.start()
	if g := r.loop.Status().group("front"); g.State != Gone {
		t.Errorf("after a restart the group is %+v", g)
	}
}

// A group by another name takes its nodes over, as a rollout: what they refuse
// halts it.
func TestR1ARenamedGroup(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	c := frontOnly("v2")
	c.groups = strings.Replace(frontGroup, "front:", "face:", 1)
	c.extra = `listeners: front: groups: ["face"]` + "\n"
	files := c.files()
	files["fleet.cue"] = strings.Replace(files["fleet.cue"], `groups: ["front"], target`, `target`, 1)
	front.rejects(rds, "not this one")
	second := r.mergeFiles(files)
	st := r.state("face", Halted)
	if g := st.group("face"); g.Halt.Node != "front-1" || g.Target != second {
		t.Errorf("the new group is %+v", g)
	}
	if g := st.group("front"); g.State != Gone {
		t.Errorf("the old group is %+v", g)
	}
	if trail := r.trail("face"); len(trail) != 1 || trail[0] != first {
		t.Errorf("what the nodes hold is not remembered: %v", trail)
	}
	files["fleet.cue"] = strings.ReplaceAll(files["fleet.cue"], "v2", "v3")
	third := r.mergeFiles(files)
	r.done("face", third)
	front.sees("front → v3, v3@10.0.0.1:80")
}

// A node that two groups come to match keeps what it holds, is named, and holds
// up neither of them.
func TestR1ANodeBecomesAmbiguous(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	one, two := r.connect("front-1"), r.connect("front-2")
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	c := frontOnly("v2")
	c.groups += `twin: schema.#Group & {client: "grpc", match: id: "*-1"}` + "\n"
	second := r.merge(c)
	st := r.until("the group to converge without it", func(st *Status) bool {
		g := st.group("front")
		return g.State == Converged && g.Base == second && len(st.Refused) == 1
	})
	if got := st.Refused[0]; got.Node != "front-1" || !strings.Contains(got.Why, "front and twin equally") || !strings.Contains(got.Why, "keeps what it has") {
		t.Errorf("refused: %+v", got)
	}
	two.holds("v2@10.0.0.1:80")
	if got := one.view(); got != "front → v1, v1@10.0.0.1:80" {
		t.Errorf("the node that nobody may have holds %s", got)
	}
	third := r.merge(frontOnly("v3"))
	st = r.done("front", third)
	one.sees("front → v3, v3@10.0.0.1:80")
	if len(st.Refused) != 0 {
		t.Errorf("still refused: %+v", st.Refused)
	}
}

// A commit that changes nothing but who is in a group is no rollout. A node that
// no group has any more keeps what it holds, is named, and is not at target.
func TestR1AMatchIsEdited(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	one, two := r.connect("front-1"), r.connect("front-2")
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	c := frontOnly("v1")
	c.groups = strings.Replace(c.groups, "front-*", "front-2", 1)
	second := r.merge(c)
	st := r.until("the node without a group", func(st *Status) bool { return len(st.Refused) > 0 && st.group("front").AtTarget == 1 })
	if got := st.Refused[0]; len(st.Refused) != 1 || got.Node != "front-1" || got.Group != "front" || !strings.Contains(got.Why, "no group matches") || !strings.Contains(got.Why, "keeps what it has") {
		t.Errorf("refused: %+v", st.Refused)
	}
	if g := st.group("front"); g.State != Converged || g.Base != second || g.Connected != 2 {
		t.Errorf("the group is %+v", g)
	}
	if n := st.node("front-1"); n.State != NodeRefused || n.Commit != first {
		t.Errorf("the node is %+v", n)
	}
	if got := one.view(); got != "front → v1, v1@10.0.0.1:80" {
		t.Errorf("the node holds %s", got)
	}
	third := r.merge(frontOnly("v2"))
	r.done("front", third)
	one.sees("front → v2, v2@10.0.0.1:80")
	r.until("no refusal", func(st *Status) bool { return len(st.Refused) == 0 && st.group("front").AtTarget == 2 })
}

// A node that goes away at the very moment when a rollout begins is missed, too.
func TestR5ANodeLeavesAsTheRolloutBegins(t *testing.T) {
	now := time.Now()
	g := &group{GroupState: GroupState{Target: &Release{}}, opened: now}
	row := &schema.NodeRow{Node: schema.Node{ID: "front-1"}, Group: "front", SeenAt: now}
	missing, until := g.missing("front", &facts{nodes: []*schema.NodeRow{row}}, time.Minute)
	if len(missing) != 1 || missing[0] != "front-1" || !until.Equal(now.Add(time.Minute)) {
		t.Errorf("missing %v until %v", missing, until)
	}
	row.SeenAt = now.Add(-time.Second)
	if missing, _ := g.missing("front", &facts{nodes: []*schema.NodeRow{row}}, time.Minute); len(missing) > 0 {
		t.Errorf("missing %v, which was away before", missing)
	}
}
