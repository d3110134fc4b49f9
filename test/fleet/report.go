package fleet

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// What a server may be found to do.
const (
	Dangling   = "dangling"      // what is in use names what the client does not hold
	Order      = "order"         // sent before what it needs was acknowledged, or removed before its last use was
	InFlight   = "in-flight"     // a second response of a type before the first was answered
	Nonce      = "nonce"         // an empty nonce, or one that was used before
	Resent     = "resent"        // sent again without a reason
	Refused    = "refused-again" // the content that the client refused
	Unasked    = "unasked"       // a name that the client never asked for
	Malformed  = "malformed"     // cannot be read, names one resource twice, or is of another type
	Unfinished = "unfinished"    // at rest, something that was asked for has not come
)

// Breach is one thing that a server did wrong.
type Breach struct {
	Code  string   `json:"code"`
	Node  string   `json:"node"`
	Words string   `json:"words"`
	Talk  []string `json:"talk"` // the end of the conversation
}

// maxBreaches is how many breaches are kept with their conversation.
const maxBreaches = 20

// Report is what a fleet saw.
type Report struct {
	Clients   int            `json:"clients"`
	Answered  int            `json:"answered"` // clients that got any response
	Complete  int            `json:"complete"` // clients that at some time held all that they asked for
	Streams   int            `json:"streams"`
	Responses int            `json:"responses"`
	Resources int            `json:"resources"`
	Bytes     int            `json:"bytes"` // of responses
	ACKs      int            `json:"acks"`
	NACKs     int            `json:"nacks"`
	Ended     map[string]int `json:"ended,omitempty"` // streams that the server ended, by reason
	Found     map[string]int `json:"found"`           // breaches by code
	Breaches  []Breach       `json:"breaches"`        // the first of them
}

// Err says whether the server failed: it is nil if no client saw a breach and any
// got an answer.
func (r *Report) Err() error {
	all := 0
	for _, n := range r.Found {
		all += n
	}
	switch {
	case all == 1:
		return fmt.Errorf("a breach was found: %s", r.Breaches[0].Words)
	case all > 0:
		return fmt.Errorf("%d breaches were found", all)
	case r.Answered == 0:
		return fmt.Errorf("no client of %d got an answer%s", r.Clients, r.reasons())
	}
	return nil
}

func (r *Report) reasons() string {
	var b strings.Builder
	for _, why := range slices.Sorted(maps.Keys(r.Ended)) {
		fmt.Fprintf(&b, "\n  %d streams: %s", r.Ended[why], why)
	}
	return b.String()
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "%d clients, %d answered, %d complete; %d streams, %d responses with %d resources and %d bytes, %d ACKs, %d NACKs\n",
		r.Clients, r.Answered, r.Complete, r.Streams, r.Responses, r.Resources, r.Bytes, r.ACKs, r.NACKs)
	if len(r.Ended) > 0 {
		fmt.Fprintf(w, "ended by the server:%s\n", r.reasons())
	}
	for _, code := range slices.Sorted(maps.Keys(r.Found)) {
		fmt.Fprintf(w, "%6d × %s\n", r.Found[code], code)
	}
	for _, b := range r.Breaches {
		fmt.Fprintf(w, "\n%s: %s: %s\n", b.Node, b.Code, b.Words)
		for _, line := range b.Talk {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// tally collects the reports of all clients.
type tally struct {
	mu sync.Mutex
	Report
}

func (t *tally) count(f func(*Report)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.Report)
}

func (t *tally) breach(b Breach) {
	t.count(func(r *Report) {
		if r.Found[b.Code]++; len(r.Breaches) < maxBreaches {
			r.Breaches = append(r.Breaches, b)
		}
	})
}

// line is one message of a conversation.
type line struct {
	at             time.Duration // since the fleet was started
	out            bool
	k              kind
	verb           string // of a request
	nonce, version string
	names, removed []string
	more           int // names beyond those kept
}

// maxNames and maxLines bound what a conversation keeps.
const (
	maxNames = 6
	maxLines = 40
)

// talk is the end of a conversation.
type talk struct {
	lines []line // a ring
	n     int
}

func (t *talk) add(l line) {
	l.names, l.more = first(l.names)
	var more int
	l.removed, more = first(l.removed)
	l.more += more
	if len(t.lines) < maxLines {
		t.lines = append(t.lines, l)
	} else {
		t.lines[t.n%maxLines] = l
	}
	t.n++
}

func first(names []string) ([]string, int) {
	if len(names) <= maxNames {
		return names, 0
	}
	return slices.Clone(names[:maxNames]), len(names) - maxNames
}

func (t *talk) text() []string {
	var out []string
	for i := max(0, t.n-maxLines); i < t.n; i++ {
		out = append(out, t.lines[i%maxLines].String())
	}
	return out
}

func (l line) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.3fs ", l.at.Seconds())
	if l.out {
		fmt.Fprintf(&b, "→ %s %s", l.k, l.verb)
	} else {
		fmt.Fprintf(&b, "← %s", l.k)
	}
	if l.nonce != "" {
		fmt.Fprintf(&b, " nonce %s", l.nonce)
	}
	if l.version != "" {
		fmt.Fprintf(&b, " version %s", l.version)
	}
	if len(l.names) > 0 {
		fmt.Fprintf(&b, ": %s", strings.Join(l.names, " "))
	}
	if len(l.removed) > 0 {
		fmt.Fprintf(&b, " without %s", strings.Join(l.removed, " "))
	}
	if l.more > 0 {
		fmt.Fprintf(&b, " and %d more", l.more)
	}
	return b.String()
}
