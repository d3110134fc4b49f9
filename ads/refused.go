package ads

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// What a client refused, and its target gave up: its path does not come back to that.

// giveUp keeps in mind what the client refused, the target does not want, and
// something else stands for, or nothing if the client named it and no gate waits for
// it: whatever it accepts next, its path does not come back to that.
func (s *session) giveUp(t schema.Type) {
	ts := &s.types[t]
	for name, v := range ts.refused.versions {
		old, w := s.facts.Types[t].Acked.Get(name), s.target.Snapshot.Of(t).Get(name)
		if old == nil {
			old = ts.before.Get(name)
		}
		if t.Live() || !ts.refused.blames(name) || w != nil && w.Version == v || !s.carries(t, name, v) {
			continue
		}
		stands := old != nil && old.Version != v
		if stands || old == nil && w == nil && ts.refused.named[name] && !s.gatedOn(s.path.From.Of(t).Get(name)) {
			ts.avoid(name, v)
		}
	}
}

func (ts *typeState) avoid(name string, v schema.Version) {
	if slices.Contains(ts.never[name], v) {
		return
	}
	if ts.never == nil {
		ts.never = map[string][]schema.Version{}
	}
	ts.never[name] = append(ts.never[name], v)
}

// carries reports whether the path has a version only because the client may hold
// it. What a path makes on its way, like a warm table, is no version of the target
// either, and there is no way without it.
func (s *session) carries(t schema.Type, name string, v schema.Version) bool {
	r := s.path.From.Of(t).Get(name)
	return r != nil && r.Version == v
}

// withoutGivenUp leaves out of what a session should hold the refused content
// that its target has given up: the client may go on asking for it until the route
// that names it is dropped, and what waits for its ACK would wait for ever. What
// was acknowledged before stands in for it.
func (s *session) withoutGivenUp(t schema.Type, set schema.Set) schema.Set {
	ts := &s.types[t]
	for name, v := range ts.refused.versions {
		if ts.refused.blames(name) {
			set = s.standIn(t, set, name, v)
		}
	}
	for name, vs := range ts.never {
		if r := set.Get(name); r != nil && slices.Contains(vs, r.Version) && s.carries(t, name, r.Version) {
			set = s.standIn(t, set, name, r.Version)
		}
	}
	return set
}

// standIn replaces a refused version, if the target has given it up.
func (s *session) standIn(t schema.Type, set schema.Set, name string, v schema.Version) schema.Set {
	if r := set.Get(name); r == nil || r.Version != v {
		return set
	}
	before := s.types[t].before.Get(name)
	if before != nil && before.Version == v {
		return set // it may have been in use long before it was refused
	}
	if w := s.target.Snapshot.Of(t).Get(name); w != nil && (t.Live() || w.Version == v) {
		return set
	}
	old := s.facts.Types[t].Acked.Get(name)
	if old == nil {
		old = before // not to be deleted under the routes that lead there
	}
	if old == nil {
		return set.Without(name)
	}
	return set.With(old)
}

// blames reports whether a resource may be what was refused: the words name it, or
// none. What was not is in use: good parts of a response are applied (rule D9).
func (r *refusal) blames(name string) bool { return len(r.named) == 0 || r.named[name] }

// disproved forgets that the client may hold what was given up, now that it has
// accepted what stands in for that, and reports whether its path waits for it.
func (s *session) disproved(t schema.Type) (found bool) {
	ts, acked := &s.types[t], s.facts.Types[t].Acked
	for name, vs := range ts.never {
		has, carried := acked.Get(name), s.path.From.Of(t).Get(name)
		if has == nil || carried == nil || has.Version == carried.Version || !slices.Contains(vs, carried.Version) || ts.unknown.Get(name) != nil || !s.gatedOn(carried) {
			continue
		}
		s.maybe = s.maybe.Replace(t, s.maybe.Of(t).Without(name))
		found = true
	}
	return found
}

// gatedOn reports whether a gate of the path, that is not behind the session, waits
// for the ACK of a resource in its version.
func (s *session) gatedOn(r *schema.Resource) bool {
	return slices.ContainsFunc(s.path.Stages[min(max(s.at, 0), len(s.path.Stages)):], func(st schema.Stage) bool {
		return slices.ContainsFunc(st.Wants, func(w schema.Want) bool { return w.Key == r.Key && w.Version == r.Version })
	})
}

// otherwise supposes other versions of what a client came back with and of what a
// path repeats to it, if it refuses what it was taken to hold: those that it has it
// accepted once. One that it refuses by name in each version that is known, and that
// the target does not want, it does not hold. It reports whether that is news; to
// wait for the ACK of what no commit wants would be to wait for ever.
func (s *session) otherwise(t schema.Type, news schema.Set) (found bool) {
	ts, target := &s.types[t], s.target.Snapshot.Of(t)
	for r := range news.All() {
		supposed, wanted := ts.before.Get(r.Name), target.Get(r.Name)
		if !ts.refused.blames(r.Name) || supposed == nil || supposed.Version != r.Version || wanted != nil && wanted.Version == r.Version {
			continue
		}
		ts.avoid(r.Name, r.Version)
		var other *schema.Resource // the most advanced
		for _, k := range s.target.Known {
			if o := k.Of(t).Get(r.Name); o != nil && !slices.Contains(ts.never[r.Name], o.Version) {
				other = o
			}
		}
		switch maybe := s.maybe.Of(t); {
		case other != nil:
			ts.before, ts.unknown = ts.before.With(other), ts.unknown.With(other)
			s.maybe = s.maybe.Replace(t, maybe.With(other))
		case wanted == nil && ts.refused.named[r.Name]:
			ts.before, ts.unknown = ts.before.Without(r.Name), ts.unknown.Without(r.Name)
			s.maybe = s.maybe.Replace(t, maybe.Without(r.Name))
		default:
			continue
		}
		found = true
	}
	return found
}

// forgetRefused forgets versions that were given up and that no path of the session
// can come back to: nothing has them any more.
func (s *session) forgetRefused() {
	for t := range s.types {
		ts := &s.types[t]
		for name, vs := range ts.never {
			vs = slices.DeleteFunc(vs, func(v schema.Version) bool { return !s.mayMeet(schema.Type(t), name, v) })
			if ts.never[name] = vs; len(vs) == 0 {
				delete(ts.never, name)
			}
		}
	}
}

// mayMeet reports whether a version is of what the client may hold, or of what it may
// yet be taken to hold.
func (s *session) mayMeet(t schema.Type, name string, v schema.Version) bool {
	has := func(set schema.Set) bool {
		r := set.Get(name)
		return r != nil && r.Version == v
	}
	ts := &s.types[t]
	return has(s.path.From.Of(t)) || has(s.held.Of(t)) || has(s.maybe.Of(t)) || has(ts.unknown) || has(ts.before) ||
		slices.ContainsFunc(s.trail(), func(k schema.Snapshot) bool { return has(k.Of(t)) })
}
