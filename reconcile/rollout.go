package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// desire takes in a fleet. Bodies of live types go out at once, also those of
// groups that wait: endpoints are never behind a rollout (rules P4, O11).
func (l *Loop) desire(f *schema.Fleet) {
	for name, g := range l.groups {
		g.frozen = nil
		switch why := f.FrozenBy(name); {
		case why != nil: // what it has, and what it waits for, stays (rule R9)
			g.frozen = &Rejected{Commit: f.Commit, Why: why.Error()}
			l.opts.Log.Error("group frozen: its nodes keep what they have", "group", name, "commit", f.Commit, "why", g.frozen.Why)
		case f.Group(name) == nil:
			g.Gone, g.next = true, nil
		}
	}
	live := f.Live
	for i := range f.Groups {
		g := l.groups[f.Groups[i].Name]
		if g == nil {
			g = &group{asking: asking{ops: &l.ops}}
			l.groups[f.Groups[i].Name] = g
		}
		r := &Release{Commit: f.Commit, Group: f.Groups[i], Origins: map[schema.Key][]schema.Origin{}}
		for res := range r.Group.Snapshot.All() {
			if o := wholes(f.Provenance[res.Key]); len(o) > 0 {
				r.Origins[res.Key] = o
			}
		}
		why := l.refuses(f, g, r)
		for _, h := range l.emptied(f, g, r) { // what the nodes hold stays as it is
			live = live.Replace(h.Key.Type, live.Of(h.Key.Type).Without(h.Key.Name))
			why = hazardWords(f, h)
		}
		if why != "" {
			g.frozen = &Rejected{Commit: f.Commit, Why: why}
			l.opts.Log.Error("group frozen: there is no safe path to what a commit wants of it", "group", r.Group.Name, "commit", f.Commit, "why", why)
			continue
		}
		g.desire(r)
	}
	l.live = l.live.Union(live)
}

// refuses says why a release is not for the nodes of a group, which would be led to
// it from what they have: for a hazard that blocks, and that nobody allows (rules
// P9, P14). It is empty for one that may be rolled out.
func (l *Loop) refuses(f *schema.Fleet, g *group, r *Release) string {
	now := g.release()
	if now == nil || sameContent(now, r) {
		return "" // nobody is served yet, or it is on its way
	}
	var from schema.State
	if g.Base != nil {
		from.Acked = g.Base.Group.Snapshot
	}
	if g.Target != nil {
		from.Maybe = g.Target.Group.Snapshot
	}
	path := l.opts.Plan(from, &schema.Target{
		Group: r.Group.Name, Client: r.Group.Client, Commit: r.Commit, Snapshot: r.Group.Snapshot,
		Drain: r.Group.Drain, Patience: l.opts.Patience,
	})
	_, hazards := planner.Prove(path, f.Live)
	for _, h := range hazards {
		if h.Severity == planner.Blocking && f.Allowed(r.Group.Name, h.Code, h.Key) == "" {
			return hazardWords(f, h)
		}
	}
	return ""
}

// emptied are the hazards of live bodies that a commit takes the last usable
// endpoint from, and that nobody allows.
func (l *Loop) emptied(f *schema.Fleet, g *group, r *Release) []planner.Hazard {
	now := g.release()
	if now == nil {
		return nil
	}
	return slices.DeleteFunc(planner.Emptied(now.Group.Snapshot, l.live, f.Live), func(h planner.Hazard) bool {
		return f.Allowed(r.Group.Name, h.Code, h.Key) != ""
	})
}

// hazardWords say where a hazard stands, what it is and what to do.
func hazardWords(f *schema.Fleet, h planner.Hazard) string {
	return fmt.Sprintf("%s: %s (%s); %s, or allow it there: allow: %q: \"why\"",
		f.Provenance.Of(h.Key).Pos, h.Message, h.Code, h.WayOut, h.Code)
}

// proceed begins every rollout that may begin. A group without nodes is done at
// once, and lets the next begin.
func (l *Loop) proceed() {
	for again := true; again; {
		begun := l.begin(time.Now())
		l.deliver()
		again = false
		f := l.facts()
		for _, name := range begun {
			again = l.judge(name, l.groups[name], f) || again
		}
	}
}

func (l *Loop) begin(now time.Time) (names []string) {
	f := l.facts()
	for _, name := range slices.Sorted(maps.Keys(l.groups)) {
		g := l.groups[name]
		if g.next == nil || g.blocked(l.groups) != "" {
			continue
		}
		g.begin(now)
		g.spent = l.spent
		l.expect(name, g, f, now)
		l.opts.Log.Info("rollout begins", "group", name, "commit", g.Target.Commit)
		names = append(names, name)
	}
	return names
}

// expect has a group that begins wait for the nodes that it takes over from
// others. They may still hold what those gave them.
func (l *Loop) expect(name string, g *group, f *facts, now time.Time) {
	var all []assignment
	for from, rows := range f.sessions {
		for _, s := range rows {
			if from == name || !g.Target.Group.Match.Matches(s.Node) {
				continue
			}
			if all == nil {
				for _, other := range l.groups {
					if r := other.release(); r != nil {
						all = append(all, assignment{group: r.Group, gone: other.Gone})
					}
				}
				byRank(all)
			}
			if a, err := place(all, s.Node); err != nil || a == nil || a.group.Name != name {
				continue
			}
			if g.awaited == nil {
				g.awaited = map[string]time.Time{}
			}
			g.awaited[s.Node.ID] = now.Add(l.opts.Patience)
			if old := l.groups[from]; old != nil && old.release() != nil {
				g.remember(old.release(), now)
			}
		}
	}
}

// look judges every open rollout by what the wire says now.
func (l *Loop) look() {
	f := l.facts()
	changed := false
	for _, name := range slices.Sorted(maps.Keys(l.groups)) {
		g := l.groups[name]
		g.arrived(f.sessions[name])
		if g.Target != nil && g.Halt == nil {
			changed = l.judge(name, g, f) || changed
		} else if g.Target != nil {
			if h := g.Halt.narrowed(f.sessions[name], g.Target, g.Base); h != nil {
				g.Halt, changed = h, true
			}
		}
	}
	switch {
	case changed:
		l.proceed()
	case l.untidy && l.failing == "":
		l.tidy(f)
	}
}

// judge ends a group's rollout if its sessions say so. What they say may be a
// moment old: a session counts once its row is of this generation, and a node
// whose session has no row yet is missing.
func (l *Loop) judge(name string, g *group, f *facts) bool {
	if g.Generation != g.written {
		return false // not given out yet
	}
	now := time.Now()
	sessions := newest(f.sessions[name])
	for _, s := range sessions {
		// Whoever accepted the routes owes only a prune, and that holds up
		// nobody, unless it is refused (rule R6).
		owes := s.Converged && s.Step.Cause != schema.Refused
		if s.Step.Verdict == schema.Halt && s.Generation == g.Generation && !owes {
			l.stats.Halts.Add(1)
			g.Halt = haltOf(s, g.Target, g.Base, now)
			l.opts.Log.Error("rollout halted", "group", name, "commit", g.Target.Commit, "node", s.Node.ID, "why", g.Halt.Cause)
			return true
		}
	}
	if g.pausedBy() != nil {
		return false
	}
	g.arrived(sessions)
	if _, until := g.missing(name, f, l.opts.Patience); now.Before(until) {
		return false
	}
	for _, s := range sessions {
		if !l.through(name, g, s, now) {
			return false
		}
	}
	g.spent.Plan = l.guide.planning(name, g.Generation)
	g.spent.Push = lastACK(sessions, g.opened)
	g.converge(now)
	l.stats.Rollouts.Observe(now.Sub(g.opened))
	l.untidy = true
	l.opts.Log.Info("rollout converged", "group", name, "commit", g.Base.Commit, "nodes", len(sessions), "seconds", now.Sub(g.opened).Seconds())
	return true
}

// through reports whether a session holds up its group's rollout no more.
func (l *Loop) through(name string, g *group, s *schema.SessionRow, now time.Time) bool {
	switch {
	case s.Generation != g.Generation:
		// One that the group cannot have any more keeps what it holds.
		return l.guide.excludes(name, s.Node)
	case !s.Planned:
		// It has asked for nothing, and is not waited for without end.
		since := s.Connected
		if g.opened.After(since) {
			since = g.opened
		}
		return !now.Before(since.Add(l.opts.Patience))
	}
	return s.Converged
}

func lastACK(sessions []*schema.SessionRow, since time.Time) time.Duration {
	last := since
	for _, s := range sessions {
		if s.AckedAt.After(last) {
			last = s.AckedAt
		}
	}
	return last.Sub(since)
}

// repair does what nothing else is the occasion of, every second: it tries the
// store again, writes down who has come, and gives sessions their target that
// opened in the moment when it was given out.
func (l *Loop) repair() {
	f := l.facts()
	known, late := true, false
	for name, g := range l.groups {
		for _, s := range f.sessions[name] {
			if _, listed := slices.BinarySearch(g.Nodes, s.Node.ID); !listed && g.release() != nil {
				known = false
			}
			late = late || s.Generation < g.written && !g.heldBack()
		}
	}
	if late {
		l.server.Refresh()
	}
	switch {
	case l.failing != "":
		l.deliver()
	case !known || l.unsaved:
		l.save()
	}
}

// tidy drops the live bodies that no release names any more, once every session
// is done.
func (l *Loop) tidy(f *facts) {
	named := map[schema.Key]bool{}
	for name, g := range l.groups {
		if g.Target != nil || !allDone(f.sessions[name], g.Generation) {
			return
		}
		for _, r := range append([]*Release{g.Base, g.next}, g.Trail...) {
			if r == nil {
				continue
			}
			for _, t := range [...]schema.Type{schema.Endpoints, schema.Secrets} {
				for res := range r.Group.Snapshot.Of(t).All() {
					named[res.Key] = true
				}
			}
		}
	}
	before := l.live
	for _, t := range [...]schema.Type{schema.Endpoints, schema.Secrets} {
		l.live = l.live.Replace(t, l.live.Of(t).Filter(func(r *schema.Resource) bool { return named[r.Key] }))
	}
	if !l.live.Equal(before) {
		if !l.save() {
			l.live = before
			return
		}
		l.server.Retain(func(k schema.Key) bool { return named[k] })
	}
	l.untidy = false
}

func allDone(sessions []*schema.SessionRow, generation uint64) bool {
	for _, s := range sessions {
		if s.Generation != generation || s.Step.Verdict != schema.Done {
			return false
		}
	}
	return true
}

// deliver writes the store before the wire hears of anything. If that fails
// nothing new is served: what is served must be what a restart would find. A
// halt is given out all the same, as it serves nothing.
func (l *Loop) deliver() {
	if l.save() {
		l.server.Live(l.live)
	}
	l.assign()
}

func (l *Loop) save() bool {
	st := State{Groups: map[string]GroupState{}, Live: l.live, Operators: l.ops}
	f := l.facts()
	for name, g := range l.groups {
		if g.release() != nil {
			g.Nodes = g.inventory(name, f)
			st.Groups[name] = g.GroupState
		}
	}
	if err := l.opts.Store.Save(st); err != nil {
		if l.failing != err.Error() {
			l.opts.Log.Error("nothing new is served", "why", err.Error())
		}
		l.failing = err.Error()
		return false
	}
	l.failing, l.unsaved = "", false
	for _, g := range l.groups {
		g.written = g.Generation
	}
	return true
}

// assign gives the wire the targets of all groups.
func (l *Loop) assign() {
	var all, waiting []assignment
	for _, g := range l.groups {
		if a, ok := g.assignment(l.opts.Patience); ok {
			all = append(all, a)
		} else if g.next != nil {
			waiting = append(waiting, assignment{group: g.next.Group, waits: g.blocked(l.groups)})
		}
	}
	l.guide.set(all, waiting)
	l.server.Refresh()
	if l.files == nil {
		return
	}
	var names []string
	for _, a := range all {
		if a.group.Client == schema.Envoy { // gRPC reads no files
			names = append(names, a.group.Name)
		}
	}
	l.files.Serve(names, l.live)
}

// facts are what the ledger says at one moment.
type facts struct {
	sessions map[string][]*schema.SessionRow // by group, the oldest first
	rows     map[string]int                  // sessions by node
	nodes    []*schema.NodeRow
}

func (l *Loop) facts() *facts {
	v := l.server.View()
	f := &facts{sessions: map[string][]*schema.SessionRow{}, rows: map[string]int{}, nodes: v.Nodes()}
	for _, s := range v.Sessions() {
		f.sessions[s.Group] = append(f.sessions[s.Group], s)
		f.rows[s.Node.ID]++
	}
	return f
}

// newest keeps the newest session of each node: during a hot restart the older
// is on its way out.
func newest(sessions []*schema.SessionRow) []*schema.SessionRow {
	at := map[string]int{}
	var out []*schema.SessionRow
	for _, s := range sessions {
		if i, ok := at[s.Node.ID]; ok {
			out[i] = s
			continue
		}
		at[s.Node.ID] = len(out)
		out = append(out, s)
	}
	return out
}
