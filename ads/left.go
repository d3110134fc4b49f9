package ads

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// left is what a session that has ended left its client with. Whichever way it was
// on, what the client reports when it comes back is one of these versions (rule S9).
type left struct {
	heard       time.Time // when the client spoke last
	held, maybe schema.Snapshot
	types       []leftType
	waits       schema.Set // endpoints, as session.waits
}

type leftType struct {
	t schema.Type
	// acked is what the client had accepted last, and offered what it has if it
	// accepted what was under way; nothing was if that has no version.
	acked, offered leftSet
	flying         schema.Set // what was under way
	unknown        schema.Set // what it was not known to hold
}

type leftSet struct {
	version schema.Version
	set     schema.Set
}

// leaves is what a session leaves, if it ends now: nothing before it has a path. Of
// what the client has not asked for again it is what the session before left. The
// caller holds s.mu.
func (s *session) leaves() *left {
	if s.path == nil {
		return nil
	}
	l := &left{heard: s.heard, held: s.held, maybe: s.maybe, waits: s.waiting()}
	if s.was != nil {
		l.types = slices.DeleteFunc(slices.Clone(s.was.types), func(lt leftType) bool { return s.types[lt.t].sub != nil })
	}
	for _, t := range schema.AllTypes() {
		if s.types[t].sub == nil {
			continue
		}
		lt := s.leavesOf(t)
		if !t.Live() {
			l.maybe = l.maybe.Replace(t, l.maybe.Of(t).Union(lt.offered.set))
		}
		l.types = append(l.types, lt)
	}
	return l
}

// leavesOf is what a session leaves of a type that its client asked for.
func (s *session) leavesOf(t schema.Type) leftType {
	ts, f := &s.types[t], &s.facts.Types[t]
	had := ts.unknown.Filter(func(r *schema.Resource) bool {
		return ts.refused.versions[r.Name] == "" // or it was never accepted
	}).Union(f.Acked)
	if f.AckedAt.IsZero() {
		had = ts.before.Union(had) // which its word did not prove
	}
	if t == schema.Endpoints {
		had = s.had.Union(had)
	}
	lt := leftType{t: t, unknown: ts.unknown, acked: leftSet{ts.accepted, ts.sub.Select(had)}}
	if ts.flight != nil {
		lt.offered, lt.flying = leftSet{ts.flight.version, ts.sub.accept(f.Acked, ts.flight)}, ts.flight.set
	}
	return lt
}

// keep has the session itself remember what it leaves of a type, whose stream ends
// before the others (see Server.leave).
func (s *session) keep(t schema.Type) {
	if s.types[t].sub == nil {
		return
	}
	l := left{held: s.held, maybe: s.maybe}
	if s.was != nil {
		l = *s.was
	}
	if t == schema.Endpoints {
		s.waits = s.waiting() // what is under way is remembered with the rest
	}
	l.types = append(slices.DeleteFunc(slices.Clone(l.types), func(lt leftType) bool { return lt.t == t }), s.leavesOf(t))
	s.was = &l
}

// at finds what the client holds of a type by the version that it reports: that, of
// what it asks for, and else what the session before held.
func (l *left) at(t schema.Type, v schema.Version, sub *subscription) (schema.Set, bool) {
	if l == nil || v == "" {
		return schema.Set{}, false
	}
	for _, lt := range l.types {
		for _, set := range [...]leftSet{lt.acked, lt.offered} {
			if lt.t == t && set.version == v {
				held := l.held.Of(t)
				return without(held, sub.pick(held)).Union(set.set), true
			}
		}
	}
	return schema.Set{}, false
}

// accepts reports whether a client that reports a version has accepted what was
// under way when the session before ended.
func (l *left) accepts(t schema.Type, v schema.Version) bool {
	return l != nil && slices.ContainsFunc(l.types, func(lt leftType) bool {
		return lt.t == t && lt.offered.version == v && lt.acked.version != v
	})
}

// waiting are the names of endpoints that a client may wait for when it comes back:
// also those under way, unless it says by their versions that they came.
func (l *left) waiting(req *request) schema.Set {
	w := l.waits
	for _, lt := range l.types {
		if lt.t != schema.Endpoints || req.of == sotw && l.accepts(lt.t, schema.Version(req.version)) {
			continue
		}
		flying := unsent(lt.flying)
		for _, e := range req.initial {
			if r := lt.flying.Get(string(e[0])); r != nil && string(r.Version) == string(e[1]) && l.brought(r) {
				flying = flying.Without(r.Name)
			}
		}
		w = w.Union(flying)
	}
	return w
}

// brought reports whether a client that has a resource has it from what was under
// way when the session before ended: that says what came of it.
func (l *left) brought(r *schema.Resource) bool {
	return l != nil && slices.ContainsFunc(l.types, func(lt leftType) bool {
		o, had := lt.flying.Get(r.Name), lt.acked.set.Get(r.Name)
		return lt.t == r.Type && o != nil && o.Version == r.Version && (had == nil || had.Version != r.Version)
	})
}

// settled reports whether nothing of a name was under way or unknown when the session
// before ended: the client's word for it can be taken.
func (l *left) settled(k schema.Key) bool {
	return l != nil && slices.ContainsFunc(l.types, func(lt leftType) bool {
		return lt.t == k.Type && lt.flying.Get(k.Name) == nil && lt.unknown.Get(k.Name) == nil
	})
}

// snapshots are what the client may hold, whole.
func (l *left) snapshots() []schema.Snapshot {
	if l == nil {
		return nil
	}
	acked, offered := l.held, l.held.Union(l.maybe)
	for _, lt := range l.types {
		if lt.t.Live() || lt.acked.version == "" && lt.offered.version == "" {
			continue
		}
		acked = acked.Replace(lt.t, acked.Of(lt.t).Union(lt.acked.set))
		offered = offered.Replace(lt.t, offered.Of(lt.t).Union(lt.offered.set))
	}
	return []schema.Snapshot{acked, offered}
}

// knows reports whether a set is what the session before may have left of a type.
func (l *left) knows(t schema.Type, set schema.Set) bool {
	return l != nil && slices.ContainsFunc(l.types, func(lt leftType) bool {
		return lt.t == t && (lt.acked.version != "" && lt.acked.set.Equal(set) || lt.offered.version != "" && lt.offered.set.Equal(set))
	})
}
