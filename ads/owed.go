package ads

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// What a session is owed: the difference between what it should hold and what it
// does, or may. Sending it is in stream.go.

// desired is what the session should hold of a type now.
func (s *session) desired(t schema.Type) schema.Set {
	ts := &s.types[t]
	if ts.sub == nil || s.path == nil {
		return schema.Set{}
	}
	if t.Live() {
		return s.withoutGivenUp(t, ts.sub.pick(s.srv.live.Load().Of(t)))
	}
	set := ts.sub.pick(s.path.At(s.at).Of(t))
	if t.FullState() && ts.stream.of == sotw && !s.moves(t) {
		// A name that is newly asked for is answered with all of the type: what it
		// may hold of the rest is not touched before its turn.
		set = s.untouched(t, set)
	}
	return s.withoutGivenUp(t, set)
}

// untouched is a set with what the client may hold of its names in their place.
func (s *session) untouched(t schema.Type, set schema.Set) schema.Set {
	ts, f := &s.types[t], &s.facts.Types[t]
	if ts.unknown.Len() == 0 && f.Acked.Equal(set) {
		return set
	}
	return set.Union(ts.unknown.Union(f.Acked).Filter(func(r *schema.Resource) bool {
		return sendable(r) && set.Get(r.Name) != nil
	}))
}

// served is what the session holds if it accepts the response in flight, or had
// accepted the newest one.
func (s *session) served(t schema.Type) schema.Set {
	ts, f := &s.types[t], &s.facts.Types[t]
	switch {
	case ts.flight != nil:
		return ts.sub.accept(f.Acked, ts.flight)
	case ts.offered != nil:
		return ts.sub.Select(*ts.offered)
	}
	return f.Acked
}

// decline keeps what a client would hold that did not accept a response.
func (s *session) decline(t schema.Type, sent *body) {
	offered := s.types[t].sub.accept(s.facts.Types[t].Acked, sent)
	s.types[t].offered = &offered
}

// flushAll sends what is owed of every type, in the order in which types are
// made: a cluster goes before its endpoints, and never waits for their ACK nor
// they for its (rules O2, O6).
func (s *session) flushAll(now time.Time) {
	for t := range s.types {
		if s.types[t].sub != nil {
			s.flush(schema.Type(t), now)
			s.beat(schema.Type(t), now)
		}
	}
}

// flush sends what is owed of one type, if the last response was answered.
func (s *session) flush(t schema.Type, now time.Time) {
	ts, f := &s.types[t], &s.facts.Types[t]
	if s.path == nil || s.closed {
		return
	}
	want := s.desired(t)
	next := content{of: ts.stream.of, t: t, want: want, set: s.owed(t, want), ttl: s.ttl(t)}
	if next.of == delta {
		next.label, next.gone = s.target.Commit, s.gone(t, want)
	}
	if t == schema.VirtualHosts {
		next.hosts = s.onDemand(want, next.set)
	}
	f.Behind = !next.empty() || s.owesMore(t, want)
	if f.Behind && f.Ignored && ts.ignored == want.Sum() {
		f.Behind = false
	}
	if !f.Behind || f.InFlight {
		return
	}
	if next.whole() {
		next.set = want
	}
	if s.withoutRefused(&next) {
		s.send(next, now)
	}
}

// send puts a response in flight.
func (s *session) send(next content, now time.Time) {
	ts, f := &s.types[next.t], &s.facts.Types[next.t]
	b := s.srv.bodies.get(next)
	if next.t == schema.Clusters {
		s.resendEndpoints(next.set, next.want)
	}
	if next.t == schema.Routes && ts.stream == s.types[schema.VirtualHosts].stream {
		s.resendHosts(next.set)
	}
	s.post(next.t, b)
	ts.missing, ts.again = nil, false
	f.Flight, f.SentAt, f.Behind = next.set, now, false
	f.Resend = without(f.Resend, next.set)
	if next.ttl > 0 && (next.whole() || f.Acked.Len() == 0) {
		ts.beatAt = now.Add(next.ttl / beatsPerTTL)
	}
	s.touch(next.t.Live())
}

// post puts a response of a type in flight, for whoever gives the session up to
// deliver.
func (s *session) post(t schema.Type, b *body) {
	ts := &s.types[t]
	ts.nonce, ts.flight, s.facts.Types[t].InFlight = ts.stream.post(b), b, true
	ts.sentTo = s.target
	s.srv.stats.Types[t].Responses.Add(1)
	s.srv.stats.Types[t].Bytes.Add(uint64(b.size))
	if !slices.Contains(s.posted, ts.stream) {
		s.posted = append(s.posted, ts.stream)
	}
}

// release gives the session up and delivers what was posted meanwhile. own is
// the stream of the handler that calls, which may wait for its own client;
// nobody waits for another's.
func (s *session) release(own *stream) {
	var buf [2]*stream
	posted := append(buf[:0], s.posted...)
	s.posted = s.posted[:0]
	var later [2]bool // a send could block
	for i, st := range posted[:min(len(posted), len(later))] {
		later[i] = st != own && st.unacked-st.newest >= window
	}
	s.mu.Unlock()
	for i, st := range posted {
		if i >= len(later) || later[i] {
			s.srv.done.Go(st.deliver) // ends at the latest with the stream
			continue
		}
		st.deliver()
	}
}

// whole reports whether a response is the full state of its type, so that what
// it leaves out is deleted (rule S7).
func (c *content) whole() bool { return c.of == sotw && c.t.FullState() }

// empty reports whether a response has nothing to say.
func (c *content) empty() bool {
	return c.set.Len() == 0 && len(c.gone) == 0 && (c.hosts == nil || len(c.hosts.unknown) == 0)
}

// gone lists what a delta client is to be told is not there: what it holds, or
// may hold, and should not, and what it asked for in vain (rule D6).
func (s *session) gone(t schema.Type, want schema.Set) []string {
	ts, f := &s.types[t], &s.facts.Types[t]
	if t.Live() {
		// What was given up exists all the same, and is not to go under the routes
		// that lead there.
		want = ts.sub.pick(s.srv.live.Load().Of(t))
	}
	var names []string
	if all := t == schema.VirtualHosts || !ts.sub.Wildcard && !ts.sub.Globs && len(ts.sub.Names) == want.Len(); !all {
		for _, n := range ts.missing {
			if len(ts.sub.find(want, n)) == 0 && s.target.Snapshot.Of(t).Get(n) == nil { // or it comes when it is its turn
				names = append(names, n)
			}
		}
	}
	if s.moves(t) {
		names = lacking(lacking(names, f.Acked, want), ts.unknown, want)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// lacking adds the names of held that want lacks.
func lacking(names []string, held, want schema.Set) []string {
	if held.Len() == 0 || held.Equal(want) {
		return names
	}
	for r, now := range schema.Diff(held, want) {
		if now == nil {
			names = append(names, r.Name)
		}
	}
	return names
}

// moves reports whether the open stage changes a type. Of the others only what
// the client newly asks for is sent: what it may hold of them is not touched
// before its turn.
func (s *session) moves(t schema.Type) bool {
	switch {
	case t.Live() || s.at >= len(s.path.Stages):
		return true
	case s.at < 0:
		return false
	}
	return s.path.Stages[s.at].Moves[t]
}

// owed is what of want the session lacks, holds otherwise, may hold otherwise
// or must be told again.
func (s *session) owed(t schema.Type, want schema.Set) schema.Set {
	ts, f := &s.types[t], &s.facts.Types[t]
	if f.Resend.Len() == 0 && ts.unknown.Len() == 0 && f.Acked.Equal(want) {
		return schema.Set{}
	}
	moves := s.moves(t)
	if moves && f.Resend.Len() == 0 && ts.unknown.Len() == 0 {
		return ts.sub.news(f.Acked, want)
	}
	var owed []*schema.Resource
	for old, now := range schema.Diff(f.Acked, want) {
		if now != nil && sendable(now) && (moves || old == nil && ts.unknown.Get(now.Name) == nil) {
			owed = append(owed, now)
		}
	}
	again := f.Resend
	if moves {
		again = ts.unknown.Union(again)
	}
	for r := range again.All() {
		if w := want.Get(r.Name); w != nil && sendable(w) {
			owed = append(owed, w)
		}
	}
	return schema.SetOf(owed...)
}

// sendable reports whether a resource is more than a name that a path carries to its
// prune (see unsent), or than a client's word for it (see spare).
func sendable(r *schema.Resource) bool { return r.Body != nil || r.Type.Live() }

// owesMore reports whether a response is due although it would bring nothing: a
// full-state one for what it takes away, and the first wildcard request of a
// stream even if there is nothing at all (rule D7).
func (s *session) owesMore(t schema.Type, want schema.Set) bool {
	ts, f := &s.types[t], &s.facts.Types[t]
	if ts.nonce == 0 && ts.sub.Wildcard && want.Len() == 0 && s.at >= len(s.path.Stages) {
		return true
	}
	// What nobody has on record goes by a response without it, though nothing else
	// may be due.
	return ts.stream.of == sotw && t.FullState() && (s.moves(t) && (ts.unknown.Len() > 0 || ts.strange || !want.Equal(f.Acked)) || ts.again)
}

// withoutRefused leaves out of a response what the client refused at the same
// version (rule S15), and reports whether anything is left to send. A full-state
// response cannot leave anything out: if it would be the refused one, the refusal
// stands as its answer.
func (s *session) withoutRefused(next *content) bool {
	r, f := &s.types[next.t].refused, &s.facts.Types[next.t]
	switch {
	case r.nack == nil:
		return true
	case next.whole():
		if r.nack.Version == next.want.Version() {
			f.Nack = r.nack
		}
		return f.Nack == nil
	}
	next.set = next.set.Filter(func(b *schema.Resource) bool { return r.versions[b.Name] != b.Version })
	switch {
	case next.empty():
		f.Nack = r.nack
	case next.t.Live():
		f.Nack = nil // live content is mended outside of any rollout
	}
	return f.Nack == nil
}

// resendEndpoints marks the endpoints of clusters that are about to be sent:
// after an add or a change the client waits for them even if they did not change
// (rules O4, O5). want is all that the client is to hold.
func (s *session) resendEndpoints(clusters, want schema.Set) {
	ts, f := &s.types[schema.Endpoints], &s.facts.Types[schema.Endpoints]
	if ts.sub == nil {
		s.early = s.early.Union(clusters).Filter(func(c *schema.Resource) bool {
			return want.Get(c.Name) != nil && slices.ContainsFunc(c.Refs, func(ref schema.Ref) bool { return ref.Type == schema.Endpoints })
		})
		return
	}
	first := s.types[schema.Clusters].nonce == 0
	live := s.srv.live.Load().Of(schema.Endpoints)
	acked, unknown := s.facts.Types[schema.Clusters].Acked, s.types[schema.Clusters].unknown
	var again []*schema.Resource
	for c := range clusters.All() {
		if old := acked.Get(c.Name); !first && old != nil && old.Version == c.Version && unknown.Get(c.Name) == nil {
			continue
		}
		for _, ref := range c.Refs {
			if ref.Type == schema.Endpoints && ts.sub.Covers(ref.Name) {
				if r := live.Get(ref.Name); r != nil {
					again = append(again, r)
				}
			}
		}
	}
	f.Resend = f.Resend.Union(schema.SetOf(again...))
}

// resendEarly marks the endpoints of clusters that were sent before the client
// asked for any: the version that it then reports is what it held before these
// clusters came, and they wait for more (rule O5).
func (s *session) resendEarly() {
	ts, f := &s.types[schema.Endpoints], &s.facts.Types[schema.Endpoints]
	var again []*schema.Resource
	for c := range s.early.All() {
		for _, ref := range c.Refs {
			if r := f.Acked.Get(ref.Name); ref.Type == schema.Endpoints && r != nil && ts.sub.Lists(ref.Name) {
				again = append(again, r)
			}
		}
	}
	s.early = schema.Set{}
	f.Resend = f.Resend.Union(schema.SetOf(again...))
}
