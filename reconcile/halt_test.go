package reconcile

import (
	"strings"
	"testing"
	"time"
)

// halted is a rig whose second commit one of two nodes refuses, while the other
// is in the middle of the same stage.
func halted(t *testing.T) (r *rig, c conf, bad, good *node, base string) {
	r, base = newRig(t, frontOnly("v1"))
	bad, good = r.connect("front-1"), r.connect("front-2")
	bad.sees("front → v1, v1@10.0.0.1:80")
	good.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", base)
	bad.rejects(cds, "cluster v2: unknown lb policy")
	good.hold(cds)
	c = frontOnly("v2")
	c.services["v1"] = "10.0.0.1:80"
	c.front = `split: {v1: 90, v2: 10}`
	r.merge(c)
	good.waitsWith(cds)
	r.state("front", Halted)
	return r, c, bad, good, base
}

// One bad node of many halts its group: nobody waits for the others to refuse too,
// and none of them gets what the one refused to go on from.
func TestPeer10OneOfManyHalts(t *testing.T) {
	r, base := newRig(t, frontOnly("v1"))
	var nodes []*node
	for _, id := range []string{"front-1", "front-2", "front-3", "front-4", "front-5"} {
		n := r.connect(id)
		n.sees("front → v1, v1@10.0.0.1:80")
		nodes = append(nodes, n)
	}
	r.done("front", base)
	nodes[2].rejects(cds, "cluster v2: unknown lb policy")
	for _, n := range append(nodes[:2:2], nodes[3:]...) {
		n.hold(cds)
	}
	c := frontOnly("v2")
	c.services["v1"] = "10.0.0.1:80"
	c.services["v2"] = "10.0.0.2:80"
	c.front = `split: {v1: 90, v2: 10}`
	r.merge(c)
	r.state("front", Halted)
	if h := r.loop.Status().group("front").Halt; h.Node != "front-3" || h.Nack == nil {
		t.Fatalf("the halt is %+v", h)
	}
	for i, n := range nodes {
		if i == 2 {
			continue
		}
		before := n.counts()
		n.release(cds)
		r.until("the others to be held", func(st *Status) bool { return strings.HasPrefix(st.node(n.id).Why, "held: ") })
		if got := n.counts(); got[rds] != before[rds] {
			t.Errorf("node %s was sent %d tables after the halt", n.id, got[rds]-before[rds])
		}
	}
}

func TestR4NackHaltsTheGroup(t *testing.T) {
	r, c, _, good, first := halted(t)
	st := r.loop.Status()
	second := st.Source.Commit
	g := st.group("front")
	h := g.Halt
	if h.Node != "front-1" || h.Stage != "warm" || h.Commit != second || h.Nack == nil || h.Nack.Type != cds || h.Nack.Words != "cluster v2: unknown lb policy" {
		t.Fatalf("the halt is %+v, of %+v", h, h.Nack)
	}
	if len(h.Origins) != 1 || h.Origins[0].Name != "v2" || h.Origins[0].Pos.File != "fleet.cue" || h.Origins[0].Pos.Line != c.lineOf(`services: "v2"`) {
		t.Errorf("the origins are %+v, want line %d", h.Origins, c.lineOf(`services: "v2"`))
	}
	if g.Why != `clusters refused: cluster v2: unknown lb policy` || g.Base != first || g.Target != second {
		t.Errorf("the group is %+v", g)
	}
	if n := st.node("front-1"); n.Nack == nil || n.State != NodeNacked || !strings.Contains(n.Why, "refused") {
		t.Errorf("the node is %+v", n)
	}

	// The others go no further; live types do.
	before := good.counts()
	good.release(cds)
	c.services["v1"] = "10.0.0.9:80"
	c.groups = "// a line more\n" + c.groups
	third := r.merge(c)
	good.holds("v1@10.0.0.9:80")
	st = r.until("the held node", func(st *Status) bool { return strings.HasPrefix(st.node("front-2").Why, "held") })
	if got := good.counts(); got[rds] != before[rds] || got[cds] != before[cds] {
		t.Errorf("after the halt the other node was sent %v, before %v", got, before)
	}
	g = st.group("front")
	if g.State != Halted || g.Halt.Commit != third || g.Target != third || g.Halt.Origins[0].Pos.Line != h.Origins[0].Pos.Line+1 {
		t.Errorf("a commit that does not change the refused content moved the group: %+v, %+v", g, g.Halt)
	}

	// A newcomer gets the base, and is not taken for one that is at target.
	r.connect("front-3").sees("front → v1, v1@10.0.0.9:80")
	st = r.until("the newcomer", func(st *Status) bool { return strings.HasPrefix(st.node("front-3").Why, "is at ") })
	if g := st.group("front"); g.AtTarget != 0 || g.Done != 0 || st.node("front-3").Commit != first {
		t.Errorf("a newcomer to a halted group is at %+v, its group %+v", st.node("front-3"), g)
	}
}

// A node that is in the middle of a stage as another refuses it is sent the rest of
// that stage, and nothing of the next.
func TestR4AStageIsFinished(t *testing.T) {
	c := both("v1")
	c.groups = edgeGroup
	c.front = ""
	r, base := newRig(t, c)
	bad, good := r.connect("edge-1"), r.connect("edge-2")
	bad.sees("edge → v1, v1@10.0.0.1:80")
	good.sees("edge → v1, v1@10.0.0.1:80")
	r.done("edge", base)
	bad.rejects(cds, "no memory")
	good.hold(cds)
	c.edge, c.services = to("v2"), map[string]string{"v2": "10.0.0.2:80"}
	r.merge(c)
	good.waitsWith(cds)
	r.state("edge", Halted)
	before := good.counts()
	good.release(cds)
	good.sees("edge → v1, v1@10.0.0.1:80, v2@10.0.0.2:80") // the endpoints of the stage come after the halt
	r.until("the other to be held", func(st *Status) bool { return strings.HasPrefix(st.node("edge-2").Why, "held") })
	if now := good.counts(); now[eds] == before[eds] || now[rds] != before[rds] || now[cds] != before[cds] {
		t.Errorf("after the halt the other node was sent %v, before %v", now, before)
	}
}

func TestR4AHaltIsParkedOverARestart(t *testing.T) {
	r, _, bad, good, _ := halted(t)
	was := r.loop.Status()
	bad.close()
	good.close()
	good.mu.Lock()
	good.silent[cds] = false
	good.mu.Unlock()
	r.stop()
	r.start()
	st := r.read(was.Source.Commit)
	g, h := st.group("front"), was.group("front").Halt
	if g.State != Halted || g.Halt.Nack == nil || g.Halt.Nack.Words != h.Nack.Words || len(g.Halt.Origins) != 1 || !g.Halt.At.Equal(h.At) {
		t.Fatalf("after a restart the group is %+v", g)
	}
	bad.dial(r)
	good.dial(r)
	st = r.until("both to be back", func(st *Status) bool { return st.group("front").Connected == 2 })
	if g := st.group("front"); g.State != Halted || g.AtTarget != 0 {
		t.Errorf("with its nodes back the group is %+v", g)
	}
	fix := r.merge(frontOnly("v3"))
	st = r.converged("front", fix)
	if g := st.group("front"); g.Halt != nil || g.Target != "" || g.Connected != 2 {
		t.Errorf("after the fix the group is %+v", g)
	}
	bad.holds("v3@10.0.0.1:80")
	good.holds("v3@10.0.0.1:80")
}

func TestR5SilenceHaltsTheGroup(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"), patience(300*time.Millisecond))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	front.hold(cds)
	second := r.merge(frontOnly("v2"))
	st := r.state("front", Halted)
	h := st.group("front").Halt
	if h.Node != "front-1" || h.Cause != "no answer for clusters" && h.Cause != "no answer for clusters/v2" || h.Nack != nil || h.Commit != second {
		t.Errorf("the halt is %+v", h)
	}
	front.release(cds)
	r.done("front", r.merge(frontOnly("v3")))
	front.sees("front → v3, v3@10.0.0.1:80")
}

// Whoever keeps silent about the prune has accepted the routes, and halts nobody:
// not while another needs longer than that for its own stages.
func TestR6PruneIsADebt(t *testing.T) {
	const limit = 1600 * time.Millisecond
	c := both("v1")
	c.groups = frontGroup + edgeGroup
	r, first := newRig(t, c, patience(limit))
	one, two := r.connect("edge-1"), r.connect("edge-2")
	one.sees("edge → v1, v1@10.0.0.1:80")
	two.sees("edge → v1, v1@10.0.0.1:80")
	r.done("edge", first)
	one.holdAfter(cds, 1) // the second removes v1
	two.hold(cds)
	two.hold(rds)
	c.edge = to("v2")
	c.services = map[string]string{"v1": "10.0.0.1:80", "v2": "10.0.0.1:80"}
	began := time.Now()
	second := r.merge(c)
	one.waitsWith(cds)
	two.waitsWith(cds)
	eventually(t, func() bool { return time.Since(began) > limit*3/4 }, func() string { return "no time passes" })
	two.release(cds)
	two.waitsWith(rds)
	st := r.until("the first node's patience to end", func(st *Status) bool { return strings.HasPrefix(st.node("edge-1").Why, "halt: no answer") })
	if g := st.group("edge"); g.State != RollingOut || g.AtTarget != 1 {
		t.Errorf("the group is %+v", g)
	}
	two.release(rds)
	r.converged("edge", second)
}

// The revert of a halted commit walks everyone back.
func TestR4RevertAfterAHalt(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"))
	bad, good := r.connect("front-1"), r.connect("front-2")
	bad.sees("front → v1, v1@10.0.0.1:80")
	good.sees("front → v1, v1@10.0.0.1:80")
	bad.rejects(rds, "no")
	r.merge(frontOnly("v2"))
	r.state("front", Halted)
	revert := r.merge(frontOnly("v1"))
	r.done("front", revert)
	bad.sees("front → v1, v1@10.0.0.1:80")
	good.sees("front → v1, v1@10.0.0.1:80")
}

// A walk back that is refused holds everyone where they are, though its target
// is the base.
func TestR4AHaltedRevertHoldsToo(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	bad, good := r.connect("front-1"), r.connect("front-2")
	bad.sees("front → v1, v1@10.0.0.1:80")
	good.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	good.holdAfter(rds, 1) // the second moves traffic
	bad.holdAfter(rds, 1)
	r.merge(frontOnly("v2"))
	good.waitsWith(rds)
	bad.waitsWith(rds)
	revert := r.merge(frontOnly("v1"))
	r.until("the revert", func(st *Status) bool { return st.group("front").Target == revert })
	bad.releaseOnce(rds, "no") // it accepts the change, and not the way back
	st := r.state("front", Halted)
	if g := st.group("front"); g.Target != revert {
		t.Fatalf("the group is %+v", g)
	}
	good.release(rds)
	r.until("the other to be held", func(st *Status) bool { return strings.HasPrefix(st.node("front-2").Why, "held") })
	newcomer := r.connect("front-3")
	newcomer.sees("front → v1, v1@10.0.0.1:80")
}

// A refusal that comes once its commit is superseded halts nothing: the node is led
// to the new target like the others.
func TestR4RefusalOfASupersededCommit(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	bad, good := r.connect("front-1"), r.connect("front-2")
	bad.sees("front → v1, v1@10.0.0.1:80")
	good.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	good.holdAfter(rds, 1) // the second moves traffic
	bad.holdAfter(rds, 1)
	r.merge(frontOnly("v2"))
	good.waitsWith(rds)
	bad.waitsWith(rds)
	bad.rejects(rds, "no")
	revert := r.merge(frontOnly("v1"))
	r.until("the revert", func(st *Status) bool { return st.group("front").Target == revert })
	bad.release(rds)
	good.release(rds)
	r.done("front", revert)
	bad.sees("front → v1, v1@10.0.0.1:80")
	good.sees("front → v1, v1@10.0.0.1:80")
}

// A newcomer that refuses what the group has finished stops nobody, and is led
// to the fix as soon as there is one.
func TestANewcomerRefuses(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1", func(n *node) { n.refuse[cds] = "no" })
	r.until("the refusal", func(st *Status) bool { return st.node("front-1").Nack != nil })
	if g := r.loop.Status().group("front"); g.State != Converged || g.Base != first {
		t.Errorf("a newcomer halted a group that has converged: %+v", g)
	}
	c := frontOnly("v1")
	c.services["v1"] = `lb: "least_request", endpoints: [{address: "10.0.0.1:80"}]`
	r.done("front", r.merge(c))
	front.sees("front → v1, v1@10.0.0.1:80")
}
