package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/schema"
)

func TestFirstRollout(t *testing.T) {
	r, first := newRig(t, both("v1"))
	st := r.converged("front", first)
	r.converged("edge", first)
	if g := st.group("front"); g.Connected != 0 || g.Why != "no node is connected" {
		t.Errorf("a group without nodes is %+v", g)
	}
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	st = r.until("both nodes at target", func(st *Status) bool {
		return st.group("front").AtTarget == 1 && st.group("edge").Done == 1
	})
	if st.Source.Subject != "a change" || st.Source.Commit != first {
		t.Errorf("the source is %+v", st.Source)
	}
	if g := st.group("front"); g.State != Converged || g.Why != "" || g.Base != first || g.Target != "" {
		t.Errorf("the group is %+v", g)
	}
	if n := st.node("front-1"); n.State != NodeAtTarget || n.Commit != first || n.Group != "front" || n.Peer == "" {
		t.Errorf("the node is %+v", n)
	}
}

func TestSecondCommit(t *testing.T) {
	r, _ := newRig(t, both("v1"))
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	second := r.merge(both("v2"))
	r.done("edge", second)
	st := r.done("front", second)
	front.sees("front → v2, v2@10.0.0.1:80")
	edge.sees("edge → v2, v2@10.0.0.1:80")
	if g := st.group("front"); g.Spent.Compile <= 0 || g.Spent.Fetch <= 0 || g.Spent.Push <= 0 || g.Spent.Plan <= 0 {
		t.Errorf("the time spent is %+v", g.Spent)
	}
}

// A commit that changes nothing for a group only renames what it has. That
// endpoints go out after it shows that nothing else did.
func TestNothingToRollOut(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	was := r.done("front", first).group("front")
	before := front.counts()

	files := frontOnly("v1").files()
	files["README.md"] = "nothing"
	r.converged("front", r.mergeFiles(files))

	moved := frontOnly("v1")
	moved.services["v1"] = "10.0.0.9:80"
	third := r.merge(moved)
	front.sees("front → v1, v1@10.0.0.9:80")
	st := r.converged("front", third)
	before[eds]++
	if got := front.counts(); got != before {
		t.Errorf("the client was sent %v responses, want %v", got, before)
	}
	if g := st.group("front"); g.OpenedAt != was.OpenedAt || g.SettledAt != was.SettledAt {
		t.Errorf("endpoints were a rollout: %+v", g)
	}
	if n := r.until("the new label", func(st *Status) bool { return st.node("front-1").Commit == third }).node("front-1"); n.State != NodeAtTarget {
		t.Errorf("the node is %+v", n)
	}
}

// Endpoints go live while a rollout is under way, and while a group waits.
func TestEndpointsAreNeverBehindARollout(t *testing.T) {
	r, _ := newRig(t, both("v1"))
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	front.hold(lds)
	front.hold(rds)
	r.merge(both("v2"))
	front.waitsWith(rds)
	moved := both("v2")
	moved.services["v1"] = "10.0.0.9:80"
	moved.services["v2"] = "10.0.0.10:80"
	third := r.merge(moved) // v1 is in no route any more, but in the tests below
	st := r.read(third)
	if g := st.group("edge"); g.State != Waiting || g.Next != third {
		t.Errorf("the second group is %+v", g)
	}
	front.sees("front → v1, v1@10.0.0.1:80") // its endpoints are in no snapshot of the commit
	front.release(rds)
	front.release(lds)
	r.done("edge", third)
	edge.sees("edge → v2, v2@10.0.0.10:80")
	front.sees("front → v2, v2@10.0.0.10:80")
}

// A second commit while the client has not answered the first: what it may have
// applied is kept until the end.
func TestSecondCommitInMidRollout(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)

	front.hold(rds)
	second := r.merge(frontOnly("v2"))
	front.waitsWith(rds)
	third := r.merge(frontOnly("v3"))
	st := r.until("the third target", func(st *Status) bool { return st.group("front").Target == third })
	if g := st.group("front"); g.Base != first || g.State != RollingOut {
		t.Errorf("the group is %+v", g)
	}
	if trail := r.trail("front"); strings.Join(trail, " ") != second {
		t.Errorf("the trail is %v, want %s", trail, second)
	}
	front.release(rds)
	r.done("front", third)
	front.sees("front → v3, v3@10.0.0.1:80")
}

// trail lists the commits of a group's trail as the store has them.
func (r *rig) trail(group string) []string {
	r.t.Helper()
	st, err := r.store.Load()
	noError(r.t, err)
	var commits []string
	for _, rel := range st.Groups[group].Trail {
		commits = append(commits, rel.Commit)
	}
	return commits
}

func TestRevertInMidRollout(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	front.hold(rds)
	r.merge(frontOnly("v2"))
	front.waitsWith(rds)
	revert := r.merge(frontOnly("v1"))
	// What is held back moves no traffic: the revert can be done before it is answered.
	r.until("the revert to be the target", func(st *Status) bool {
		return st.group("front").Target == revert || st.group("front").Base == revert
	})
	front.release(rds)
	r.done("front", revert)
	front.sees("front → v1, v1@10.0.0.1:80")
}

func TestNotReadyBeforeTheFirstCommit(t *testing.T) {
	r := idleRig(t)
	r.start() // over an empty repository
	r.until("the error", func(st *Status) bool { return strings.Contains(st.Source.Error, "push a first commit") })
	front := r.connect("front-1")
	if err := front.ends(); !strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("the node was told %v", err)
	}
	first := r.merge(frontOnly("v1"))
	r.converged("front", first)
	front.dial(r)
	front.sees("front → v1, v1@10.0.0.1:80")
}

// A node that goes away in mid-rollout is waited for: it may be what the change
// did to it.
func TestR5ANodeGoesAwayInMidRollout(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"), patience(1500*time.Millisecond))
	one, two := r.connect("front-1"), r.connect("front-2")
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	two.hold(rds)
	second := r.merge(frontOnly("v2"))
	two.waitsWith(rds)
	one.sees("front → v2, v2@10.0.0.1:80")
	gone := time.Now()
	two.close()
	// Before that the ledger may not have the other's session yet.
	st := r.until("the node to be missed", func(st *Status) bool { return st.group("front").Why == "waits for front-2" })
	if g := st.group("front"); g.State != RollingOut || g.Expected != 1 {
		t.Errorf("the group is %+v", g)
	}
	r.converged("front", second)
	if waited := time.Since(gone); waited < 1400*time.Millisecond {
		t.Errorf("the node was waited for %v", waited)
	}
}

// What a node says of a target that it was moved on from is not taken for what
// it says of the new one.
func TestStaleRowsConvergeNothing(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	for i, s := range []string{"v2", "v3", "v4", "v5"} {
		front.hold(rds)
		commit := r.merge(frontOnly(s))
		front.waitsWith(rds)
		st := r.read(commit)
		if g := st.group("front"); g.State != RollingOut || g.AtTarget != 0 {
			t.Fatalf("commit %d: before the client answered the group is %+v", i, g)
		}
		front.release(rds)
		r.done("front", commit)
	}
}

// A session that has opened and not yet asked for anything is a node too.
func TestANewSessionIsNotOverlooked(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"))
	for i := range 5 {
		n := r.connect("front-"+string(rune('a'+i)), func(n *node) { n.silent[schema.Listeners] = true })
		n.waitsWith(lds)
		commit := r.merge(frontOnly("v" + string(rune('2'+i))))
		st := r.read(commit)
		if g := st.group("front"); g.State == Converged && g.Connected+g.Expected == 0 {
			t.Errorf("the group converged without its node: %+v", g)
		}
		n.release(lds)
		n.close()
	}
}

// A rollout under way is not undone by one that begins elsewhere, and a busy
// branch does not make the store grow.
func TestSupersededTargetsAreBounded(t *testing.T) {
	r, _ := newRig(t, frontOnly("v0"))
	front := r.connect("front-1")
	front.sees("front → v0, v0@10.0.0.1:80")
	front.hold(rds)
	r.read(r.merge(frontOnly("w")))
	front.waitsWith(rds)
	var last string
	for i := range trailMost + 2 {
		last = r.merge(frontOnly(fmt.Sprintf("v%d", i+1)))
		r.read(last)
	}
	if trail := r.trail("front"); len(trail) > trailMost {
		t.Errorf("the trail has %d releases", len(trail))
	}
	front.release(rds)
	r.done("front", last)
	front.sees(fmt.Sprintf("front → v%[1]d, v%[1]d@10.0.0.1:80", trailMost+2))
}

// A client that asks for nothing that anybody knows is no reason to wait without
// end.
func TestASessionThatAsksForNothing(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"), patience(time.Second))
	odd := r.connect("front-odd", func(n *node) { n.mute = true })
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	odd.mu.Lock()
	err := odd.stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/no.such.Type", Node: &corev3.Node{Id: odd.id}})
	odd.mu.Unlock()
	noError(t, err)
	eventually(t, func() bool { return len(r.loop.Server().View().Nodes()) == 2 }, func() string { return "the odd client was not seen" })
	second := r.merge(frontOnly("v2"))
	st := r.until("the group to converge", func(st *Status) bool {
		g := st.group("front")
		return g.State == Converged && g.Base == second
	})
	if n := st.node("front-odd"); n.Why != "has asked for nothing yet" {
		t.Errorf("the node is %+v", n)
	}
}

// In a hot restart the process that goes away may answer nothing any more: the
// newer one speaks for the node.
func TestAHotRestart(t *testing.T) {
	const limit = 1400 * time.Millisecond
	r, first := newRig(t, frontOnly("v1"), patience(limit))
	old := r.connect("front-1")
	old.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	young := r.connect("front-1")
	young.sees("front → v1, v1@10.0.0.1:80")
	sessions := func() []*schema.SessionRow { return r.loop.Server().View().Sessions() }
	eventually(t, func() bool { return len(sessions()) == 2 }, func() string { return "there are not two sessions" })
	old.hold(cds)
	young.hold(cds)
	began := time.Now()
	second := r.merge(frontOnly("v2"))
	old.waitsWith(cds)
	young.waitsWith(cds)
	eventually(t, func() bool { return time.Since(began) > limit*3/4 }, func() string { return "no time passes" })
	young.holdAfter(rds, 1)
	young.release(cds) // its next stage has a patience of its own
	r.until("the old one to be given up", func(*Status) bool { return sessions()[0].Step.Verdict == schema.Halt })
	young.release(rds)
	if st := r.converged("front", second); st.group("front").Halt != nil {
		t.Errorf("the old one halted the group: %+v", st.group("front").Halt)
	}
}
