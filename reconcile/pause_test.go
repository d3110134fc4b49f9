package reconcile

import (
	"strings"
	"testing"
)

// A node that comes back during a pause keeps what it had been given, and one that
// is new is given the base: neither is led on, and neither is led back (rules R1,
// R7). So it is after a restart of the server too.
func TestR7ReconnectDuringAPause(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	one, two := r.connect("front-1"), r.connect("front-2")
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	two.hold(cds)
	second := r.merge(frontOnly("v2"))
	two.waitsWith(cds)
	one.sees("front → v2, v2@10.0.0.1:80")
	r.orders(Pause, "front")

	held := func(node string) {
		t.Helper()
		r.until(node+" to be held", func(st *Status) bool { return st.node(node).Why == "held: paused by ann" })
	}
	back := func() {
		t.Helper()
		one.dial(r)
		two.dial(r)
		one.sees("front → v2, v2@10.0.0.1:80")
		two.holds("v1@10.0.0.1:80")
		held("front-2")
	}
	two.release(cds)
	two.holds("v2@10.0.0.1:80") // clusters of both: the union of its stage
	held("front-2")
	one.close()
	two.close()
	back()
	three := r.connect("front-3")
	three.sees("front → v1, v1@10.0.0.1:80")
	held("front-3")
	if strings.Contains(three.view(), "v2") {
		t.Errorf("a newcomer was given %s", three.view())
	}

	for _, n := range []*node{one, two, three} {
		n.close()
	}
	r.stop()
	r.start()
	r.read(second)
	back()
	three.dial(r)
	three.sees("front → v1, v1@10.0.0.1:80")
	held("front-3")
	g := r.loop.Status().group("front")
	if g.State != PausedState || g.Base != first || g.Target != second {
		t.Errorf("the group is %+v", g)
	}

	r.orders(Resume, "front")
	r.done("front", second)
	for _, n := range []*node{one, two, three} {
		n.sees("front → v2, v2@10.0.0.1:80")
	}
}

// While a group is paused that has nothing to do, nodes that come are given what
// it has finished, and are at target.
func TestR7ConnectDuringAnIdlePause(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	one := r.connect("front-1")
	one.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	r.orders(Pause, "front")
	one.close()
	one.dial(r)
	two := r.connect("front-2")
	two.sees("front → v1, v1@10.0.0.1:80")
	st := r.until("both to be at target", func(st *Status) bool { return st.group("front").AtTarget == 2 })
	if n := st.node("front-2"); n.State != NodeAtTarget || n.Commit != first {
		t.Errorf("the newcomer is %+v", n)
	}
}

// A newcomer that was held at the base goes on from there, whichever commit the end
// of the pause leads it to: what its routes lead to is not taken from it.
func TestR7SupersededAfterANewcomer(t *testing.T) {
	mesh := func(service string) conf {
		c := both(service)
		c.groups = frontGroup + edgeGroup
		return c
	}
	r, first := newRig(t, mesh("v1"))
	one := r.connect("edge-1")
	one.sees("edge → v1, v1@10.0.0.1:80")
	r.done("edge", first)
	one.hold(cds)
	r.merge(mesh("v2"))
	one.waitsWith(cds)
	r.orders(Pause, "edge")
	two := r.connect("edge-2")
	two.sees("edge → v1, v1@10.0.0.1:80")
	r.until("it to be held", func(st *Status) bool { return st.node("edge-2").Why == "held: paused by ann" })
	third := r.merge(mesh("v3"))
	r.read(third)
	two.hold(rds)
	r.orders(Resume, "edge")
	two.waitsWith(rds)
	if got, want := two.view(), "edge → v1, v1@10.0.0.1:80, v3@10.0.0.1:80"; got != want {
		t.Errorf("it holds %q, want %q", got, want)
	}
	two.release(rds)
	one.release(cds)
	r.done("edge", third)
	two.sees("edge → v3, v3@10.0.0.1:80")
}
