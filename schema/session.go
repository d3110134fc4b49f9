package schema

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Node is what an xDS client says of itself.
type Node struct {
	ID        string            `json:"id"`
	Cluster   string            `json:"cluster,omitempty"`
	Zone      string            `json:"zone,omitempty"`
	UserAgent string            `json:"user_agent,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"` // string values alone
	// Pinned is the group that the node is of, whatever matches it: set by this
	// process for what is no client, and never read from one.
	Pinned string `json:"-"`
}

// SessionID names one generation of a node's process on one server.
type SessionID uint64

// Nack is a refusal, in the client's own words.
type Nack struct {
	Type    Type      `json:"type"`
	Version Version   `json:"version"` // of the refused response
	Nonce   string    `json:"nonce"`
	Code    int32     `json:"code"` // google.rpc.Code
	Words   string    `json:"words"`
	Names   []string  `json:"names"` // resources of the refused response that were new to the client
	At      time.Time `json:"at"`
	// Isolated is set once Names are those that the client refuses by themselves.
	Isolated bool `json:"isolated,omitempty"`
}

// Mentions finds a name in a client's words that is not part of a longer one:
// "cart" is not what "cart-v2 is bad" is about.
func Mentions(words, name string) bool {
	part := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_' }
	for rest := words; name != ""; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(rest[:i])
		after, _ := utf8.DecodeRuneInString(rest[i+len(name):])
		if !part(before) && !part(after) {
			return true
		}
		rest = rest[i+1:]
	}
	return false
}

// Subscription is what a session asks for of one type. It is immutable and
// interned: equal subscriptions of a server are one pointer.
type Subscription struct {
	Names    []string // canonical, sorted, without duplicates and without "*"
	Wildcard bool
	Globs    bool // some of Names are collections (rule D13)
}

// Covers reports whether the subscription asks for a name.
func (s *Subscription) Covers(name string) bool {
	return s != nil && (s.Wildcard || s.Lists(name) || s.Globs && s.Lists(GlobOf(name)))
}

// Lists reports whether the subscription asks for a name by name.
func (s *Subscription) Lists(name string) bool {
	if s == nil {
		return false
	}
	lo, hi := 0, len(s.Names)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.Names[mid] < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(s.Names) && s.Names[lo] == name
}

// Select is the part of a set that the subscription asks for.
func (s *Subscription) Select(set Set) Set {
	switch {
	case s == nil:
		return Set{}
	case s.Wildcard:
		return set
	case s.Globs:
		return set.Filter(func(r *Resource) bool { return s.Covers(r.Name) })
	default:
		return set.Only(s.Names)
	}
}

// TypeFacts is what is known of one type of one session.
type TypeFacts struct {
	Sub *Subscription // nil: never asked
	// Acked is what the client accepted, within its subscription.
	Acked Set
	// Flight is what the un-ACKed response holds, Resend what is to be sent
	// again although it did not change (rule O5).
	Flight, Resend Set
	InFlight       bool // a response is un-ACKed
	// Behind is set while something of the served stage is still to be sent.
	Behind  bool
	SentAt  time.Time // of the newest response
	AckedAt time.Time // of the newest ACK
	Nack    *Nack     // the answer to the newest response was a refusal
	Ignored bool      // it was neither: the client does not watch the type (rule S14)
}

// Load says when a node last reported its load, and of which clusters on their way
// out. It is never changed in place.
type Load struct {
	// From is when the time began that the report covers; zero for none yet.
	From time.Time
	// Until is when the next report is overdue: the node says no more of its load.
	Until time.Time
	// Sent are requests to clusters that the path removes.
	Sent []Sent
}

// Sent are requests that a node sent to a cluster, or had open, in a time.
type Sent struct {
	Cluster  string
	Requests uint64
	From     time.Time // when the time began
	Until    time.Time // when the next report of it is overdue
}

// Facts is all that Step may know of a session.
type Facts struct {
	Types [NumTypes]TypeFacts
	// StageAt is when the stage that is now served was opened.
	StageAt time.Time
	// Returned is when a session began whose client already held something;
	// zero for one that held nothing. Such a client has not yet asked for all
	// that it uses.
	Returned time.Time
	// Load is what the node last reported of its load; the zero Load is of one that
	// reports none.
	Load Load
	// Hold stops the session where it is.
	Hold bool
}

// Verdict is what to do with a session.
type Verdict uint8

// The verdicts.
const (
	Serve Verdict = iota // open stage Step.Stage
	Wait                 // until an ACK, or Step.Until
	Halt                 // the session said no, or nothing for too long
	Done                 // at target
)

// Cause is why a session waits or halts.
type Cause uint8

// The causes.
const (
	NoCause    Cause = iota
	Unacked          // a response is in flight, or owed
	Unasked          // the client has not yet asked for a resource it will need
	Unusable         // endpoints without a usable host
	Draining         // the drain time has not passed
	InUse            // the client still subscribes to what is to be removed
	Unreported       // the node's next load report has not come
	Busy             // its load reports show requests to what is to be removed
	Held             // the group is held
	Refused          // NACK
	Silent           // no answer in time
	WasIgnored       // the client answered without accepting
)

var causes = [...]string{
	"", "waits for the ACK of", "waits for a subscription to", "waits for a usable endpoint in", "drains before removing",
	"waits until nothing uses", "waits for a load report before removing", "waits until no requests go to", "held", "refused", "no answer for", "ignored",
}

func (c Cause) String() string { return causes[c] }

// Step is a decision about one session. The zero Until means without a bound.
type Step struct {
	Verdict Verdict
	Stage   int // for Serve
	Cause   Cause
	On      Key // what the cause is about; the name may be empty
	Until   time.Time
	// Requests are those that keep Busy what On names.
	Requests uint64
	// Settled is set when the open stage was acknowledged in full, whatever the
	// next one waits for.
	Settled bool
}

func (s Step) String() string {
	what := s.On.String()
	if s.On.Name == "" {
		what = s.On.Type.String()
	}
	switch s.Verdict {
	case Serve:
		return fmt.Sprintf("serve stage %d", s.Stage)
	case Done:
		return "done"
	case Halt:
		return fmt.Sprintf("halt: %s %s", s.Cause, what)
	}
	switch s.Cause {
	case Held:
		return "held"
	case Busy:
		return fmt.Sprintf("%s %s: %d in the last load report", s.Cause, what, s.Requests)
	}
	return fmt.Sprintf("%s %s", s.Cause, what)
}
