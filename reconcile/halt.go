package reconcile

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// Halt is why no node of a group is led into another stage.
type Halt struct {
	Node   string       `json:"node"`
	Stage  string       `json:"stage,omitempty"`
	Cause  string       `json:"cause"` // in words
	On     schema.Key   `json:"on"`
	Nack   *schema.Nack `json:"nack,omitempty"`
	Commit string       `json:"commit"`
	// Origins are the author's words for what was refused.
	Origins []schema.Origin `json:"origins,omitempty"`
	At      time.Time       `json:"at"`
}

// haltOf says why a session stopped, in the node's own words.
func haltOf(s *schema.SessionRow, r, base *Release, now time.Time) *Halt {
	h := &Halt{Node: s.Node.ID, Cause: strings.TrimPrefix(s.Step.String(), "halt: "), On: s.Step.On, Nack: s.Nack, At: now}
	if k, ok := s.Stage(); ok {
		h.Stage = k.String()
	}
	switch {
	case s.Nack != nil && s.Node.Pinned != "": // files, which are of no type
		h.Cause = s.Nack.Words
	case s.Nack != nil:
		h.Cause = fmt.Sprintf("%s refused: %s", s.Nack.Type, s.Nack.Words)
	}
	return h.in(r, base)
}

// in is the halt with the commit, and the lines of configuration, that a release
// has for what was refused. base is what came before it, and may be nil.
func (h Halt) in(r, base *Release) *Halt {
	h.Commit = r.Commit
	if h.Nack != nil {
		h.Origins = r.Blame(h.Nack, base)
	} else {
		h.Origins = r.lines(h.On, h.Cause, base)
	}
	return &h
}

// narrowed is the halt once isolation has found which resources the node refuses
// by themselves, or nil if it knows no more than before (rule D9).
func (h *Halt) narrowed(sessions []*schema.SessionRow, r, base *Release) *Halt {
	if h.Nack == nil || h.Nack.Isolated {
		return nil
	}
	for _, s := range sessions {
		if n := s.Nack; s.Node.ID == h.Node && n != nil && n.Isolated && n.Type == h.Nack.Type && n.At.Equal(h.Nack.At) {
			now := *h
			now.Nack = n
			return now.in(r, base)
		}
	}
	return nil
}
