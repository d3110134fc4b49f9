package reconcile

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-xds/sluice/schema"
)

// Halt is why a group stands still.
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
func haltOf(s *schema.SessionRow, r *Release, now time.Time) *Halt {
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
	return h.in(r)
}

// in is the halt with the commit, and the lines of configuration, that a
// release has for what was refused.
func (h Halt) in(r *Release) *Halt {
	keys := []schema.Key{h.On}
	if h.Nack != nil {
		keys = blamed(h.Nack)
	}
	h.Commit, h.Origins = r.Commit, nil
	for _, k := range keys {
		if o, ok := r.Origins[k]; ok {
			h.Origins = append(h.Origins, o)
		}
	}
	return &h
}

// narrowed is the halt once isolation has found which resources the node refuses
// by themselves, or nil if it knows no more than before (rule D9).
func (h *Halt) narrowed(sessions []*schema.SessionRow, r *Release) *Halt {
	if h.Nack == nil || h.Nack.Isolated {
		return nil
	}
	for _, s := range sessions {
		if n := s.Nack; s.Node.ID == h.Node && n != nil && n.Isolated && n.Type == h.Nack.Type && n.At.Equal(h.Nack.At) {
			now := *h
			now.Nack = n
			return now.in(r)
		}
	}
	return nil
}

// blamed guesses which resources a refusal is about: those that its words name,
// or else all that were new to the client. Clients say it in words alone; what was
// isolated is no guess.
func blamed(n *schema.Nack) []schema.Key {
	var named, all []schema.Key
	for _, name := range n.Names {
		k := schema.Key{Type: n.Type, Name: name}
		all = append(all, k)
		if mentions(n.Words, name) {
			named = append(named, k)
		}
	}
	if len(named) > 0 && !n.Isolated {
		return named
	}
	return all
}

// mentions finds a name that is not part of a longer one: "cart" is not what
// "cart-v2 is bad" is about.
func mentions(words, name string) bool {
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
