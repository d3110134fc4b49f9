package ads

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// session is one generation of a node's process: what it asked for, holds and
// refused, and the path that it is on. Whoever holds mu owns it.
type session struct {
	srv       *Server
	id        schema.SessionID
	node      schema.Node
	peer      string
	connected time.Time
	was       *left             // by the session before, if there was one
	earlier   []schema.Snapshot // see trail

	mu      sync.Mutex
	streams int                   // open ones: one for ADS, or one a type
	opened  [schema.NumTypes]bool // types with a stream of their own
	closed  bool
	heard   time.Time // when the client spoke last
	target  *schema.Target
	path    *schema.Path // nil until the first request was classified
	at      int          // the stage that is served; Before the first
	held    schema.Snapshot
	maybe   schema.Snapshot
	blank   bool
	fresh   bool                  // taken for a process that has just begun; nothing speaks against it
	early   schema.Set            // clusters that were sent before endpoints were asked for
	waits   schema.Set            // endpoints that an earlier stream left the client waiting for: names
	had     schema.Set            // of these, what it came back with
	sure    [schema.NumTypes]bool // the client came back and said what it holds
	retell  bool                  // tables: see tell
	puzzled bool                  // by a gRPC client's tables: see guess
	facts   schema.Facts
	types   [schema.NumTypes]typeState
	posted  []*stream // with responses to deliver
	step    schema.Step
	pace    pace
	timer   *time.Timer
	twin    *time.Timer // looks whether another node has the same id
	queued  [2]bool     // for the ledger; and for it at the pace of live types
	written written
}

// typeState is what the wire needs to know of one type, beside the facts.
type typeState struct {
	stream   *stream
	sub      *subscription
	named    bool           // a name was asked for: empty no longer means everything
	nonce    uint64         // the newest sent; 0 for none
	sentTo   *schema.Target // the session's when the newest response was sent
	flight   *body          // the un-ACKed response
	accepted schema.Version // that the client reports: of the newest response that it accepted
	// offered is what the client would hold had it accepted the newest response;
	// nil if it did.
	offered *schema.Set
	// missing are names that a delta client subscribed to, that do not exist,
	// and of which it was not yet told (rule D6).
	missing []string
	// unknown may have been applied without an ACK: it is equal to nothing, so
	// it is always sent again (rules D9, S10).
	unknown schema.Set
	strange bool // the client came with what nobody has on record, and has not accepted all since
	again   bool // a full-state response is due, whatever it says: see tell
	// before is what the client may have held before this stream, where its word
	// for that proves nothing: a refusal does not take it away.
	before  schema.Set
	never   map[string][]schema.Version // refused, and given up by the target since
	refused refusal
	trial   *isolation // of what was refused together (rule D9)
	beatAt  time.Time  // of the next heartbeat (rule S11)
	doubt   doubt      // that the server's memory has of this type
	ignored schema.Sum // of what the client does not watch (rule S14)
}

// refusal is content that the client has refused (rule S15).
type refusal struct {
	nack     *schema.Nack
	versions map[string]schema.Version // of the parts that were new to it
	named    map[string]bool           // those of them that its words name
}

// request handles one message of the client. The caller holds s.mu.
func (s *session) request(st *stream, t schema.Type, req *request, now time.Time) {
	ts, f := &s.types[t], &s.facts.Types[t]
	s.heard = now
	switch {
	case ts.sub == nil:
		// Rule S2: whatever nonce the first request carries is of another
		// stream.
		ts.stream = st
		s.subscribe(t, req)
		s.resume(t, req)
		if f := &s.facts.Types[t]; req.of == sotw && len(req.nonce) > 0 {
			// A client that goes on with the nonce of another stream (MOSN does)
			// asks for what follows only when it is answered.
			f.Resend = f.Resend.Union(f.Acked)
		}
		if t == schema.Endpoints {
			s.resendEarly()
			if f := &s.facts.Types[t]; s.target.Client == schema.Envoy && s.types[schema.Clusters].sub == nil {
				// Rule O3: it does not ask for clusters because some warm, and wait
				// for endpoints whether it has them or not.
				f.Resend = f.Resend.Union(f.Acked)
			}
		}
	case ts.nonce != 0 && !isNonce(req.nonce, ts.nonce):
		s.subscribe(t, req)
		if st.of == sotw {
			// Rule S4: no answer, but the names count.
			f.Behind = true
			s.touch(false)
			return
		}
	default:
		if f.InFlight {
			s.answered(t, req, now)
		}
		s.subscribe(t, req)
	}
	s.flushAll(now)
	s.advance(now)
}

// subscribe takes in the names of a request: of a state-of-the-world request
// they replace the last, of a delta request they add to them or take away.
func (s *session) subscribe(t schema.Type, req *request) {
	ts, f := &s.types[t], &s.facts.Types[t]
	if len(req.names) > 0 {
		ts.named = true
	}
	old := ts.sub
	switch wildcard := t.HasWildcard() && !ts.named; {
	case req.of == sotw && old != nil && old.digest == req.digest && len(req.names) > 0:
		return
	case req.of == sotw || old == nil && wildcard:
		ts.sub = s.srv.subs[t].get(req.names, req.digest, wildcard)
	case len(req.names) > 0 || len(req.drop) > 0:
		ts.sub = s.srv.subs[t].change(old, req.names, req.drop)
	case old == nil:
		ts.sub = s.srv.subs[t].get(nil, digest{}, false)
	}
	if req.of == delta {
		s.resubscribe(t, old, req)
	}
	if old == ts.sub {
		return
	}
	f.Sub = &ts.sub.Subscription
	if old == nil {
		return
	}
	// Rule S12: what is no longer asked for is no longer held. A name that is
	// dropped and added again is sent again because of that (rule S6).
	f.Acked = ts.sub.pick(f.Acked)
	ts.unknown = ts.sub.Select(ts.unknown)
	f.Resend = ts.sub.Select(f.Resend)
	if req.of == sotw && old.Wildcard {
		// Names that the wildcard covered already are news all the same.
		f.Resend = f.Resend.Union(s.desired(t).Filter(func(r *schema.Resource) bool {
			return ts.sub.Lists(r.Name) && !old.Lists(r.Name)
		}))
	}
}

// resubscribe notes what a delta request must be answered with: every name that
// it subscribes to, known already (rule D3) or missing (rule D6), and every name
// that it drops while the wildcard holds (rule D4).
func (s *session) resubscribe(t schema.Type, old *subscription, req *request) {
	ts, f := &s.types[t], &s.facts.Types[t]
	if old == nil {
		ts.missing = ts.sub.Names // whatever exists of it is owed anyway
		return
	}
	if len(req.names) == 0 && len(req.drop) == 0 {
		return
	}
	want := s.desired(t)
	missing := slices.Clone(ts.missing)
	var again []*schema.Resource
	note := func(name string) {
		if found := ts.sub.find(want, name); len(found) > 0 {
			again = append(again, found...)
		} else if name != "*" || !t.HasWildcard() {
			missing = append(missing, name)
		}
	}
	for _, n := range req.names {
		note(string(n))
	}
	if len(req.drop) > 0 {
		drop := make(map[string]bool, len(req.drop))
		for _, n := range req.drop {
			drop[string(n)] = true
		}
		missing = slices.DeleteFunc(missing, func(m string) bool { return drop[m] })
	}
	for _, n := range req.drop {
		if old.Lists(string(n)) && ts.sub.Wildcard {
			note(string(n))
		}
	}
	if len(missing) > 2*len(ts.sub.Names)+16 { // told of again and again, and not answering
		slices.Sort(missing)
		missing = slices.Compact(missing)
	}
	ts.missing = missing
	f.Resend = f.Resend.Union(schema.SetOf(again...))
}

// answered handles the ACK or NACK of the response in flight.
func (s *session) answered(t schema.Type, req *request, now time.Time) {
	ts, f := &s.types[t], &s.facts.Types[t]
	sent := ts.flight
	ts.stream.unacked -= sent.size
	ts.flight, f.InFlight, f.Flight = nil, false, schema.Set{}
	s.fresh = false
	if sent.beat && req.refusal == nil {
		return // it says nothing that was not said
	}
	ts.offered = nil
	if ts.trial != nil && ts.trial.flight == sent {
		s.tried(t, req, now)
		return
	}
	f.Nack, f.Ignored = nil, false
	switch {
	case req.refusal != nil:
		s.refuse(t, sent, req, now)
		return
	case sent.of == sotw && req.version != string(sent.version):
		// Rule S14: the newest nonce with an old version and no error comes
		// from a client that does not watch the type.
		f.Ignored, ts.ignored = true, sent.want.Sum()
		s.decline(t, sent)
		return
	case sent.whole():
		ts.unknown, ts.strange = schema.Set{}, false
	default:
		ts.unknown, ts.before = without(ts.unknown, sent.set), without(ts.before, sent.set)
		for _, name := range sent.gone {
			ts.unknown, ts.before = ts.unknown.Without(name), ts.before.Without(name)
		}
	}
	if hosts := s.types[schema.VirtualHosts].stream; t == schema.Routes && hosts != ts.stream {
		s.resendHosts(sent.set) // on a stream of their own they could overtake the table
	}
	f.Acked, f.AckedAt, ts.accepted = ts.sub.accept(f.Acked, sent), now, sent.version
	s.srv.stats.Types[t].Acks.Observe(now.Sub(f.SentAt))
	s.touch(t.Live())
	s.giveUp(t)
	ts.refused = refusal{}
	if ts.doubt != noDoubt && ts.unknown.Len() == 0 {
		ts.doubt = noDoubt
		s.srv.memory.record(s.node.ID, t, noDoubt)
	}
	if s.disproved(t) {
		s.plan()
	}
}

func without(s, gone schema.Set) schema.Set {
	if s.Len() == 0 || gone.Len() == 0 {
		return s
	}
	return s.Filter(func(r *schema.Resource) bool { return gone.Get(r.Name) == nil })
}

// refuse records a NACK. What the response held is unknown from now on: good
// parts of it may have been applied (rule D9).
func (s *session) refuse(t schema.Type, sent *body, req *request, now time.Time) {
	ts, f := &s.types[t], &s.facts.Types[t]
	s.decline(t, sent)
	before := f.Acked
	n := req.refusal
	n.Type, n.Version, n.Nonce, n.At = t, sent.version, string(req.nonce), now
	ts.refused = refusal{nack: n, versions: map[string]schema.Version{}, named: map[string]bool{}}
	news := sent.set.Filter(func(r *schema.Resource) bool {
		old := f.Acked.Get(r.Name)
		return old == nil || old.Version != r.Version
	})
	for r := range news.All() {
		n.Names = append(n.Names, r.Name)
		ts.refused.versions[r.Name] = r.Version
		if schema.Mentions(n.Words, r.Name) {
			ts.refused.named[r.Name] = true
		}
	}
	ts.unknown = ts.unknown.Union(news).Union(s.dropped(t, sent))
	f.Nack = n
	s.srv.stats.Types[t].Nacks.Add(1)
	ts.doubt = refused
	s.srv.memory.record(s.node.ID, t, refused)
	s.srv.log.Warn("NACK", "node", s.node.ID, "type", t.String(), "version", string(sent.version), "nonce", n.Nonce, "words", n.Words)
	if !ts.sentTo.Snapshot.Equal(s.target.Snapshot) {
		// The target has changed meanwhile, and may be the cure: the refusal halts
		// only if the same content is due again.
		f.Nack = nil
		s.plan()
		return
	}
	if s.otherwise(t, news) {
		f.Nack, ts.refused = nil, refusal{}
		s.plan()
		return
	}
	s.isolate(t, news, before, now)
}

// dropped takes what a refused response would have removed out of what the client
// holds: removals may have been applied too (rule D9).
func (s *session) dropped(t schema.Type, sent *body) schema.Set {
	f := &s.facts.Types[t]
	gone := f.Acked.Only(sent.gone)
	if sent.whole() {
		gone = f.Acked.Filter(func(r *schema.Resource) bool { return sent.set.Get(r.Name) == nil })
	}
	f.Acked = without(f.Acked, gone)
	return gone
}

// advance opens stages for as long as the gates allow. The caller holds s.mu.
func (s *session) advance(now time.Time) {
	for s.path != nil && !s.closed && !s.ponders(now) {
		step := s.srv.guide.Step(s.path, s.at, &s.facts, now)
		if s.tell(step, now) {
			continue
		}
		if step != s.step {
			s.step = step
			s.touch(false)
		}
		if step.Settled && s.at >= 0 {
			s.settle()
			s.count(now)
		}
		if step.Verdict == schema.Halt && s.at < s.path.Converged {
			// Whatever comes now is too late: the group is about to be held, and
			// a new target or a retry goes on from here.
			s.facts.Hold = true
		}
		if step.Verdict != schema.Serve {
			s.wake(s.nextBeat(step.Until, now), now)
			return
		}
		s.at = step.Stage
		s.sent()
		s.facts.StageAt = now
		s.flushAll(now)
	}
}

// sent takes what the open stage moves for what the client may hold from now on.
// What a whole response leaves out may be gone: unless something was uncertain
// before, the stage's set stands for itself.
func (s *session) sent() {
	at := s.path.At(s.at)
	for _, t := range schema.AllTypes() {
		if s.moves(t) {
			s.maybe = s.maybe.Replace(t, s.maybe.Of(t).Union(at.Of(t)))
		}
	}
}

// settle takes what the open stage moved for held: of these types, and no
// others, the client has acknowledged all that it asks for.
func (s *session) settle() {
	at := s.path.At(s.at)
	for _, t := range schema.AllTypes() {
		if s.moves(t) {
			s.held = s.held.Replace(t, at.Of(t))
			s.maybe = s.maybe.Replace(t, schema.Set{})
		}
	}
}

// wake arranges for the session to be looked at again at a time.
func (s *session) wake(at, now time.Time) {
	if at.IsZero() || !at.After(now) {
		if s.timer != nil {
			s.timer.Stop()
		}
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(at.Sub(now), s.poke)
		return
	}
	s.timer.Reset(at.Sub(now))
}

// poke looks at the session again because time has passed or live resources
// have changed.
func (s *session) poke() {
	s.mu.Lock()
	if !s.closed && s.path != nil {
		now := time.Now()
		s.flushAll(now)
		s.advance(now)
	}
	s.release(nil)
}

// touch has the ledger written anew for this session.
func (s *session) touch(live bool) {
	i := 0
	if live {
		i = 1
	}
	if !s.queued[i] {
		s.queued[i] = true
		s.srv.ledger.add(s, live)
	}
}
