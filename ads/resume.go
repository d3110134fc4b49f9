package ads

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// resume takes in what the first request of a type says that the client holds
// (rules S9, D1), and plans the session's path when that is news.
func (s *session) resume(t schema.Type, req *request) {
	met := s.srv.memory.doubt(s.node.ID, t) != unmet
	s.recollect(t)
	if req.version == "" && len(req.initial) == 0 {
		if s.path == nil {
			// A process that has just begun asks for its roots first. Whoever
			// begins with another type may hold anything.
			s.blank = t == schema.Clusters || t == schema.Listeners
			s.fresh = s.blank
			if !s.blank {
				s.maybe = known(s.target)
			}
			s.leftover(t, req, schema.Set{})
			s.plan()
		} else if s.leftover(t, req, schema.Set{}) || t == schema.Clusters && s.guess() || t == schema.Listeners && s.deaf() {
			s.plan()
		}
		return
	}
	s.facts.Returned = s.connected
	if t.Live() {
		s.resumeLive(t, req)
		return
	}
	before := s.state()
	s.reveal()
	ts, f := &s.types[t], &s.facts.Types[t]
	var was schema.Snapshot
	var set schema.Set
	var found bool
	if req.of == delta {
		var strange schema.Set
		was, set, strange = s.recall(t, req)
		found = strange.Len() == 0
		f.Acked, ts.unknown = ts.sub.pick(set), ts.sub.Select(strange)
		ts.before = s.vague(t, f.Acked)
		f.Acked, ts.unknown = without(f.Acked, ts.before), ts.unknown.Union(ts.before)
	} else {
		was, set, found = s.recognise(t, schema.Version(req.version))
		if ts.doubt == unanswered && s.was.accepts(t, schema.Version(req.version)) {
			ts.doubt = noDoubt // this is the answer
			s.srv.memory.record(s.node.ID, t, noDoubt)
		}
		switch {
		case found && s.trusts(t):
			f.Acked, ts.accepted = ts.sub.pick(set), schema.Version(req.version)
		case found:
			ts.unknown, ts.before, ts.accepted = ts.sub.pick(set), set, schema.Version(req.version)
		default:
			ts.unknown = ts.sub.pick(known(s.target).Of(t))
		}
	}
	switch {
	case !found:
		ts.strange = true
		s.suppose()
		if t == schema.Routes && s.target.Client == schema.GRPC {
			s.puzzled = true // until then what the rest of it was recognised by will do
		} else {
			s.held = s.held.Replace(t, schema.Set{})
		}
		s.spare(t)
		ts.before = s.maybe.Of(t)
	case s.path == nil:
		s.held = was
		if s.was.knows(t, ts.sub.pick(set)) { // what it says no more of yet may be under way as it was
			maybe := s.was.maybe.Of(t) // but for what it does not ask for: tables that it may hold refer to that
			s.maybe = s.was.maybe.Replace(t, without(maybe, ts.sub.pick(maybe)))
		}
	case !ts.sub.pick(s.held.Of(t)).Equal(ts.sub.pick(set)):
		s.held = s.held.Replace(t, set)
		if !was.Of(schema.Clusters).Equal(s.held.Of(schema.Clusters)) {
			s.enclose(set)
		}
	}
	if found && (t == schema.Routes || t == schema.Clusters) {
		waits := s.awaited(t, set)
		s.held = s.held.Replace(t, s.held.Of(t).Union(waits))
		s.enclose(waits)
	}
	if t == schema.Routes && !met {
		s.resendRetaken()
	}
	s.leftover(t, req, set)
	if t == schema.Clusters {
		s.betrayed()
	}
	if (f.Acked.Len() > 0 || ts.doubt == wanting) && found && t >= schema.Listeners {
		s.sure[t] = true
		s.maybe = s.maybe.Replace(t, schema.Set{})
	}
	s.guess()
	s.blank = false
	if s.path == nil || s.state() != before {
		s.plan()
	}
}

// resumeLive takes the client at its word for what the overlay still holds at
// the version that it reports; the rest is sent.
func (s *session) resumeLive(t schema.Type, req *request) {
	ts, f := &s.types[t], &s.facts.Types[t]
	v, trusts := schema.Version(req.version), s.trusts(t)
	if t == schema.Endpoints && ts.doubt == unanswered && s.was != nil {
		trusts = true // but for what it may wait for
		s.waits = s.waits.Union(s.was.waiting(req))
	}
	set := ts.sub.pick(s.srv.live.Load().Of(t))
	switch had, known := s.was.at(t, v, ts.sub); {
	case !trusts:
	case req.of == delta:
		var has []*schema.Resource
		for _, e := range req.initial {
			if r := set.Get(string(e[0])); r != nil && string(r.Version) == string(e[1]) {
				has = append(has, r)
			}
		}
		f.Acked = schema.SetOf(has...)
	case known:
		f.Acked = ts.sub.pick(had).Filter(func(r *schema.Resource) bool {
			now := set.Get(r.Name)
			return now != nil && now.Version == r.Version
		})
	case set.Version() == v:
		f.Acked = set
	}
	if t == schema.Endpoints {
		s.had = f.Acked.Filter(func(r *schema.Resource) bool { return s.waits.Get(r.Name) != nil })
		f.Acked = without(f.Acked, s.had)
		if ts.doubt == unmet {
			s.resendSwapped()
		}
	}
	if s.path == nil {
		s.maybe = known(s.target)
		s.plan()
	} else if s.reveal() || s.betrayed() {
		s.plan()
	}
}

// recall finds what a delta client holds by the versions that it lists. What no
// snapshot of the group has at that version is strange.
func (s *session) recall(t schema.Type, req *request) (was schema.Snapshot, set, strange schema.Set) {
	from := slices.Concat([]schema.Snapshot{s.held}, s.was.snapshots(), s.trail())
	for _, k := range from {
		if set := k.Of(t); s.holds(t, set, req) {
			return k, set, schema.Set{}
		}
	}
	var has, other []*schema.Resource
next:
	for _, e := range req.initial {
		for _, k := range from {
			if r := k.Of(t).Get(string(e[0])); r != nil && string(r.Version) == string(e[1]) {
				has = append(has, r)
				continue next
			}
		}
		other = append(other, schema.Restore(schema.Key{Type: t, Name: string(e[0])}, schema.Version(e[1]), nil, nil))
	}
	set = schema.SetOf(has...)
	if len(s.target.Known) > 0 {
		was = s.target.Known[0].Replace(t, set)
	}
	return was, set, schema.SetOf(other...)
}

// holds reports whether the client's list is what it asks for of a set.
func (s *session) holds(t schema.Type, set schema.Set, req *request) bool {
	picked := s.types[t].sub.pick(set)
	if picked.Len() != len(req.initial) {
		return false
	}
	for _, e := range req.initial {
		if r := picked.Get(string(e[0])); r == nil || string(r.Version) != string(e[1]) {
			return false
		}
	}
	return true
}

// recognise finds the snapshot that a reported version is of: the one that the
// session is assumed to hold, or else the first of those that it may.
func (s *session) recognise(t schema.Type, v schema.Version) (schema.Snapshot, schema.Set, bool) {
	sub := s.types[t].sub
	if s.path != nil {
		if set := s.held.Of(t); sub.pick(set).Version() == v {
			return s.held, set, true
		}
	}
	if set, ok := s.was.at(t, v, sub); ok {
		return s.was.held.Replace(t, set), set, true
	}
	for _, k := range s.trail() {
		if set := k.Of(t); sub.pick(set).Version() == v {
			return k, set, true
		}
	}
	// All of it together is what a session of an unknown version is sent.
	all := known(s.target)
	if set := all.Of(t); sub.pick(set).Version() == v {
		return all, set, true
	}
	return s.mix(t, v)
}

// trail is what the client may have come back with: also what was on record when it
// came, if it was given another target before it has said all.
func (s *session) trail() []schema.Snapshot { return slices.Concat(s.target.Known, s.earlier) }

// known is everything that a session of the group may hold.
func known(t *schema.Target) schema.Snapshot {
	var all schema.Snapshot
	for i := len(t.Known) - 1; i >= 0; i-- {
		all = t.Known[i].Union(all)
	}
	return all
}

// state is what a path is planned from. What was refused is not what a plan
// should leave in place until its turn; but where it stands for something that
// was acknowledged, it may have been applied.
func (s *session) state() schema.State {
	st := schema.State{Acked: s.held, Maybe: s.maybe, Blank: s.blank}
	for _, t := range schema.AllTypes() {
		ts, f := &s.types[t], &s.facts.Types[t]
		if t.Live() || ts.sub == nil {
			continue
		}
		// A stage is open from when it is entered, and sends nothing before what
		// is in flight was answered: what was in fact sent and acknowledged counts.
		if f.InFlight {
			st.Maybe = st.Maybe.Replace(t, st.Maybe.Of(t).Union(ts.flight.set))
		}
		held := st.Acked.Of(t)
		if !f.Acked.Equal(ts.sub.pick(held)) {
			held = held.Union(f.Acked.Filter(whole))
			st.Acked = st.Acked.Replace(t, held)
		}
		if ts.refused.nack == nil || f.InFlight {
			continue
		}
		partial := ts.stream.of == delta
		st.Maybe = st.Maybe.Replace(t, ts.before.Union(held.Union(ts.unknown.Filter(func(r *schema.Resource) bool {
			return held.Get(r.Name) != nil || !partial && !ts.refused.blames(r.Name)
		}))))
		// What it was taken to hold because it did not ask, and refused when it
		// did, it does not hold.
		st.Acked = st.Acked.Replace(t, held.Filter(func(r *schema.Resource) bool {
			return ts.refused.versions[r.Name] != r.Version
		}))
		if partial && t.FullState() {
			// What was good of the refused is there all the same.
			st.Maybe = st.Maybe.Replace(t, unsent(without(ts.unknown, held)).Union(st.Maybe.Of(t)))
		}
	}
	return st
}

// whole reports whether a resource is more than a client's word for it: see spare.
func whole(r *schema.Resource) bool { return r.Body != nil }

// plan puts the session at the start of a path from what it may hold now. The
// caller holds s.mu, and flushes and advances after.
func (s *session) plan() {
	if s.path == nil {
		s.srv.memory.speaks(s)
	}
	s.path = s.srv.guide.Path(s.state(), s.target)
	s.forgetRefused()
	if s.blank {
		// It may be led from something all the same, and is served that first.
		s.maybe = s.maybe.Union(s.path.From)
	}
	s.at, s.blank = schema.Before, false
	s.facts.StageAt = time.Now()
	s.pace = pace{began: s.facts.StageAt}
	s.facts.Hold = s.target.Hold
	s.retell = s.types[schema.Routes].unknown.Len() > 0 && !s.comesTo(schema.Routes) || s.types[schema.Listeners].strange && !s.comesTo(schema.Listeners)
	if len(s.path.Stages) == 0 && !s.facts.Hold && !s.ponders(s.facts.StageAt) {
		// There is no stage to enter. To look at what is before it would tell a
		// delta client that what it asks for is missing.
		s.at = 0
		s.maybe = s.maybe.Union(s.path.At(s.at))
	}
}

// comesTo reports whether some stage of the path moves a type before the prune,
// which waits for what may still be in use.
func (s *session) comesTo(t schema.Type) bool {
	return slices.ContainsFunc(s.path.Stages, func(st schema.Stage) bool { return st.Moves[t] && st.Kind < schema.Prune })
}

// assign gives the session another target. It is idempotent. One that only begins
// or ends a hold leaves the session on its path; so does a new generation of the
// same content, for which what the client refused is tried again (rule S15).
func (s *session) assign(target *schema.Target, now time.Time) {
	s.mu.Lock()
	s.retarget(target, now)
	s.release(nil)
}

func (s *session) retarget(target *schema.Target, now time.Time) {
	if s.closed || s.target == target || s.target.Group == target.Group && target.Generation < s.target.Generation {
		return
	}
	same := s.target.Group == target.Group && s.target.Snapshot.Equal(target.Snapshot) && s.target.Drain == target.Drain && s.target.PruneBusy == target.PruneBusy
	retry := same && s.target.Generation != target.Generation
	before := s.target
	s.target, s.facts.Hold = target, target.Hold
	if s.earlier = append(s.earlier, before.Known...); now.Sub(s.connected) > pondering {
		s.earlier = nil
	}
	s.touch(false)
	if s.path == nil {
		return
	}
	relived := s.relive(before, now)
	if !same || retry {
		for t := range s.facts.Types {
			s.facts.Types[t].Nack = nil // restored if the same content is due again
			s.facts.Types[t].Ignored = false
			s.types[t].trial = nil // what is in flight of it is answered like any other
		}
	}
	switch {
	case retry:
		for t := range s.types {
			s.giveUp(schema.Type(t))
			s.types[t].refused = refusal{}
		}
		s.facts.StageAt = now
		s.flushAll(now)
	case !same:
		s.skip()
		s.plan()
		s.flushAll(now)
	case relived:
		s.flushAll(now)
	}
	s.advance(now)
}

// trusts reports whether a version that the client reports proves what it
// holds. It does not after a NACK, which may have been applied in part, or where
// one may not have been heard.
func (s *session) trusts(t schema.Type) bool {
	if s.types[t].doubt == unmet && s.target.Client == schema.GRPC && t.Live() {
		// It forgets what it asks for no more, and reports the version all the
		// same when it asks again (grpc-go#7013).
		return false
	}
	return s.types[t].doubt <= unmet
}
