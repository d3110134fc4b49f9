package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

func TestR1Place(t *testing.T) {
	group := func(name, match string, priority int, gone bool) assignment {
		return assignment{group: schema.Group{Name: name, Match: schema.Match{ID: match}, Priority: priority}, gone: gone}
	}
	all := []assignment{
		group("all", "", -1, false), group("web", "web-*", 0, false), group("canary", "web-1", 5, false),
		group("old", "db-*", 0, true), group("new", "db-*", 0, false),
		group("a", "x-*", 0, false), group("b", "x-*", 0, false),
		group("kept", "y-*", 3, true), group("low", "y-*", 2, false),
	}
	byRank(all)
	for id, want := range map[string]string{
		"web-1": "canary", "web-2": "web", "other": "all",
		"db-1": "new",  // renamed
		"y-1":  "kept", // vanished: nobody inherits its nodes by having less to say
		"x-1":  `node "x-1" matches the groups a and b equally: give one of them a higher priority`,
	} {
		got := "nobody"
		a, err := place(all, schema.Node{ID: id})
		if err != nil {
			got = err.Error()
		} else if a != nil {
			got = a.group.Name
		}
		if got != want {
			t.Errorf("%s goes to %s, want %s", id, got, want)
		}
	}
	if a, err := place(all[:1], schema.Node{ID: "other"}); a != nil || err != nil {
		t.Errorf("no group matches, and it goes to %v (%v)", a, err)
	}
}

// targetOf is an assignment of a group whose every node matches.
func targetOf(generation uint64, halted bool) assignment {
	s := func(v string) schema.Snapshot {
		return schema.SnapshotOf(schema.NewResource(schema.Key{Type: cds, Name: "c"}, nil, []byte(v)))
	}
	a := assignment{group: schema.Group{Name: "g"}, target: &schema.Target{Group: "g", Generation: generation, Snapshot: s("new"), Hold: halted}}
	if halted {
		a.fallback = &schema.Target{Group: "g", Generation: generation - 1, Snapshot: s("old")}
	}
	return a
}

func TestAdmit(t *testing.T) {
	g := newGuide(planner.NewPath)
	if _, err := g.Admit(schema.Node{ID: "n"}, nil); !errors.Is(err, ads.ErrNotReady) {
		t.Errorf("before anything is known: %v", err)
	}
	a := targetOf(3, true)
	waits := assignment{group: schema.Group{Name: "late", Match: schema.Match{ID: "late-*"}}, waits: "waits for group g"}
	a.group.Match.ID = "n*"
	g.set([]assignment{a}, []assignment{waits})
	elsewhere := &schema.Target{Group: "other", Generation: 3}
	for _, c := range []struct {
		what    string
		present *schema.Target
		want    *schema.Target
	}{
		{"a newcomer", nil, a.fallback},
		{"one from another group", elsewhere, a.fallback},
		{"one that was given the target", &schema.Target{Group: "g", Generation: 3, Snapshot: a.target.Snapshot}, a.target},
		{"one that was given the target, which holds what the base does", &schema.Target{Group: "g", Generation: 3, Snapshot: a.fallback.Snapshot}, a.target},
		{"one that missed it", &schema.Target{Group: "g", Generation: 2, Snapshot: a.fallback.Snapshot}, a.fallback},
		{"one that was given the base", a.fallback, a.fallback},
	} {
		if got, err := g.Admit(schema.Node{ID: "n1"}, c.present); got != c.want || err != nil {
			t.Errorf("%s is given %+v, %v", c.what, got, err)
		}
	}
	if _, err := g.Admit(schema.Node{ID: "late-1"}, nil); !errors.Is(err, ads.ErrNotReady) || !strings.Contains(err.Error(), "group late waits for group g") {
		t.Errorf("a node of a group that waits is told %v", err)
	}
	if _, err := g.Admit(schema.Node{ID: "x"}, nil); err == nil || errors.Is(err, ads.ErrNotReady) {
		t.Errorf("a node that nothing matches is told %v", err)
	}
}

// Equal states are planned once, however often the guide is told anew; what is
// remembered is bounded, and goes with its target.
func TestPathsAreRemembered(t *testing.T) {
	planned := 0
	g := newGuide(func(from schema.State, to *schema.Target) *schema.Path {
		planned++
		return planner.NewPath(from, to)
	})
	a := targetOf(2, false)
	g.set([]assignment{a}, nil)
	first := g.Path(schema.State{}, a.target)
	g.set([]assignment{a}, nil)
	if again := g.Path(schema.State{}, a.target); again != first || planned != 1 {
		t.Errorf("planned %d times", planned)
	}
	if spent := g.planning("g", 2); spent <= 0 {
		t.Errorf("planning took %v", spent)
	}
	if spent := g.planning("g", 1); spent != 0 {
		t.Errorf("planning that never was took %v", spent)
	}
	for i := range 3 * pathLimit {
		s := schema.SnapshotOf(schema.NewResource(schema.Key{Type: cds, Name: fmt.Sprint(i)}, nil, []byte("x")))
		g.Path(schema.State{Acked: s}, a.target)
	}
	if n := len(g.paths); n != pathLimit {
		t.Errorf("%d paths are remembered, want %d: what is forgotten is one for each that comes", n, pathLimit)
	}
	g.set([]assignment{targetOf(3, false)}, nil)
	if len(g.paths) != 0 || len(g.spent) != 0 {
		t.Errorf("%d paths and %d times of a target that is gone", len(g.paths), len(g.spent))
	}
}

// Sessions in one state wait for one plan, and those in another do not.
func TestPlanningHoldsUpNobodyElse(t *testing.T) {
	slow := schema.SnapshotOf(schema.NewResource(schema.Key{Type: cds, Name: "slow"}, nil, []byte("x")))
	began, finish := make(chan struct{}), make(chan struct{})
	var planned atomic.Int32
	g := newGuide(func(from schema.State, to *schema.Target) *schema.Path {
		if from.Acked.Equal(slow) {
			planned.Add(1)
			close(began)
			<-finish
		}
		return planner.NewPath(from, to)
	})
	a := targetOf(2, false)
	paths := make(chan *schema.Path)
	ask := func() { paths <- g.Path(schema.State{Acked: slow}, a.target) }
	go ask()
	<-began
	go ask()
	g.Path(schema.State{}, a.target) // for ever, if it waited
	g.set([]assignment{a}, nil)
	close(finish)
	if one, two := <-paths, <-paths; one != two || planned.Load() != 1 {
		t.Errorf("planned %d times, as %p and %p", planned.Load(), one, two)
	}
}

// A newcomer that is held at the base is led from there, and from what it may be
// left with.
func TestR07AHeldNewcomersLeftovers(t *testing.T) {
	g := newGuide(planner.NewPath)
	a := targetOf(3, true)
	held := *a.target
	held.Base = a.fallback.Snapshot
	left := schema.SnapshotOf(schema.Restore(schema.Key{Type: cds, Name: "left"}, "", nil, nil))
	p := g.Path(schema.State{Blank: true, Acked: left}, &held)
	if want := held.Base.Union(left); !p.From.Equal(want) {
		t.Errorf("it is led from %v, want %v", p.From, want)
	}
	if end := p.Stages[len(p.Stages)-1]; end.Kind != schema.Prune {
		t.Errorf("the path ends with %s", end.Kind)
	}
}

// What happens in one group leaves the targets of others as they are: their
// sessions are not so much as looked at.
func TestAssignmentsAreKept(t *testing.T) {
	rel := func(commit, content string) *Release {
		return &Release{Commit: commit, Group: schema.Group{Name: "g", Snapshot: schema.SnapshotOf(schema.NewResource(schema.Key{Type: cds, Name: "c"}, nil, []byte(content)))}}
	}
	g := &group{}
	given := func() *schema.Target {
		a, _ := g.assignment(time.Second)
		return a.target
	}
	g.desire(rel("c1", "1"))
	if given() != nil {
		t.Error("given before it was begun")
	}
	g.begin(started)
	if given() != nil {
		t.Error("given before it was written")
	}
	g.written = g.Generation
	one := given()
	if one == nil || given() != one {
		t.Error("not given, or made anew")
	}
	g.converge(started)
	two := given()
	if two == one || two.Open || !one.Open {
		t.Errorf("converged: %+v", two)
	}
	g.desire(rel("c2", "1"))
	three := given()
	if three == two || three.Commit != "c2" || three.Generation != two.Generation {
		t.Errorf("renamed: %+v", three)
	}
	g.desire(rel("c3", "2"))
	g.begin(started)
	if given() != three {
		t.Error("the next target is given before it was written")
	}
	g.written = g.Generation
	g.Halt = &Halt{}
	a, _ := g.assignment(time.Second)
	if !a.target.Hold || a.fallback == nil || a.fallback.Hold || a.fallback.Generation >= a.target.Generation || a.fallback.Commit != "c2" {
		t.Errorf("halted: %+v, falling back to %+v", a.target, a.fallback)
	}
}

// A rollout that was under way when the server started may have left pieces with
// nodes that were away until it was over.
func TestS09ARolloutThatWasCut(t *testing.T) {
	for _, cut := range []bool{false, true} {
		g := &group{cut: cut}
		g.desire(&Release{Commit: "c", Group: schema.Group{Name: "g"}})
		g.begin(started)
		g.written = g.Generation
		g.converge(started)
		if a, _ := g.assignment(time.Second); a.target.Open != cut {
			t.Errorf("cut %t: %+v", cut, a.target)
		}
	}
}

// What was superseded lately is remembered, and of the rest the newest.
func TestTheTrailIsAsLongAsADrain(t *testing.T) {
	g := &group{GroupState: GroupState{Target: &Release{}}}
	names := func() (s string) {
		for _, r := range g.Trail {
			s += r.Commit
		}
		return s
	}
	now := started
	for i, c := range "abcdef" {
		snap := schema.SnapshotOf(schema.NewResource(schema.Key{Type: cds, Name: "c"}, nil, []byte{byte(i)}))
		g.remember(&Release{Commit: string(c), Group: schema.Group{Snapshot: snap}}, now)
		now = now.Add(time.Minute)
	}
	if names() != "abcdef" {
		t.Errorf("within minutes the trail is %s", names())
	}
	g.remember(nil, started.Add(trailAge+time.Minute))
	if names() != "cdef" {
		t.Errorf("ten minutes later it is %s", names())
	}
	g.remember(nil, now.Add(trailAge))
	if names() != "def" {
		t.Errorf("and after that %s", names())
	}
}

// What a group allows of its prune reaches the wire without another content.
func TestR10AllowanceOfThePrune(t *testing.T) {
	allowing := func(commit string, allow map[string]string) *Release {
		return &Release{Commit: commit, Group: schema.Group{Name: "g", Allow: allow}}
	}
	g := &group{}
	g.desire(allowing("c1", nil))
	g.begin(started)
	g.written = g.Generation
	g.converge(started)
	for i, allow := range []map[string]string{nil, {"prune-with-traffic": "probes"}, {"cluster-swap": "why"}} {
		g.desire(allowing(fmt.Sprint("c", i+2), allow))
		a, _ := g.assignment(time.Second)
		if want := i == 1; a.target.PruneBusy != want || a.target.Generation != 1 {
			t.Errorf("with %v: %+v", allow, a.target)
		}
	}
}

func TestR10NodeOwesAPrune(t *testing.T) {
	s := &schema.SessionRow{Converged: true, Planned: true, Commit: "c", Step: schema.Step{
		Verdict: schema.Wait, Cause: schema.Busy, On: schema.Key{Type: cds, Name: "old"}, Requests: 3,
	}}
	state, why := nodeState(s, &GroupStatus{Base: "c"})
	if want := "owes a prune: waits until no requests go to clusters/old: 3 in the last load report"; state != NodeAtTarget || why != want {
		t.Errorf("%s: %s, want %s", state, why, want)
	}
}

func TestBlame(t *testing.T) {
	names := []string{"cart", "cart-v2", "grpc/server?xds.resource.listening_address=0.0.0.0:1"}
	for words, want := range map[string][]string{
		"cluster cart-v2: bad":              {"cart-v2"},
		"cart: bad":                         {"cart"},
		`"cart", "cart-v2"`:                 {"cart", "cart-v2"},
		"cart-v2 and cart.":                 {"cart", "cart-v2"},
		"on " + names[2] + " no":            {names[2]},
		"something else, supercart, cart_x": names,
	} {
		var got []string
		for _, k := range blamed(&schema.Nack{Type: cds, Names: names, Words: words}) {
			got = append(got, k.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q is about (-want +got):\n%s", words, diff)
		}
	}
}
