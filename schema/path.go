package schema

import (
	"fmt"
	"time"
)

// StageKind names a step of a path. The constants are in the order of rule P1.
type StageKind uint8

// The stages of a path.
const (
	Make StageKind = iota
	Warm
	MakeListeners
	SwitchRoutes
	Unlisten
	Cool
	Prune
	NumStages = iota
)

var stageNames = [...]string{"make", "warm", "listeners", "routes", "unlisten", "cool", "prune"}

func (k StageKind) String() string { return stageNames[k] }

// MarshalText writes the stage's name.
func (k StageKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *StageKind) UnmarshalText(b []byte) error {
	for i, n := range stageNames {
		if n == string(b) {
			*k = StageKind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown stage %q", b)
}

// Client is the kind of xDS client that a group's nodes are (rule G10).
type Client uint8

// The kinds of client.
const (
	Envoy Client = iota
	GRPC
)

func (c Client) String() string { return [...]string{"envoy", "grpc"}[c] }

// MarshalText writes the kind as authors do.
func (c Client) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Client) UnmarshalText(b []byte) error {
	for _, k := range [...]Client{Envoy, GRPC} {
		if k.String() == string(b) {
			*c = k
			return nil
		}
	}
	return fmt.Errorf("unknown client %q", b)
}

// Stage is one step of a path: a closed snapshot, and what must be acknowledged
// before the next step.
type Stage struct {
	Kind     StageKind
	Snapshot Snapshot
	// Moves are the types that this stage changes. Another type may be waiting
	// for an answer too, but that gates nothing (rule O15).
	Moves [NumTypes]bool
	// Wants are the resources that this stage adds or changes, in the order of
	// their types.
	Wants []Want
	// Drain is how long to wait after the stage before was acknowledged.
	Drain time.Duration
	// Unused are keys that this stage removes: it does not begin while the
	// session still subscribes to one of them by name (rule G5).
	Unused []Key
}

// Want is one gate: a resource that a session must hold. It gates a session only
// if that session subscribes to it, or will because it subscribes to one of the
// parents (rule O15).
type Want struct {
	Key
	// Version to hold; empty for a live type, where any version will do that
	// was acknowledged at or after the stage was sent.
	Version Version
	// Parents name resources of the stage that refer to this one. A client that
	// holds one of them will ask for it.
	Parents []Key
	// Usable asks of endpoints that some request could be sent to them: a route
	// is about to gain weight on their cluster (rule P14).
	Usable bool
}

// Path leads one class of sessions from what they hold to a target. To stop at
// any stage is safe: every snapshot on it is closed. A path without stages ends
// where it began. After the last stage the session holds Target.Snapshot.
type Path struct {
	Target *Target
	// From is what the sessions may hold before the first stage.
	From   Snapshot
	Stages []Stage
	// Converged is the number of stages after which the target's routes are
	// accepted: what follows is a debt that gates nothing (rule R6).
	Converged int
}

// Before is the index of a session that has not yet entered the first stage.
const Before = -1

// At is the snapshot that a session at stage i is served: From before the first
// stage, and the target's after the last.
func (p *Path) At(i int) Snapshot {
	switch {
	case i < 0:
		return p.From
	case i < len(p.Stages):
		return p.Stages[i].Snapshot
	}
	return p.Target.Snapshot
}

// Target is what a group's sessions are to hold, and how to bring them there.
// It is never changed: what differs is another Target.
type Target struct {
	Group  string
	Client Client
	Commit string
	// Generation counts the group's targets: a session may move to a later one
	// and never back.
	Generation uint64
	Snapshot   Snapshot
	// Memory, if there is one, is where package planner keeps what the sessions that
	// go to the target have in common on their way, for as long as there is the
	// target.
	Memory *Memory
	// Known are the snapshots that a reconnecting session may report, the most
	// likely first: the target, the stages that lead to it, the base, and what
	// was superseded.
	Known []Snapshot
	// Drain is how long a cluster outlives the last route to it. Negative means
	// the default for the client (rule O10).
	Drain time.Duration
	// Patience is how long a stage waits for its ACKs before the session is
	// unconfirmed (rule R5).
	Patience time.Duration
	// TTL is how long a client that can do so keeps a resource without hearing of
	// it, by type: 0 for ever (rule S11).
	TTL [NumTypes]time.Duration
	// Isolate has one session that refuses several resources together tried with
	// them in parts, to find which are bad (rule D9).
	Isolate bool
	// Open is set while a rollout is under way, or if one was when the server
	// started: a reconnecting session of which nothing is on record may hold pieces
	// of it (rule S9).
	Open bool
	// Hold stops sessions where they are: no stage is opened. Live types go on.
	Hold bool
	// PruneBusy removes clusters also while load reports show requests to them
	// (rule R10).
	PruneBusy bool
	// Base is, while the group is held in the course of a rollout, what a session
	// that holds nothing is given: it is planned for as if it held that.
	Base Snapshot
}

// State is what a session may hold when a path is planned for it (rule P3).
type State struct {
	// Acked is a snapshot that the session has acknowledged as far as it
	// subscribes to it.
	Acked Snapshot
	// Maybe was sent since and may have been applied, in part or whole.
	Maybe Snapshot
	// Blank is set for a session that holds nothing: it orders itself.
	Blank bool
}
