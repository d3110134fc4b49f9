package ads

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// The path of a session: what it is planned from, and what changes it.

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
			held = held.Union(f.Acked.Filter(sendable))
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

// skip forgets what a newcomer was to be sent of what routes, if it has not come to
// that: what replaces it need not be preceded by it.
func (s *session) skip() {
	if !s.facts.Returned.IsZero() || s.routes() {
		return
	}
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		s.held, s.maybe = s.held.Replace(t, schema.Set{}), s.maybe.Replace(t, schema.Set{})
	}
}
