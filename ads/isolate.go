package ads

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// A NACK names what is bad only in words, if at all. Isolation finds it, on one
// node of a group that asked for it: what the node refused together it is sent
// again in parts (rule D9). No part takes anything away, and each leaves the node
// with references that resolve: what a part lacks stays as it was acknowledged,
// and only names that are new are left out.
//
// A delta client is sent one resource a response. For others the suspects are
// halved: at most log2(n) responses find one that is bad.

// isolation is what one session is tried with of one type.
type isolation struct {
	base     schema.Set         // what the client held before
	suspects []*schema.Resource // refused together, what is referred to first
	trial    []*schema.Resource // of the suspects, in flight
	flight   *body
	bad      []string
}

// isolations remembers which session of a group is tried, and for which
// generation of its target.
type isolations struct {
	mu sync.Mutex
	by map[string]claim
}

type claim struct {
	generation uint64
	session    schema.SessionID
}

// claim reports whether a session is the one of its group.
func (x *isolations) claim(s *session) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	mine := claim{s.target.Generation, s.id}
	if c, ok := x.by[s.target.Group]; ok && c.generation >= mine.generation {
		return c == mine
	}
	if x.by == nil {
		x.by = map[string]claim{}
	}
	x.by[s.target.Group] = mine
	return true
}

// isolate begins the isolation of what a client has just refused, if its group
// asks for it, there is something to find out, and this session is the one.
// before is what the client held.
func (s *session) isolate(t schema.Type, news, before schema.Set, now time.Time) {
	ts := &s.types[t]
	ts.trial = nil
	if _, polls := ts.stream.grpc.(pollStream); polls || !s.target.Isolate || news.Len() < 2 || !s.srv.isolations.claim(s) {
		return
	}
	ts.trial = &isolation{base: before, suspects: inOrder(news)}
	s.try(t, now)
}

// inOrder lists resources so that what they refer to among each other comes
// first: any beginning of the list is closed.
func inOrder(set schema.Set) []*schema.Resource {
	var out []*schema.Resource
	seen := map[string]bool{}
	var visit func(r *schema.Resource)
	visit = func(r *schema.Resource) {
		if seen[r.Name] {
			return
		}
		seen[r.Name] = true
		for _, ref := range r.Refs {
			if to := set.Get(ref.Name); ref.Type == r.Type && to != nil {
				visit(to)
			}
		}
		out = append(out, r)
	}
	for r := range set.All() {
		visit(r)
	}
	return out
}

// try sends the next part.
func (s *session) try(t schema.Type, now time.Time) {
	ts, f := &s.types[t], &s.facts.Types[t]
	x := ts.trial
	n := 1
	if ts.stream.of == sotw {
		n = len(x.suspects) / 2
	}
	x.trial = x.suspects[:n]
	part := schema.SetOf(x.trial...)
	next := content{of: ts.stream.of, t: t, want: x.base.Union(part), set: part, ttl: s.ttl(t)}
	if next.whole() {
		next.set = next.want
	} else if next.of == delta {
		next.label = s.target.Commit
	}
	if t == schema.Clusters {
		s.resendEndpoints(next.set, next.want)
	}
	x.flight = s.srv.bodies.get(next)
	s.post(t, x.flight)
	f.Flight, f.SentAt = next.set, now
}

// tried takes in the answer to a part.
func (s *session) tried(t schema.Type, req *request, now time.Time) {
	ts, f := &s.types[t], &s.facts.Types[t]
	x, halves := ts.trial, ts.stream.of == sotw
	switch {
	case req.refusal == nil && halves && req.version != string(x.flight.version):
		ts.trial = nil // it does not watch the type any more (rule S14)
		return
	case req.refusal == nil:
		s.cleared(t)
	case halves:
		x.suspects = x.trial // the others are not to blame, or not alone
	default:
		x.blame(x.trial[0])
	}
	if len(x.suspects) > 1 || !halves && len(x.suspects) > 0 {
		s.try(t, now)
		return
	}
	if halves {
		x.blame(x.suspects[0])
	}
	ts.trial = nil
	if len(x.bad) == 0 {
		return // each is good by itself: the refusal stands as it is
	}
	found := *ts.refused.nack
	found.Names, found.Isolated = slices.Sorted(slices.Values(x.bad)), true
	f.Nack, ts.refused.nack = &found, &found
	s.touch(false)
	s.srv.log.Warn("NACK isolated", "node", s.node.ID, "type", t.String(), "names", found.Names, "words", found.Words)
}

// cleared takes in that a part was accepted.
func (s *session) cleared(t schema.Type) {
	ts, f := &s.types[t], &s.facts.Types[t]
	x := ts.trial
	f.Acked = ts.sub.accept(f.Acked, x.flight)
	if ts.unknown = without(ts.unknown, x.flight.set); x.flight.whole() {
		ts.unknown = schema.Set{}
	}
	for _, r := range x.trial {
		x.base = x.base.With(r)
		delete(ts.refused.versions, r.Name)
	}
	x.suspects = x.suspects[len(x.trial):]
}

// blame takes a suspect for bad, and out of the others those that refer to it and
// could not be sent without.
func (x *isolation) blame(r *schema.Resource) {
	x.bad = append(x.bad, r.Name)
	x.suspects = slices.DeleteFunc(slices.Clone(x.suspects), func(o *schema.Resource) bool {
		return o == r || x.base.Get(r.Name) == nil && slices.ContainsFunc(o.Refs, func(ref schema.Ref) bool { return ref.Key == r.Key })
	})
}
