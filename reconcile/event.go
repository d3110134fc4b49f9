package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// The kinds of event.
const (
	EventServer    = "server"    // it started, or cannot write its store
	EventSource    = "source"    // a commit was read, or Git cannot be
	EventRejected  = "rejected"  // a commit does not compile
	EventRollout   = "rollout"   // a group sets out for a commit
	EventStage     = "stage"     // nodes are through a stage
	EventHalted    = "halted"    // a group goes no further, with what the node said
	EventConverged = "converged" // a group has finished a commit
	EventState     = "state"     // a group waits, or no longer does
	EventNack      = "nack"      // a node said no
	EventNode      = "node"      // nodes came or went
	EventRefused   = "refused"   // a node that no group takes
	EventIntent    = "intent"    // somebody paused, resumed, aborted or retried
)

// Event is one thing that happened. Seq counts up, also over restarts.
type Event struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Group  string    `json:"group,omitempty"`
	Node   string    `json:"node,omitempty"`
	Commit string    `json:"commit,omitempty"`
	// Rollout is the commit's number, if it has one.
	Rollout Number `json:"rollout,omitzero"`
	By      string `json:"by,omitempty"`
	Words   string `json:"words"`
}

// eventLimit is how many events are kept for readers that were away.
const eventLimit = 4096

// events keeps the newest events. The loop writes, and any number read.
type events struct {
	mu   sync.Mutex
	kept []Event
	next uint64        // the number of the next event
	more chan struct{} // closed when there is one
}

// newEvents begins to count at a time, so that no number is of two events though
// the server restarts. In thousands of milliseconds, a number is exact in JSON.
func newEvents(now time.Time) *events {
	return &events{next: uint64(now.UnixMilli()) * 1000, more: make(chan struct{})}
}

// number gives each its place and time, and returns the number of the newest.
func (e *events) number(all []Event, at time.Time) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range all {
		all[i].Seq, all[i].At = e.next+uint64(i), at
	}
	return e.next + uint64(len(all)) - 1
}

// add keeps what was numbered, and wakes who waits.
func (e *events) add(all []Event) {
	if len(all) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, all...)
	if over := len(e.kept) - eventLimit; over > 0 {
		e.kept = slices.Clone(e.kept[over:])
	}
	e.next += uint64(len(all))
	close(e.more)
	e.more = make(chan struct{})
}

// Events lists what happened after the event with a number, 0 for all that is
// kept. lost is set if something in between is not known any more: look at the
// Status then. more is closed when there is another.
func (l *Loop) Events(after uint64) (list []Event, lost bool, more <-chan struct{}) {
	e := l.events
	e.mu.Lock()
	defer e.mu.Unlock()
	oldest := e.next - uint64(len(e.kept))
	switch {
	case after == 0:
		list = e.kept
	case after+1 < oldest || after >= e.next:
		list, lost = e.kept, true
	default:
		list = e.kept[after+1-oldest:]
	}
	return slices.Clip(list), lost, e.more
}

// record publishes a status, with the events that led to it.
func (l *Loop) record(st *Status) {
	st.acts, st.live, st.releases = l.ops.History, l.live, map[string][]Release{}
	for name, g := range l.groups {
		for _, r := range append([]*Release{g.Base, g.Target}, g.Trail...) {
			if r != nil {
				st.releases[name] = append(st.releases[name], *r)
			}
		}
	}
	news := Changes(l.status.Load(), st)
	st.Seq = l.events.number(news, st.At)
	l.chronicle(news)
	st.acts = l.ops.History
	l.status.Store(st)
	l.events.add(news)
	for _, e := range news {
		l.opts.Log.Debug("event", "kind", e.Kind, "group", e.Group, "node", e.Node, "commit", e.Commit, "words", e.Words)
	}
}

// Changes lists what happened between two statuses, the first of which may be
// nil: then the server has just started.
func Changes(was, is *Status) []Event {
	if was == nil {
		return []Event{{Kind: EventServer, Words: "the server has started"}}
	}
	c := changes{}
	c.acts(was.acts, is.acts)
	c.source(was, is)
	for i := range is.Groups {
		g := &is.Groups[i]
		j, ok := slices.BinarySearchFunc(was.Groups, g.Name, func(g GroupStatus, name string) int { return strings.Compare(g.Name, name) })
		old := &GroupStatus{}
		if ok {
			old = &was.Groups[j]
		}
		c.group(old, g)
	}
	c.nodes(was.Nodes, is.Nodes)
	known := map[[2]string]bool{}
	for _, r := range was.Refused {
		known[[2]string{r.Node, r.Why}] = true
	}
	for _, r := range is.Refused {
		if !known[[2]string{r.Node, r.Why}] {
			c.add(Event{Kind: EventRefused, Group: r.Group, Node: r.Node, Words: r.Why})
		}
	}
	for i := range c.list {
		c.list[i].Rollout = is.NumberOf(c.list[i].Commit)
	}
	return c.list
}

type changes struct{ list []Event }

func (c *changes) add(e Event) { c.list = append(c.list, e) }

func (c *changes) acts(was, is []Act) {
	last := uint64(0)
	if len(was) > 0 {
		last = was[len(was)-1].ID
	}
	for _, a := range is {
		if a.ID > last && a.By != "" {
			c.add(Event{Kind: EventIntent, Group: a.Group, Commit: a.Commit, By: a.By, Words: a.What + ": " + a.Words})
		}
	}
}

func (c *changes) source(was, is *Status) {
	if s := is.Source; s.Commit != was.Source.Commit {
		c.add(Event{Kind: EventSource, Commit: s.Commit, By: s.Author, Words: cmp.Or(s.Subject, "read")})
	}
	if now := is.Source.Error; now != was.Source.Error {
		c.add(Event{Kind: EventSource, Words: cmp.Or(now, "Git can be read again")})
	}
	if r := is.Rejected; r != nil && (was.Rejected == nil || *was.Rejected != *r) {
		c.add(Event{Kind: EventRejected, Commit: r.Commit, Words: r.Why})
	}
	if now := is.StoreError; now != was.StoreError {
		c.add(Event{Kind: EventServer, Words: cmp.Or(now, "the store can be written again")})
	}
}

func (c *changes) group(was, is *GroupStatus) {
	add := func(kind, commit, words string) {
		c.add(Event{Kind: kind, Group: is.Name, Commit: commit, Words: words})
	}
	fresh := is.Target != "" && (is.Target != was.Target || !is.OpenedAt.Equal(was.OpenedAt))
	if fresh {
		words := "begins"
		if is.Base != "" {
			words += ", from " + abbreviated(is.Base)
		}
		if is.Parked != nil {
			words = "walks back to " + abbreviated(is.Base)
		}
		add(EventRollout, is.Target, words)
	}
	if is.Target != "" || was.Target != "" {
		for _, s := range is.Stages {
			if old := stageOf(was.Stages, s.Stage); s.Acked > 0 && (fresh || s.Acked != old.Acked) {
				add(EventStage, cmp.Or(is.Target, is.Base), fmt.Sprintf("%s %d/%d", s.Stage, s.Acked, s.Of))
			}
		}
	}
	switch {
	case is.Halt != nil && (was.Halt == nil || !was.Halt.At.Equal(is.Halt.At) || was.Halt.Commit != is.Halt.Commit):
		c.add(Event{Kind: EventHalted, Group: is.Name, Node: is.Halt.Node, Commit: is.Halt.Commit, Words: is.Halt.Text()})
	case is.Target == "" && is.Base != "" && (was.Target != "" || !is.SettledAt.Equal(was.SettledAt)):
		add(EventConverged, is.Base, fmt.Sprintf("%d of %d nodes at target", is.AtTarget, is.Connected+is.Expected))
	}
	quiet := is.State == RollingOut || is.State == Converged || is.State == Halted
	if (is.State != was.State || is.Why != was.Why) && !quiet {
		add(EventState, cmp.Or(is.Next, is.Target, is.Base), strings.TrimSuffix(is.State+": "+is.Why, ": "))
	}
}

func stageOf(all []StageStatus, k schema.StageKind) StageStatus {
	for _, s := range all {
		if s.Stage == k {
			return s
		}
	}
	return StageStatus{}
}

// Text is the halt on one line: which node, at which stage, its words, and the
// line of configuration that they mean.
func (h *Halt) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s", h.Node)
	if h.Stage != "" {
		fmt.Fprintf(&b, ", stage %s", h.Stage)
	}
	b.WriteString(": " + strings.Join(strings.Fields(h.Cause), " "))
	for _, o := range h.Origins {
		fmt.Fprintf(&b, " → %s", o.Pos.Short())
	}
	return b.String()
}

// many is how many nodes of a group are named one by one in one status.
const many = 20

// nodes compares two lists that are sorted by id.
func (c *changes) nodes(was, is []NodeStatus) {
	came, went, nacked := map[string][]string{}, map[string][]string{}, map[string]int{}
	i := 0
	for j := range is {
		n := &is[j]
		for i < len(was) && was[i].ID < n.ID {
			went[was[i].Group] = append(went[was[i].Group], was[i].ID)
			i++
		}
		var old *NodeStatus
		if i < len(was) && was[i].ID == n.ID {
			old = &was[i]
			i++
		}
		if old == nil {
			came[n.Group] = append(came[n.Group], n.ID)
		}
		if n.Nack != nil && (old == nil || old.Nack == nil || !old.Nack.At.Equal(n.Nack.At)) {
			if nacked[n.Group]++; nacked[n.Group] <= many {
				words := fmt.Sprintf("%s refused, nonce %s: %s", n.Nack.Type, n.Nack.Nonce, strings.Join(strings.Fields(n.Nack.Words), " "))
				c.add(Event{Kind: EventNack, Group: n.Group, Node: n.ID, Commit: n.Commit, Words: words})
			}
		}
	}
	for ; i < len(was); i++ {
		went[was[i].Group] = append(went[was[i].Group], was[i].ID)
	}
	c.each(went, "disconnected")
	c.each(came, "connected")
	for _, group := range sortedKeys(nacked) {
		if n := nacked[group] - many; n > 0 {
			c.add(Event{Kind: EventNack, Group: group, Words: fmt.Sprintf("%d more nodes refused", n)})
		}
	}
}

// each says it of every node, or of all of a group at once if they are many.
func (c *changes) each(by map[string][]string, word string) {
	for _, group := range sortedKeys(by) {
		ids := by[group]
		if len(ids) > many {
			c.add(Event{Kind: EventNode, Group: group, Words: fmt.Sprintf("%d nodes %s: %s", len(ids), word, some(ids))})
			continue
		}
		for _, id := range ids {
			c.add(Event{Kind: EventNode, Group: group, Node: id, Words: word})
		}
	}
}

func abbreviated(commit string) string { return commit[:min(len(commit), 7)] }

// Releases lists what nodes of a group may hold: of the commit that it finished,
// of the one under way, and of those before. The second is how the live types are
// served now.
func (st *Status) Releases(group string) ([]Release, schema.Snapshot) {
	return st.releases[group], st.live
}

// Act is one line of the history: an intent, or the turn of a rollout.
type Act struct {
	ID     uint64    `json:"id"`
	At     time.Time `json:"at"`
	What   string    `json:"what"` // a verb, or rollout, halted, converged
	Group  string    `json:"group"`
	Commit string    `json:"commit,omitempty"`
	// Rollout is the commit's number, if it has one.
	Rollout Number `json:"rollout,omitzero"`
	By      string `json:"by,omitempty"` // empty: sluice itself
	Nodes   int    `json:"nodes"`
	Words   string `json:"words"` // without the verb
}

// actLimit bounds the history.
const actLimit = 500

// History lists what was done, the newest last.
func (l *Loop) History() []Act { return l.status.Load().acts }

func (l *Loop) note(a Act) {
	if n := len(l.ops.History); n > 0 {
		a.ID = l.ops.History[n-1].ID
	}
	a.ID++
	a.Rollout = numberOf(l.ops.Rollouts, a.Commit)
	// Readers may have what is there.
	l.ops.History = append(slices.Clip(l.ops.History[max(0, len(l.ops.History)+1-actLimit):]), a)
	l.unsaved = true
}

// chronicle takes the turns of rollouts into the history.
func (l *Loop) chronicle(news []Event) {
	var f *facts
	for _, e := range news {
		if e.Kind == EventRollout || e.Kind == EventHalted || e.Kind == EventConverged {
			if f == nil {
				f = l.facts()
			}
			g := l.groups[e.Group]
			l.note(Act{At: e.At, What: e.Kind, Group: e.Group, Commit: e.Commit, Nodes: l.size(e.Group, g, f), Words: e.Words})
		}
	}
}
