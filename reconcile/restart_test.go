package reconcile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// What a restart needs is on disk before any node hears of it: a crash in
// between finds it there.
func TestTheStoreIsWrittenFirst(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"))
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	second := r.merge(frontOnly("v2"))
	r.done("front", second)
	front.sees("front → v2, v2@10.0.0.1:80")
	saved := r.journal.first("saved front generation 2 target " + second + ": <nil>")
	if saved < 0 {
		t.Fatalf("the target was never saved:\n%s", r.journal)
	}
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	for i, line := range r.journal.lines {
		if strings.Contains(line, "received") && strings.Contains(line, "v2") && i < saved {
			t.Errorf("%q before the store was written:\n%s", line, strings.Join(r.journal.lines, "\n"))
		}
	}
}

// A server whose store cannot be loaded serves nobody: there is none.
func TestNobodyIsServedBeforeTheStoreIsLoaded(t *testing.T) {
	r := idleRig(t, alone)
	_, err := New(Options{Source: deadSource{}, Store: brokenStore{}})
	if err == nil || err.Error() != "not today" {
		t.Errorf("got %v", err)
	}
	noGoroutines(t)
	r.opts.Source = deadSource{}
	r.start()
	front := r.connect("front-1")
	if err := front.ends(); !strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("the node was told %v", err)
	}
}

type brokenStore struct{ Store }

func (brokenStore) Load() (State, error) { return State{}, errors.New("not today") }

// With Git gone the fleet is served from the store, newcomers too.
func TestServedFromTheStore(t *testing.T) {
	r, first := newRig(t, both("v1"))
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	second := r.merge(both("v2"))
	r.done("front", second)
	r.done("edge", second)
	front.close()
	edge.close()
	r.stop()
	noError(t, os.RemoveAll(r.repo.dir))

	r.start()
	st := r.until("the error", func(st *Status) bool { return st.Source.Error != "" })
	if g := st.group("front"); g.Base != second || g.State != Converged {
		t.Errorf("the group is %+v; the first commit was %s", g, first)
	}
	before := edge.counts()
	front.dial(r)
	edge.dial(r)
	r.connect("front-2").sees("front → v2, v2@10.0.0.1:80")
	r.connect("edge-2").sees("edge → v2, v2@10.0.0.1:80")
	st = r.until("everyone", func(st *Status) bool { return st.group("front").AtTarget == 2 && st.group("edge").AtTarget == 2 })
	if g := st.group("edge"); g.Expected != 0 {
		t.Errorf("nobody is missing: %+v", g)
	}
	before[eds]++ // it reports the version of what it asked for before
	if got := edge.counts(); got != before {
		t.Errorf("who held it all was sent it again: %v, before %v", got, before)
	}
}

// A restart in mid-rollout, wherever the client keeps it waiting, ends at the
// target; the generation never goes back.
func TestRestartInMidRollout(t *testing.T) {
	for _, id := range []string{"front-1", "edge-1"} {
		for _, at := range []schema.Type{cds, eds, rds} {
			t.Run(fmt.Sprintf("%s at %s", id, at), func(t *testing.T) {
				r, _ := newRig(t, both("v1"))
				group, _, _ := strings.Cut(id, "-")
				n := r.connect(id)
				n.sees(group + " → v1, v1@10.0.0.1:80")
				n.hold(at)
				second := r.merge(both("v2"))
				n.waitsWith(at)
				n.close()
				r.stop()
				n.mu.Lock()
				n.silent[at] = false
				n.mu.Unlock()
				r.start()
				if g := r.loop.Status().group(group); g.Target != second || g.State != RollingOut {
					t.Errorf("after the restart the group is %+v", g)
				}
				st, err := r.store.Load()
				noError(t, err)
				if st.Live.Of(eds).Get("v1") == nil || st.Live.Of(eds).Get("v2") == nil {
					t.Error("endpoints that some stage of the path needs are lost")
				}
				n.dial(r)
				r.converged(group, second)
				generations(t, r)
				n.holds("v2@10.0.0.1:80")
				if target, err := r.loop.guide.Admit(schema.Node{ID: group + "-2"}, nil); err != nil || !target.Open {
					t.Errorf("who was away and comes back is taken at its word: %+v, %v", target, err)
				}
			})
		}
	}
}

// generations fails if a group's generation ever went back.
func generations(t *testing.T, r *rig) {
	t.Helper()
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	last := map[string]int{}
	for _, line := range r.journal.lines {
		var group, target string
		var generation int
		if n, _ := fmt.Sscanf(line, "saved %s generation %d target %s", &group, &generation, &target); n < 3 {
			continue
		}
		if generation < last[group] {
			t.Errorf("%s went back:\n%s", group, strings.Join(r.journal.lines, "\n"))
		}
		last[group] = generation
	}
}

// After a restart a rollout waits for the nodes that were there; for those that
// do not come, until patience is spent.
func TestH2AwaitedNodes(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"), patience(1500*time.Millisecond))
	one, two, three := r.connect("front-1"), r.connect("front-2"), r.connect("front-3")
	for _, n := range []*node{one, two, three} {
		n.sees("front → v1, v1@10.0.0.1:80")
	}
	for _, n := range []*node{one, two, three} {
		n.hold(rds)
	}
	second := r.merge(frontOnly("v2"))
	for _, n := range []*node{one, two, three} {
		n.waitsWith(rds)
		n.close()
	}
	r.stop()
	for _, n := range []*node{one, two, three} {
		n.mu.Lock()
		n.silent[rds] = false
		n.mu.Unlock()
	}
	began := time.Now()
	r.start()
	one.dial(r)
	st := r.until("the first to be back", func(st *Status) bool { return st.group("front").AtTarget == 1 })
	if g := st.group("front"); g.Expected != 2 || g.State != RollingOut || g.Why != "waits for front-2, front-3" {
		t.Errorf("the group is %+v", g)
	}
	two.dial(r)
	st = r.converged("front", second)
	if g := st.group("front"); g.Connected != 2 || g.Expected != 1 {
		t.Errorf("who did not come is not counted: %+v", g)
	}
	if waited := time.Since(began); waited < 1400*time.Millisecond {
		t.Errorf("converged after %v without the third node", waited)
	}

	// The next rollout waits no more.
	began = time.Now()
	st = r.converged("front", r.merge(frontOnly("v3")))
	if waited := time.Since(began); waited > time.Second {
		t.Errorf("the next rollout took %v", waited)
	}
	if g := st.group("front"); g.Expected != 0 {
		t.Errorf("the next rollout still expects it: %+v", g)
	}
	three.dial(r)
	three.holds("v3@10.0.0.1:80")
}

// Who came after a rollout began is waited for after a restart, too.
func TestTheInventoryFollows(t *testing.T) {
	r, _ := newRig(t, frontOnly("v1"))
	r.connect("front-1").sees("front → v1, v1@10.0.0.1:80")
	eventually(t, func() bool {
		st, err := r.store.Load()
		noError(t, err)
		return len(st.Groups["front"].Nodes) == 1
	}, func() string { return "the node was never written down" })
}

// failingStore fails while told to.
type failingStore struct {
	Store
	fails *atomic.Bool
}

func (s failingStore) Save(st State) error {
	if s.fails.Load() {
		return &StoreError{"state.db", "it cannot be written: the disk is full", nil}
	}
	return s.Store.Save(st)
}

func TestAFailingStore(t *testing.T) {
	var fails atomic.Bool
	mesh := func(service string) conf {
		c := both(service)
		c.groups = frontGroup + edgeGroup // neither waits for the other
		return c
	}
	r, first := newRig(t, mesh("v1"), func(r *rig) { r.wrap = func(s Store) Store { return failingStore{s, &fails} } })
	front := r.connect("front-1") // nobody is in the other group
	front.sees("front → v1, v1@10.0.0.1:80")
	r.done("front", first)
	before := front.counts()
	fails.Store(true)
	c := mesh("v2")
	r.merge(c)
	st := r.until("the store's error", func(st *Status) bool { return st.StoreError != "" })
	if g := st.group("front"); g.State != RollingOut || g.Why != "waits until the store can be written" {
		t.Errorf("the group is %+v", g)
	}
	if st.Source.Error != "" {
		t.Errorf("it is not Git's error: %s", st.Source.Error)
	}
	// Endpoints are not served either; a poll of Git does not hide the error.
	c.services["v1"] = "10.0.0.9:80"
	c.front = `split: {v1: 1, v2: 1}`
	third := r.merge(c)
	st = r.read(third)
	if st.StoreError == "" {
		t.Error("the error is gone")
	}
	// Nobody is in edge, and still it is not done before it is written.
	if g := st.group("edge"); g.State != RollingOut || g.Base != first || g.Target != third {
		t.Errorf("the empty group is %+v", g)
	}
	newcomer := r.connect("front-2")
	newcomer.sees("front → v1, v1@10.0.0.1:80")
	r.connect("edge-1").sees("edge → v1, v1@10.0.0.1:80")
	if got := front.counts(); got != before {
		t.Errorf("the client was sent %v, before %v", got, before)
	}
	fails.Store(false)
	r.done("front", third)
	st = r.done("edge", third)
	if st.StoreError != "" {
		t.Errorf("still an error: %s", st.StoreError)
	}
	front.sees("front → v1 v2, v1@10.0.0.9:80, v2@10.0.0.1:80")
}

// A halt holds everybody, whether it can be written or not.
func TestAHaltDoesNotNeedTheStore(t *testing.T) {
	var fails atomic.Bool
	r, _ := newRig(t, frontOnly("v1"), func(r *rig) { r.wrap = func(s Store) Store { return failingStore{s, &fails} } })
	bad, good := r.connect("front-1"), r.connect("front-2")
	bad.sees("front → v1, v1@10.0.0.1:80")
	good.sees("front → v1, v1@10.0.0.1:80")
	good.hold(rds)
	bad.hold(rds)
	r.merge(frontOnly("v2"))
	good.waitsWith(rds)
	bad.waitsWith(rds)
	fails.Store(true)
	bad.rejects(rds, "no")
	bad.release(rds)
	r.state("front", Halted)
	good.release(rds)
	r.until("the other to be held", func(st *Status) bool { return strings.HasPrefix(st.node("front-2").Why, "held") })
}

// What nothing names any more leaves the store once everybody is done with it,
// and not before.
func TestBodiesOfLiveTypesAreTidied(t *testing.T) {
	r, _ := newRig(t, frontOnly("v0"))
	front := r.connect("front-1")
	front.sees("front → v0, v0@10.0.0.1:80")
	for i := range trailMost + 2 {
		v := fmt.Sprintf("v%02d", i+1)
		r.done("front", r.merge(frontOnly(v)))
		front.sees(fmt.Sprintf("front → %[1]s, %[1]s@10.0.0.1:80", v))
	}
	kept, want := "", ""
	for i := range trailMost + 1 { // what is on the trail, and the base
		want += fmt.Sprintf(" v%02d", i+2)
	}
	eventually(t, func() bool {
		st, err := r.store.Load()
		noError(t, err)
		kept = ""
		for e := range st.Live.Of(eds).All() {
			kept += " " + e.Name
		}
		return kept == want
	}, func() string { return "the store keeps the endpoints of" + kept })
}

func TestNothingIsLeftRunning(t *testing.T) {
	r, first := newRig(t, both("v1"), alone)
	front, edge := r.connect("front-1"), r.connect("edge-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	edge.sees("edge → v1, v1@10.0.0.1:80")
	r.done("front", first)
	front.hold(rds)
	r.merge(both("v2")) // stopped in the middle of it
	front.waitsWith(rds)
	front.close()
	edge.close()
	r.stop()
	noGoroutines(t)
}

// noGoroutines waits until no goroutine of sluice's is left but the test.
func noGoroutines(t *testing.T) {
	t.Helper()
	var left string
	eventually(t, func() bool {
		left = ""
		buf := make([]byte, 1<<20)
		for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "github.com/sluice-xds/sluice/") && !strings.Contains(stack, "testing.tRunner") {
				left += stack + "\n\n"
			}
		}
		return left == ""
	}, func() string { return "still running:\n" + left })
}
