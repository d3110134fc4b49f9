package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// States of a node.
const (
	NodeNacked       = "nacked"       // refuses something
	NodeRefused      = "refused"      // no group takes it, or two do
	NodeBehind       = "behind"       // on its way
	NodeDisconnected = "disconnected" // was seen since the server started, or is awaited since then
	NodeAtTarget     = "at-target"    // has accepted its group's newest routes
)

// NodeStates lists them all, those that ask for attention first.
var NodeStates = []string{NodeNacked, NodeRefused, NodeBehind, NodeDisconnected, NodeAtTarget}

// NodeStatus is one connected node.
type NodeStatus struct {
	ID        string       `json:"id"`
	Group     string       `json:"group"`
	UserAgent string       `json:"user_agent,omitempty"`
	Peer      string       `json:"peer"`
	Commit    string       `json:"commit"` // that it is led to
	Stage     string       `json:"stage,omitempty"`
	State     string       `json:"state"`
	Why       string       `json:"why,omitempty"` // it is not at target
	Nack      *schema.Nack `json:"nack,omitempty"`
	AckedAt   time.Time    `json:"acked_at,omitzero"`
	Connected time.Time    `json:"connected"`
}

// nodeStatus is the status of a node by its newest session. g is nil if its group
// is gone.
func nodeStatus(s *schema.SessionRow, g *GroupStatus) NodeStatus {
	n := NodeStatus{
		ID: s.Node.ID, Group: s.Group, UserAgent: s.Node.UserAgent, Peer: s.Peer, Commit: s.Commit,
		Nack: s.Nack, AckedAt: s.AckedAt, Connected: s.Connected,
	}
	n.State, n.Why = nodeState(s, g)
	if k, ok := s.Stage(); ok {
		n.Stage = k.String()
	}
	return n
}

// nodeState says where a node is by its newest session, and why not at target.
func nodeState(s *schema.SessionRow, g *GroupStatus) (state, why string) {
	switch {
	case s.Nack != nil:
		return NodeNacked, fmt.Sprintf("%s refused: %s", s.Nack.Type, strings.Join(strings.Fields(s.Nack.Words), " "))
	case g != nil && s.Converged && s.Commit == g.Goal():
		if s.Step.Verdict == schema.Halt {
			return NodeAtTarget, s.Step.String() // of a prune, which holds up nobody
		}
		if s.Step.Cause == schema.Busy {
			return NodeAtTarget, "owes a prune: " + s.Step.String()
		}
		return NodeAtTarget, ""
	case !s.Planned:
		return NodeBehind, "has asked for nothing yet"
	case s.Step.Cause == schema.Held && g != nil && g.Halt != nil:
		return NodeBehind, "held: its group is halted by " + g.Halt.Node
	case s.Step.Cause == schema.Held && g != nil && g.Paused != nil:
		return NodeBehind, "held: paused by " + g.Paused.By
	case s.Step.Verdict == schema.Done && g != nil:
		return NodeBehind, fmt.Sprintf("is at %s: its group is %s", abbreviated(s.Commit), g.State)
	}
	return NodeBehind, s.Step.String()
}

// Goal is the commit that the group's nodes should be at.
func (g *GroupStatus) Goal() string {
	if g.Target != "" {
		return g.Target
	}
	return g.Base
}

// Group is the status of a group, or nil.
func (st *Status) Group(name string) *GroupStatus {
	for i := range st.Groups {
		if st.Groups[i].Name == name {
			return &st.Groups[i]
		}
	}
	return nil
}

// Awaited is a node that was connected before a restart and has not come back.
type Awaited struct {
	ID, Group string
	Until     time.Time // its group's rollout waits for it until then
}

// Awaited lists the nodes that are counted as expected though the server has not
// seen them since it started, by id.
func (st *Status) Awaited() []Awaited { return st.awaited }

// refusedFor is how long a node is listed that was refused and has not come back:
// longer than clients wait between two tries.
const refusedFor = 5 * time.Minute

// RefusedStatus is a node that no group takes, or two do.
type RefusedStatus struct {
	Node string `json:"node"`
	// Group is the one that it was in, and whose configuration it keeps; none for
	// a newcomer.
	Group  string    `json:"group,omitempty"`
	Why    string    `json:"why"`
	SeenAt time.Time `json:"seen_at"` // the last try
}

// nodes adds to a status what it says of nodes. Its groups are there.
func (l *Loop) nodes(st *Status, f *facts) {
	for name, rows := range f.sessions {
		in := st.Group(name)
		for _, s := range newest(rows) {
			n := nodeStatus(s, in)
			if why := l.strays(s); why != "" {
				n.State, n.Why = NodeRefused, why
				st.Refused = append(st.Refused, RefusedStatus{s.Node.ID, name, why, st.At})
				if in != nil && s.Generation == l.groups[name].Generation && s.Converged {
					in.AtTarget--
				}
			}
			st.Nodes = append(st.Nodes, n)
		}
	}
	slices.SortFunc(st.Nodes, func(a, b NodeStatus) int { return strings.Compare(a.ID, b.ID) })
	seen := map[string]bool{}
	for _, n := range f.nodes {
		seen[n.ID] = true
		if n.Refusal != "" && st.At.Sub(n.SeenAt) < refusedFor {
			st.Refused = append(st.Refused, RefusedStatus{Node: n.ID, Why: n.Refusal, SeenAt: n.SeenAt})
		}
	}
	slices.SortFunc(st.Refused, func(a, b RefusedStatus) int { return strings.Compare(a.Node, b.Node) })
	for name, g := range l.groups {
		for id, until := range g.awaited {
			if !seen[id] {
				st.awaited = append(st.awaited, Awaited{id, name, until})
			}
		}
	}
	slices.SortFunc(st.awaited, func(a, b Awaited) int { return strings.Compare(a.ID, b.ID) })
}

// strays says why no group has the node of a session any more, or nothing. Whoever
// was not given what its group was given last is asked about alone.
func (l *Loop) strays(s *schema.SessionRow) string {
	g := l.groups[s.Group]
	if g == nil || g.release() == nil || s.Generation == g.written && s.Commit == g.release().Commit {
		return ""
	}
	if _, err := l.guide.Admit(s.Node, nil); err != nil {
		return err.Error() + "; it keeps what it has"
	}
	return ""
}
