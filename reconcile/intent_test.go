package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// order asks the loop for something.
func (r *rig) order(verb, group string) (Outcome, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return r.loop.Do(ctx, Intent{Verb: verb, Group: group, By: "ann"})
}

func (r *rig) orders(verb, group string) {
	r.t.Helper()
	_, err := r.order(verb, group)
	noError(r.t, err)
}

// senseless wants an intent to be refused.
func (r *rig) senseless(verb, group, why string) {
	r.t.Helper()
	_, err := r.order(verb, group)
	if no := new(IntentError); !errors.As(err, &no) || !strings.Contains(no.Why, why) {
		r.t.Errorf("%s %s: got %v, want %q", verb, group, err, why)
	}
}

func TestR7Pause(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	r.senseless(Resume, "front", "group front is not paused")
	r.orders(Pause, "front")
	r.senseless(Pause, "front", "group front is paused already, by ann")
	before := front.counts()

	// Nothing new is served, but for live types; also after a restart.
	c := frontOnly("v2")
	c.services["v1"] = "10.0.0.9:80"
	c.front = `split: {v1: 1, v2: 99}`
	second := r.merge(c)
	eventually(t, func() bool { return strings.Contains(front.view(), "v1@10.0.0.9:80") }, front.view)
	g := r.state("front", PausedState).group("front")
	if g.Base != first || g.Next != second || g.Paused == nil || g.Paused.By != "ann" || g.Why != "by ann" {
		t.Errorf("the group is %+v", g)
	}
	if got := front.counts(); got[cds] != before[cds] || got[rds] != before[rds] {
		t.Errorf("a paused group was sent %v, before %v", got, before)
	}
	front.close()
	r.stop()
	r.start()
	front.dial(r)
	r.state("front", PausedState)
	newcomer := r.connect("front-2")
	newcomer.sees("front → v1, v1@10.0.0.9:80")

	r.orders(Resume, "front")
	r.done("front", second)
	newcomer.sees("front → v1 v2, v1@10.0.0.9:80, v2@10.0.0.1:80")
	what := []string{}
	for _, a := range r.loop.History() {
		what = append(what, a.What+" "+a.By)
	}
	if got := strings.Join(what, ", "); !strings.HasSuffix(got, "converged , pause ann, resume ann, rollout , converged ") {
		t.Errorf("the history is %q", got)
	}
}

// A pause in the middle of a rollout stops it where it is, and a pause of all
// holds for groups that come later.
func TestR7PauseInMidRollout(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	front.hold(cds)
	second := r.merge(frontOnly("v2"))
	front.waitsWith(cds)
	r.orders(Pause, "")
	before := front.counts()
	front.release(cds)
	r.until("the node to be held", func(st *Status) bool { return st.node("front-1").Why == "held: paused by ann" })
	if got := front.counts(); got[rds] != before[rds] {
		t.Errorf("after the pause it was sent %v, before %v", got, before)
	}
	r.senseless(Resume, "front", "paused with all others")
	r.senseless(Abort, "front", "resume first")
	r.merge(both("v2"))
	r.state("edge", PausedState)
	r.orders(Resume, "")
	r.until("the end", func(st *Status) bool {
		return st.group("front").State == Converged && st.group("edge").State == Converged && st.group("front").Base != second
	})
}

// A paused rollout does not converge because its nodes went away.
func TestR7PausedWithoutNodes(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"), patience(300*time.Millisecond))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	front.hold(cds)
	second := r.merge(frontOnly("v2"))
	front.waitsWith(cds)
	r.orders(Pause, "")
	front.close()
	gone := time.Now()
	st := r.until("the loop to look again", func(st *Status) bool { return st.At.After(gone.Add(1500 * time.Millisecond)) })
	if g := st.group("front"); g.State != PausedState || g.Base != first || g.Target != second {
		t.Errorf("without nodes the group is %+v", g)
	}
	r.orders(Resume, "")
	r.converged("front", second)
}

func TestR7Abort(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	r.senseless(Abort, "front", "undo that in Git, with git revert "+first[:7])
	r.senseless(Promote, "", "every group is one wave")
	r.senseless(Retry, "front", "nothing to try again")
	r.senseless(Pause, "bakc", `there is no group "bakc": there are front`)
	one, two := r.connect("front-1"), r.connect("front-2")
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	two.hold(rds)
	second := r.merge(frontOnly("v2"))
	two.waitsWith(rds)
	one.sees("front → v2, v2@10.0.0.1:80")
	r.orders(Abort, "front")
	r.senseless(Abort, "front", "walks back to "+first[:7]+" already")
	two.release(rds)
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	g := r.state("front", ParkedState).group("front")
	if g.Base != first || g.Parked == nil || g.Parked.Commit != second || !strings.Contains(g.Why, "was aborted by ann") {
		t.Fatalf("the group is %+v", g)
	}

	// It stays parked over a restart, and over a commit that does not change it.
	one.close()
	two.close()
	r.stop()
	r.start()
	r.read(second)
	c := frontOnly("v2")
	c.extra = "// nothing\n"
	third := r.merge(c)
	r.read(third)
	if g := r.loop.Status().group("front"); g.State != ParkedState || g.Base != first || g.Parked.Commit != third {
		t.Fatalf("after a restart the group is %+v, %+v", g, g.Parked)
	}
	one.dial(r)
	two.dial(r)
	one.sees("front → v1, v1@10.0.0.1:80")
	r.orders(Retry, "front")
	r.done("front", third)
	one.sees("front → v2, v2@10.0.0.1:80")
	two.sees("front → v2, v2@10.0.0.1:80")
}

func TestR7Retry(t *testing.T) {
	for _, refused := range []struct {
		name string
		node string
		what schema.Type
	}{{"clusters", "front-1", cds}, {"routes", "front-1", rds}, {"Envoy's clusters", "edge-1", cds}, {"Envoy's routes", "edge-1", rds}} {
		t.Run(refused.name, func(t *testing.T) {
			c := both("v1")
			c.groups = frontGroup + edgeGroup
			r, first := newRig(t, c)
			group, _, _ := strings.Cut(refused.node, "-")
			bad, good := r.connect(refused.node), r.connect(group+"-2")
			bad.sees(group + " → v1, v1@10.0.0.1:80")
			good.sees(group + " → v1, v1@10.0.0.1:80")
			r.done(group, first)
			bad.rejects(refused.what, "no memory")
			c = both("v2")
			c.groups = frontGroup + edgeGroup
			second := r.merge(c)
			h := r.state(group, Halted).group(group).Halt
			if h.Node != refused.node {
				t.Fatalf("the halt is %+v", h)
			}
			r.orders(Retry, group)
			r.done(group, second)
			want := group + " → v2, v2@10.0.0.1:80"
			bad.sees(want)
			good.sees(want)
		})
	}
}

// An abort that has nodes walk back ends a pause, and says so. One of a commit that
// has not begun moves nobody, and leaves the pause.
func TestR7AbortOfAPausedGroup(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	one := r.connect("front-1")
	one.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	r.orders(Pause, "front")
	second := r.merge(frontOnly("v2"))
	r.read(second)
	says := func(want string) {
		t.Helper()
		if out, err := r.order(Abort, "front"); err != nil || !strings.Contains(out.Groups[0].Words, want) {
			t.Errorf("abort: %+v, %v: want %q", out, err, want)
		}
	}
	says("parked before it began; " + first[:7] + " stays, and so does the pause by ann")
	st := r.state("front", ParkedState)
	if g := st.group("front"); g.Paused == nil || !strings.Contains(g.Why, "was aborted by ann") || !strings.Contains(g.Why, "paused by ann") {
		t.Errorf("the group is %+v", g)
	}
	if out, err := r.loop.Do(t.Context(), Intent{Verb: Resume, Group: "front", DryRun: true}); err != nil || out.Groups[0].Words != "the pause ends; "+second[:7]+" stays parked" {
		t.Errorf("resume: %+v, %v", out, err)
	}
	third := r.merge(frontOnly("v3"))
	r.until("the next commit to wait", func(st *Status) bool {
		return st.group("front").Next == third && st.group("front").State == PausedState
	})
	one.hold(cds)
	r.orders(Resume, "front")
	one.waitsWith(cds)
	r.orders(Pause, "front")
	says("every node walks back to " + first[:7] + "; that ends the pause by ann, and the next commit is rolled out")
	one.release(cds)
	st = r.state("front", ParkedState)
	if g := st.group("front"); g.Paused != nil || g.Base != first {
		t.Errorf("the group is %+v", g)
	}
	fourth := r.merge(frontOnly("v4"))
	r.done("front", fourth)
	one.sees("front → v4, v4@10.0.0.1:80")
}

// A node that refuses again halts the group again, with its newest words.
func TestR7RetryInVain(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	bad := r.connect("front-1")
	bad.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	bad.rejects(cds, "no")
	r.merge(frontOnly("v2"))
	r.state("front", Halted)
	bad.rejects(cds, "still no")
	r.orders(Retry, "front")
	r.until("the second refusal", func(st *Status) bool {
		g := st.group("front")
		return g.Halt != nil && strings.Contains(g.Halt.Cause, "still no")
	})
	r.orders(Abort, "front")
	r.state("front", ParkedState)
	bad.sees("front → v1, v1@10.0.0.1:80")
}

// A walk back that a node refuses says which commit is parked, and what each intent
// would do; none of what is left to do is the abort that was done.
func TestR7AHaltedWalkBack(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	one, two := r.connect("front-1"), r.connect("front-2")
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	two.hold(rds)
	second := r.merge(frontOnly("v2"))
	two.waitsWith(rds)
	one.sees("front → v2, v2@10.0.0.1:80")
	one.rejects(rds, "no way back")
	r.orders(Abort, "front")
	g := r.state("front", Halted).group("front")
	if g.Parked == nil || g.Parked.Commit != second || g.Target != first || !strings.HasSuffix(g.Why, "no way back; this is the walk back from "+second[:7]+", which was aborted by ann") {
		t.Fatalf("the group is %+v", g)
	}
	r.senseless(Abort, "front", "commit "+second[:7]+" of group front is parked already, and the walk back to "+first[:7]+" is halted: sluice retry front tries that again, or merge a fix")
	says := func(in Intent, want string) {
		t.Helper()
		in.DryRun = true
		if out, err := r.loop.Do(t.Context(), in); err != nil || out.Groups[0].Words != want {
			t.Errorf("%+v: %+v, %v: want %q", in, out, err, want)
		}
	}
	again := "the walk back to " + first[:7] + " is tried again: what was refused is forgotten; " + second[:7] + " stays parked"
	for _, commit := range []string{"", "r-1", first, "r-2", second} { // what it is about, and what it goes to
		says(Intent{Verb: Retry, Group: "front", Commit: commit}, again)
	}
	r.orders(Pause, "front")
	says(Intent{Verb: Resume, Group: "front"}, "the pause ends; "+first[:7]+" stays halted: it waits for a fix, or a retry")
	r.orders(Resume, "front")

	// Once it is back, retry is about the parked commit.
	two.release(rds)
	r.orders(Retry, "front")
	one.sees("front → v1, v1@10.0.0.1:80")
	two.sees("front → v1, v1@10.0.0.1:80")
	r.state("front", ParkedState)
	says(Intent{Verb: Retry, Commit: "r-2"}, second[:7]+" is no longer parked, and tried again")
	r.orders(Retry, "front")
	r.done("front", second)
}

// A pause in the middle of a walk back says that it is one, and what it goes on with.
func TestR7PausedWalkBack(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	one := r.connect("front-1")
	one.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	one.holdAfter(rds, 1) // the second moves traffic
	second := r.merge(frontOnly("v2"))
	one.waitsWith(rds)
	r.orders(Abort, "front")
	r.orders(Pause, "front")
	g := r.state("front", PausedState).group("front")
	if want := "by ann: " + second[:7] + " was aborted by ann, and the walk back to " + first[:7] + " waits"; g.Why != want {
		t.Errorf("got %q, want %q", g.Why, want)
	}
	out, err := r.loop.Do(t.Context(), Intent{Verb: Resume, Group: "front", DryRun: true})
	if want := "goes on with the walk back to " + first[:7]; err != nil || out.Groups[0].Words != want {
		t.Errorf("resume: %+v, %v, want %q", out, err, want)
	}
	one.release(rds)
	r.orders(Resume, "front")
	one.sees("front → v1, v1@10.0.0.1:80")
	r.state("front", ParkedState)
}

// The events between two statuses are all that changed, in the order in which it
// matters.
func TestChanges(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	bad := r.connect("front-1")
	bad.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	bad.rejects(rds, "no such cluster")
	second := r.merge(frontOnly("v2"))
	r.state("front", Halted)
	list, lost, _ := r.loop.Events(0)
	if lost {
		t.Error("nothing can be lost yet")
	}
	var got []string
	for i, e := range list {
		if i > 0 && e.Seq != list[i-1].Seq+1 {
			t.Errorf("event %d follows %d", e.Seq, list[i-1].Seq)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Kind, e.Group, e.Node)))
	}
	for _, want := range []string{"server", "source", "rollout front", "converged front", "node front front-1", "nack front front-1", "halted front front-1"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	last := list[len(list)-1]
	if st := r.loop.Status(); st.Seq != last.Seq {
		t.Errorf("the status knows event %d, and the last is %d", st.Seq, last.Seq)
	}
	i := slices.IndexFunc(list, func(e Event) bool { return e.Kind == EventHalted })
	if want := "node front-1, stage warm: routes refused: no such cluster → fleet.cue:"; !strings.HasPrefix(list[i].Words, want) || list[i].Commit != second {
		t.Errorf("the halt is %+v", list[i])
	}

	// A cursor: the rest, nothing, or too old and from another life.
	if rest, lost, _ := r.loop.Events(list[2].Seq); lost || len(rest) != len(list)-3 {
		t.Errorf("after the third there are %d, lost %v", len(rest), lost)
	}
	if rest, lost, _ := r.loop.Events(last.Seq); lost || len(rest) != 0 {
		t.Errorf("after the last there are %d, lost %v", len(rest), lost)
	}
	for _, strange := range []uint64{1, last.Seq + 1000} {
		if rest, lost, _ := r.loop.Events(strange); !lost || len(rest) != len(list) {
			t.Errorf("after %d there are %d, lost %v", strange, len(rest), lost)
		}
	}
}

// What is kept is bounded, and who was away for too long is told.
func TestEventsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("fills the ring of events three times: left out with -short")
	}
	now := time.Now()
	l := &Loop{events: newEvents(now)}
	for range 3 * eventLimit {
		one := []Event{{Kind: EventNode}}
		l.events.number(one, now)
		l.events.add(one)
	}
	list, lost, more := l.Events(uint64(now.UnixMilli()) * 1000)
	if !lost || len(list) != eventLimit {
		t.Errorf("%d are kept, lost %v", len(list), lost)
	}
	select {
	case <-more:
		t.Error("there is no more")
	default:
	}
	st := &Status{Nodes: []NodeStatus{}}
	for i := range 10000 {
		st.Nodes = append(st.Nodes, NodeStatus{ID: fmt.Sprintf("node-%05d", i), Group: "front"})
	}
	if news := Changes(&Status{}, st); len(news) != 1 || news[0].Words != "10000 nodes connected: node-00000, node-00001, node-00002 and 9997 more" {
		t.Errorf("10,000 nodes are %d events: %+v", len(news), news[:1])
	}
}
