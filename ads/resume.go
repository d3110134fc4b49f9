package ads

import "github.com/sluice-xds/sluice/schema"

// resume takes in what the first request of a type says that the client holds
// (rules S9, D1), and plans the session's path when that is news.
func (s *session) resume(t schema.Type, req *request) {
	met := s.srv.memory.doubt(s.node.ID, t) != unmet
	s.recollect(t)
	if req.version == "" && len(req.initial) == 0 {
		s.resumeBlank(t, req)
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
	was, set, found := s.takeIn(t, req)
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
	if found && (t == schema.Routes || t == schema.Clusters) {
		waits := s.waitedFor(t, set)
		s.held = s.held.Replace(t, s.held.Of(t).Union(waits))
		s.enclose(waits)
	}
	s.guess()
	s.blank = false
	if s.path == nil || s.state() != before {
		s.plan()
	}
}

// resumeBlank takes in that a client says of a type that it holds nothing.
func (s *session) resumeBlank(t schema.Type, req *request) {
	if s.path == nil {
		// A process that has just begun asks for its roots first. Whoever begins
		// with another type may hold anything.
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
}

// takeIn takes what a client says that it holds of a type for held or, where its
// word proves nothing, for unknown. It returns the set that this was recognised by
// and the snapshot which that is of, if it was.
func (s *session) takeIn(t schema.Type, req *request) (was schema.Snapshot, set schema.Set, found bool) {
	ts, f := &s.types[t], &s.facts.Types[t]
	if req.of == delta {
		var strange schema.Set
		was, set, strange = s.recogniseList(t, req)
		f.Acked, ts.unknown = ts.sub.pick(set), ts.sub.Select(strange)
		ts.before = s.vague(t, f.Acked)
		f.Acked, ts.unknown = without(f.Acked, ts.before), ts.unknown.Union(ts.before)
		return was, set, strange.Len() == 0
	}
	v := schema.Version(req.version)
	was, set, found = s.recognise(t, v)
	if ts.doubt == unanswered && s.was.accepts(t, v) {
		ts.doubt = noDoubt // this is the answer
		s.srv.memory.record(s.node.ID, t, noDoubt)
	}
	switch {
	case found && s.trusts(t):
		f.Acked, ts.accepted = ts.sub.pick(set), v
	case found:
		ts.unknown, ts.before, ts.accepted = ts.sub.pick(set), set, v
	default:
		ts.unknown = ts.sub.pick(known(s.target).Of(t))
	}
	return was, set, found
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
