package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// StatusFormat is the version of the Status document.
const StatusFormat = "1"

// Status is what people and scripts are told, in one document.
type Status struct {
	FormatVersion string          `json:"format_version"`
	At            time.Time       `json:"at"`
	Seq           uint64          `json:"seq"` // of the newest event that it knows
	Source        SourceStatus    `json:"source"`
	Stopping      bool            `json:"stopping,omitempty"`    // the server ends, and sends its nodes away
	StoreError    string          `json:"store_error,omitempty"` // while set nothing new is served
	Rejected      *Rejected       `json:"rejected,omitempty"`
	Rollouts      []Rollout       `json:"rollouts"` // the newest last
	Groups        []GroupStatus   `json:"groups"`
	Nodes         []NodeStatus    `json:"nodes"`
	Refused       []RefusedStatus `json:"refused,omitempty"`

	acts     []Act
	awaited  []Awaited
	releases map[string][]Release
	live     schema.Snapshot
}

// SourceStatus is the state of the Git repository.
type SourceStatus struct {
	URL      string    `json:"url"`
	Branch   string    `json:"branch,omitempty"`
	Commit   string    `json:"commit,omitempty"` // the newest that was read
	Author   string    `json:"author,omitempty"`
	Subject  string    `json:"subject,omitempty"`
	SeenAt   time.Time `json:"seen_at,omitzero"`   // when Commit was first read
	PolledAt time.Time `json:"polled_at,omitzero"` // the last poll, good or bad
	Error    string    `json:"error,omitempty"`    // of the last poll
}

// Rejected is the newest commit, if it cannot be served.
type Rejected struct {
	Commit string `json:"commit"`
	Why    string `json:"why"` // lines of file:line:col
}

// Group states.
const (
	Converged   = "converged"   // every node accepted the last routes
	RollingOut  = "rolling out" // on its way to Target
	Halted      = "halted"      // a node said no, or nothing; see Halt
	Waiting     = "waiting"     // the next commit waits; see Why
	Unsupported = "unsupported" // the next commit asks for what this version cannot do
	Frozen      = "frozen"      // the group's part of the newest commit does not compile, or has no safe path: its nodes keep what they have
	Gone        = "gone"        // the newest commit does not name the group: its nodes keep what they have
)

// GroupStatus is the state of one group.
type GroupStatus struct {
	Name   string        `json:"name"`
	Client schema.Client `json:"client"`
	State  string        `json:"state"`
	Why    string        `json:"why,omitempty"`
	Base   string        `json:"base,omitempty"`   // the commit that the group finished
	Target string        `json:"target,omitempty"` // the commit under way
	Next   string        `json:"next,omitempty"`   // the commit that waits
	// Rollout is the number of the target's, or else of the base's; NextRollout
	// that of the commit that waits.
	Rollout     Number `json:"rollout,omitzero"`
	NextRollout Number `json:"next_rollout,omitzero"`
	Wave        Wave   `json:"wave"`
	// Connected nodes; Expected are those that are not there and should be: they
	// were before a restart, or went away in mid-rollout, or come from another
	// group; AtTarget have accepted the routes of
	// Target, or without one of Base; Done owe no prune.
	Connected int           `json:"connected"`
	Expected  int           `json:"expected"`
	AtTarget  int           `json:"at_target"`
	Done      int           `json:"done"`
	Nacks     int           `json:"nacks"` // nodes that refuse something
	Stages    []StageStatus `json:"stages,omitempty"`
	Halt      *Halt         `json:"halt,omitempty"`
	Paused    *Mark         `json:"paused,omitempty"`
	Parked    *Parked       `json:"parked,omitempty"`
	Frozen    *Rejected     `json:"frozen,omitempty"` // the newest commit, which is not for this group
	OpenedAt  time.Time     `json:"opened_at,omitzero"`
	SettledAt time.Time     `json:"settled_at,omitzero"`
	Spent     Spent         `json:"spent"`
}

// Wave is how far a group's rollout is through its waves. A group is one wave of
// all its nodes.
type Wave struct {
	Index int `json:"index"` // the wave that is open, from 1
	Count int `json:"count"`
}

// String is index/count.
func (w Wave) String() string { return fmt.Sprintf("%d/%d", w.Index, w.Count) }

// oneWave is all of a group at once.
var oneWave = Wave{1, 1}

// StageStatus counts the nodes that are through a stage of the rollout.
type StageStatus struct {
	Stage schema.StageKind `json:"stage"`
	Acked int              `json:"acked"`
	Of    int              `json:"of"` // nodes whose path has the stage
}

// Status is the newest status. It does not change.
func (l *Loop) Status() *Status { return l.status.Load() }

func (l *Loop) publish() {
	f := l.facts()
	st := &Status{
		FormatVersion: StatusFormat, At: time.Now(), Source: l.source, StoreError: l.failing, Rejected: l.rejected,
		Rollouts: l.ops.Rollouts, Groups: []GroupStatus{}, Nodes: []NodeStatus{},
	}
	for name, g := range l.groups {
		st.Groups = append(st.Groups, l.groupStatus(name, g, f, st.At))
	}
	slices.SortFunc(st.Groups, func(a, b GroupStatus) int { return strings.Compare(a.Name, b.Name) })
	l.nodes(st, f)
	l.record(st)
}

func (l *Loop) groupStatus(name string, g *group, f *facts, now time.Time) GroupStatus {
	sessions := newest(f.sessions[name])
	missing, until := g.missing(name, f, l.opts.Patience)
	st := GroupStatus{
		Name: name, Halt: g.Halt, Frozen: g.frozen, Connected: len(sessions), Expected: len(missing),
		OpenedAt: g.opened, SettledAt: g.settled, Spent: g.spent, Wave: oneWave,
	}
	if r := g.release(); r != nil {
		st.Client = r.Group.Client
	}
	if g.Base != nil {
		st.Base = g.Base.Commit
	}
	if g.Target != nil {
		st.Target = g.Target.Commit
	}
	for _, s := range sessions {
		if s.Generation == g.Generation && s.Converged {
			st.AtTarget++
		}
		if s.Generation == g.Generation && s.Step.Verdict == schema.Done {
			st.Done++
		}
		if s.Nack != nil {
			st.Nacks++
		}
	}
	st.Stages = stages(sessions, g.Generation)
	st.State, st.Why = l.stateOf(g)
	switch {
	case st.State == RollingOut && st.Why == "" && now.Before(until):
		st.Why = "waits for " + some(missing)
	case st.State == Converged && st.Connected == 0:
		st.Why = "no node is connected"
	}
	l.asked(&st, g)
	if g.next != nil {
		st.Next = g.next.Commit
		st.Client = g.next.Group.Client
	}
	st.Rollout, st.NextRollout = numberOf(l.ops.Rollouts, st.Goal()), numberOf(l.ops.Rollouts, st.Next)
	return st
}

// stateOf says where a group stands, and why it does not move.
func (l *Loop) stateOf(g *group) (state, why string) {
	waits := ""
	if g.next != nil {
		waits = g.blocked(l.groups)
	}
	switch {
	case g.Halt != nil:
		return Halted, g.Halt.Cause
	case g.Generation != g.written:
		return RollingOut, "waits until the store can be written"
	case g.Target != nil && waits != "":
		return RollingOut, "the next commit " + waits
	case g.Target != nil:
		return RollingOut, ""
	case g.next != nil && g.next.Group.Unsupported != "":
		return Unsupported, waits
	case g.next != nil:
		return Waiting, waits
	case g.frozen != nil:
		why, _, _ := strings.Cut(g.frozen.Why, "\n")
		return Frozen, fmt.Sprintf("commit %s: %s", abbreviated(g.frozen.Commit), why)
	case g.Gone:
		return Gone, "the newest commit does not name this group: its nodes keep what they have"
	}
	return Converged, ""
}

// some names a few.
func some(ids []string) string {
	const few = 3
	if n := len(ids); n > few {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:few], ", "), n-few)
	}
	return strings.Join(ids, ", ")
}

// stages counts, for each stage that some session's path to the newest target
// has, who is through it.
func stages(sessions []*schema.SessionRow, generation uint64) []StageStatus {
	var out []StageStatus
	for k := schema.Make; k <= schema.Prune; k++ {
		st := StageStatus{Stage: k}
		for _, s := range sessions {
			if i := slices.Index(s.Stages, k); i >= 0 && s.Generation == generation {
				st.Of++
				if s.Through(i) {
					st.Acked++
				}
			}
		}
		if st.Of > 0 {
			out = append(out, st)
		}
	}
	return out
}
