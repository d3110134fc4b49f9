package schema

import "time"

// NodeRow is what is known of a node, connected or not.
type NodeRow struct {
	Node
	Group    string    `json:"group,omitempty"` // empty: refused
	Sessions int       `json:"sessions"`        // open ones
	SeenAt   time.Time `json:"seen_at"`         // last connect or disconnect
	Refusal  string    `json:"refusal,omitempty"`
	// Twins are the hosts of a node id that long-lived sessions of more than one
	// host share: two nodes are given one id. Empty for all others.
	Twins []string `json:"twins,omitempty"`
}

// SessionRow is one session as it was a moment ago. Rows are never changed.
type SessionRow struct {
	ID         SessionID
	Node       Node
	Group      string
	Peer       string
	Connected  time.Time
	Commit     string // of the target
	Generation uint64 // of the target
	Planned    bool   // the first request was classified and a path exists
	Stages     []StageKind
	At         int  // index into Stages; Before the first, and their number when all are done
	Converged  bool // the target's routes are accepted
	Step       Step
	Nack       *Nack     // the refusal that halts it
	AckedAt    time.Time // of the newest ACK of a type that is not live
}

// Through reports whether the session has acknowledged all of the i-th stage.
func (r *SessionRow) Through(i int) bool {
	return r.Step.Verdict == Done || r.At > i || r.At == i && r.Step.Settled
}

// Stage is the stage that the session is at, and whether there is one.
func (r *SessionRow) Stage() (StageKind, bool) {
	if r.At >= 0 && r.At < len(r.Stages) {
		return r.Stages[r.At], true
	}
	return 0, false
}

// TypeRow is one type of one session as it was a moment ago.
type TypeRow struct {
	Session  SessionID `json:"-"`
	Type     Type      `json:"type"`
	Names    int       `json:"names"`    // asked for by name
	Wildcard bool      `json:"wildcard"` // asks for everything
	Held     int       `json:"held"`     // resources acknowledged
	Acked    Version   `json:"acked"`
	Served   Version   `json:"served"`
	Desired  Version   `json:"desired"`
	InFlight bool      `json:"in_flight"`
	Ignored  bool      `json:"ignored,omitempty"`
	SentAt   time.Time `json:"sent_at,omitzero"`
	AckedAt  time.Time `json:"acked_at,omitzero"`
	Nack     *Nack     `json:"nack,omitempty"`
	// AckedSet and ServedSet are what Acked and Served are versions of, within
	// the subscription: what the client accepted, and what it holds if it also
	// accepts the newest response, or had. They are shared and never change.
	AckedSet  Set `json:"-"`
	ServedSet Set `json:"-"`
}
