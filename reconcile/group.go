package reconcile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// group is one group's journey from one release to the next. The loop owns it.
type group struct {
	GroupState
	asking
	// next waits for the groups that it comes after.
	next *Release
	// frozen is the newest commit, if the group's part of it does not compile or
	// has no safe path.
	frozen *Rejected
	// written is the generation that the store has: no later one is given out.
	written uint64

	opened  time.Time // when the target was begun
	settled time.Time // when the last target converged
	spent   Spent     // of the newest rollout
	// awaited are nodes that were connected before a restart, or that the group
	// takes over from another, each until when it is waited for. Later they are
	// disconnected, and counted as that.
	awaited map[string]time.Time

	cut bool // a rollout was under way when the server started

	edits int // of the release that was given out, by commits that only rename it
	face  face
	given *assignment // made when the group had this face
}

// face is all of a group that decides what the wire is told of it.
type face struct {
	base, target *Release
	generation   uint64
	edits        int
	halted, gone bool
	asking       askingFace
}

func awaited(nodes []string, until time.Time) map[string]time.Time {
	m := make(map[string]time.Time, len(nodes))
	for _, n := range nodes {
		m[n] = until
	}
	return m
}

// arrived takes note of nodes that were awaited.
func (g *group) arrived(sessions []*schema.SessionRow) {
	for _, s := range sessions {
		delete(g.awaited, s.Node.ID)
	}
}

// missing lists the nodes that the group should have and has not, and until when
// the last of them is waited for: the awaited ones, and in the course of a
// rollout those that went away, perhaps because of it, or whose session the
// ledger does not have yet.
func (g *group) missing(name string, f *facts, patience time.Duration) (ids []string, until time.Time) {
	miss := func(id string, limit time.Time) {
		ids = append(ids, id)
		if limit.After(until) {
			until = limit
		}
	}
	for id, limit := range g.awaited {
		miss(id, limit)
	}
	for _, n := range f.nodes {
		if g.Target == nil || n.Group != name {
			continue
		}
		left := n.Sessions == 0 && !n.SeenAt.Before(g.opened)
		if _, awaited := g.awaited[n.ID]; !awaited && (left || n.Sessions > f.rows[n.ID]) {
			miss(n.ID, n.SeenAt.Add(patience))
		}
	}
	slices.Sort(ids)
	return ids, until
}

// inventory lists the nodes that a restart should wait for: also those whose
// session the ledger does not have yet.
func (g *group) inventory(name string, f *facts) []string {
	ids := map[string]bool{}
	for id := range g.awaited {
		ids[id] = true
	}
	for _, s := range f.sessions[name] {
		ids[s.Node.ID] = true
	}
	for _, n := range f.nodes {
		if n.Group == name && n.Sessions > 0 && f.rows[n.ID] == 0 {
			ids[n.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// Spent says where the time of a rollout went. As JSON it is in seconds.
type Spent struct {
	Fetch, Compile, Plan time.Duration
	Push                 time.Duration // from the first response to the last ACK
}

type spentSeconds struct {
	Fetch   float64 `json:"fetch_seconds"`
	Compile float64 `json:"compile_seconds"`
	Plan    float64 `json:"plan_seconds"`
	Push    float64 `json:"push_seconds"`
}

// MarshalJSON writes seconds, and says so in the names.
func (s Spent) MarshalJSON() ([]byte, error) {
	return json.Marshal(spentSeconds{s.Fetch.Seconds(), s.Compile.Seconds(), s.Plan.Seconds(), s.Push.Seconds()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Spent) UnmarshalJSON(b []byte) error {
	var in spentSeconds
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	of := func(seconds float64) time.Duration { return time.Duration(math.Round(seconds * float64(time.Second))) }
	*s = Spent{of(in.Fetch), of(in.Compile), of(in.Plan), of(in.Push)}
	return nil
}

// release is the newest that was given out.
func (g *group) release() *Release {
	if g.Target != nil {
		return g.Target
	}
	return g.Base
}

// desire takes in what a new commit wants of the group.
func (g *group) desire(r *Release) {
	g.Gone, g.next = false, nil
	if g.parks(r) {
		return
	}
	now := g.release()
	if now == nil || !sameContent(now, r) {
		g.next = r
		return
	}
	// Nothing to roll out, but for names and lines. A halted target stays
	// halted: it is not tried again until it changes.
	now.Commit, now.Origins, now.Group = r.Commit, r.Origins, r.Group
	g.edits++
	if g.Halt != nil {
		g.Halt = g.Halt.in(r, g.Base)
	}
}

func sameContent(a, b *Release) bool {
	return a.Group.Snapshot.Equal(b.Group.Snapshot) && a.Group.Client == b.Group.Client
}

// blocked says why the next release cannot begin, or nothing.
func (g *group) blocked(all map[string]*group) string {
	if g.next.Group.Unsupported != "" {
		return g.next.Group.Unsupported
	}
	if by := g.pausedBy(); by != nil {
		return "is paused by " + by.By
	}
	for _, name := range g.next.Group.After {
		before := all[name]
		switch {
		case before == nil:
			return fmt.Sprintf("waits for group %s, which does not exist", name)
		case before.Parked != nil:
			return fmt.Sprintf("waits for group %s, whose commit %s is parked", name, abbreviated(before.Parked.Commit))
		case before.frozen != nil:
			return fmt.Sprintf("waits for group %s, which is frozen", name)
		case before.Halt != nil:
			return fmt.Sprintf("waits for group %s, which is halted", name)
		case before.Target == nil && before.next != nil && before.next.Group.Unsupported != "":
			return fmt.Sprintf("waits for group %s, which asks for %s", name, before.next.Group.Unsupported)
		case before.next != nil || before.Target != nil:
			return fmt.Sprintf("waits for group %s", name)
		}
	}
	return ""
}

// begin makes the next release the target. Nodes that the last rollout waited
// for in vain are not waited for again.
func (g *group) begin(now time.Time) {
	old := g.Target
	g.Target, g.next, g.Halt = g.next, nil, nil
	g.Generation++
	g.opened = now
	g.remember(old, now)
	maps.DeleteFunc(g.awaited, func(_ string, until time.Time) bool { return !now.Before(until) })
}

// converge makes the target the base. What came before stays on the trail until
// no session can hold it.
func (g *group) converge(now time.Time) {
	old := g.Base
	g.Base, g.Target = g.Target, nil
	g.settled = now
	g.remember(old, now)
}

// What is kept of releases that nodes which were away may still hold: the newest,
// and all that were superseded so lately that requests may still be sent by them.
const (
	trailLeast = 3
	trailMost  = 8
	trailAge   = 10 * time.Minute // Envoy's default drain
)

// remember puts a release on the trail, and drops from it what is known anyway.
func (g *group) remember(r *Release, now time.Time) {
	if r != nil {
		left := *r
		left.Left = now
		if i := slices.IndexFunc(g.Trail, func(old *Release) bool { return sameContent(old, r) }); i >= 0 {
			g.Trail = slices.Clone(g.Trail)
			g.Trail[i] = &left
		} else {
			g.Trail = append(g.Trail, &left)
		}
	}
	g.Trail = slices.DeleteFunc(g.Trail, func(r *Release) bool {
		return sameContent(r, g.release()) || g.Base != nil && sameContent(r, g.Base)
	})
	for n := len(g.Trail); n > trailMost || n > trailLeast && now.Sub(g.Trail[0].Left) >= trailAge; n-- {
		g.Trail = slices.Clone(g.Trail[1:])
	}
}

// assignment is what the wire is to know of the group. It is made once, so that
// what happens to one group does not touch the sessions of others.
func (g *group) assignment(patience time.Duration) (assignment, bool) {
	now := face{g.Base, g.Target, g.Generation, g.edits, g.Halt != nil, g.Gone, g.askingFace()}
	if g.Generation == g.written && g.release() != nil && (g.given == nil || g.face != now) {
		g.given, g.face = g.assign(patience), now
	}
	if g.given == nil {
		return assignment{}, false
	}
	return *g.given, true
}

func (g *group) assign(patience time.Duration) *assignment {
	r := g.release()
	t := &schema.Target{
		Group: r.Group.Name, Client: r.Group.Client, Commit: r.Commit, Generation: g.Generation,
		Snapshot: r.Group.Snapshot, Drain: r.Group.Drain, Patience: patience,
		Open: g.Target != nil || g.cut, Hold: g.Halt != nil || g.pausedBy() != nil, Isolate: r.Group.Isolate, PruneBusy: r.Group.Allow["prune-with-traffic"] != "",
		Memory: new(schema.Memory),
	}
	for ty, ttl := range r.Group.TTL {
		t.TTL[ty] = ttl
	}
	t.Known = g.known(t)
	a := &assignment{group: r.Group, gone: g.Gone, target: t}
	switch {
	case g.Base == nil:
	case g.Halt != nil:
		// The target is in doubt. The base is of an earlier generation, so that
		// nobody takes it for the target.
		back := *t
		back.Commit, back.Snapshot, back.Hold = g.Base.Commit, g.Base.Group.Snapshot, false
		back.Generation--
		a.fallback = &back
	case g.pausedBy() != nil && g.Target != nil:
		// Whoever comes back keeps what it was given so far, and whoever is new
		// is given what all of them have in common (rules R1, R7).
		t.Base = g.Base.Group.Snapshot
	case g.pausedBy() != nil:
		whole := *t
		whole.Hold = false
		a.fallback = &whole
	}
	return a
}

// known lists what a session that comes back may hold, the least advanced first:
// if a version is that of several, the path from the first of them leads through
// the others.
func (g *group) known(t *schema.Target) []schema.Snapshot {
	var out []schema.Snapshot
	add := func(s schema.Snapshot) {
		if !slices.ContainsFunc(out, s.Equal) {
			out = append(out, s)
		}
	}
	base := g.Base
	if base == nil && len(g.Trail) > 0 {
		base = g.Trail[0] // of the group that the nodes come from
	}
	if base != nil {
		base := base.Group.Snapshot
		add(base)
		for _, r := range append(slices.Clone(g.Trail), g.Target) {
			if r == nil {
				continue
			}
			to := *t
			to.Snapshot = r.Group.Snapshot
			for _, st := range planner.NewPath(schema.State{Acked: base}, &to).Stages {
				add(st.Snapshot)
			}
		}
	}
	add(t.Snapshot)
	for _, r := range g.Trail {
		add(r.Group.Snapshot)
		if t.Client != schema.GRPC {
			continue
		}
		// A session that went all the way to a target which another superseded:
		// the tables on its way from there are in no release.
		for _, st := range planner.NewPath(schema.State{Acked: r.Group.Snapshot}, t).Stages {
			add(st.Snapshot)
		}
	}
	return out
}
