package ads

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// What is made of a client that comes back before it has said all.

// suppose takes a client for one that may hold whatever the group's may, but for
// what routes, if it said what that is: to take it for something newer would have
// traffic move before what it moves to is ready.
func (s *session) suppose() {
	all := known(s.target)
	for t, sure := range s.sure {
		if sure {
			all = all.Replace(schema.Type(t), schema.Set{})
		}
	}
	s.maybe = s.maybe.Union(all)
}

// spare keeps the clusters of which nobody remembers anything but what an Envoy
// says of them itself: requests may still be sent to them, by routes that were on
// their way when it was cut off. They go with the prune, after its drain (rule O10).
func (s *session) spare(t schema.Type) {
	if t != schema.Clusters || s.target.Client != schema.Envoy {
		return
	}
	ts, f := &s.types[t], &s.facts.Types[t]
	known, target := s.held.Of(t).Union(s.maybe.Of(t)), s.target.Snapshot.Of(t)
	foreign := ts.unknown.Filter(func(r *schema.Resource) bool {
		return r.Body == nil && known.Get(r.Name) == nil && target.Get(r.Name) == nil
	})
	ts.unknown = without(ts.unknown, foreign)
	f.Acked = f.Acked.Union(foreign)
	s.maybe = s.maybe.Replace(t, s.maybe.Of(t).Union(foreign))
}

// deaf takes note that a client came back without any listener, whatever it was
// taken for, and reports whether that is news. After a refusal it may have some, and
// where one may not have been heard.
func (s *session) deaf() bool {
	t := schema.Listeners
	if s.facts.Returned.IsZero() || s.types[t].doubt >= unanswered || s.held.Of(t).Len()+s.maybe.Of(t).Len() == 0 {
		return false
	}
	s.sure[t] = true
	s.held, s.maybe = s.held.Replace(t, schema.Set{}), s.maybe.Replace(t, schema.Set{})
	return true
}

// ponders reports whether the session stands still because a gRPC client that came
// back has not yet said by which tables it sends, and which clusters it names: what
// it asks for first may be of several steps of a way, and none but the right one is
// safe to go on from.
func (s *session) ponders(now time.Time) bool {
	if s.facts.Returned.IsZero() || s.target.Client != schema.GRPC || s.at >= 0 {
		return false
	}
	told := s.types[schema.Routes].sub != nil && s.types[schema.Clusters].sub != nil
	if until := s.connected.Add(pondering); !told && now.Before(until) {
		s.wake(until, now)
		return true
	}
	s.puzzled = false
	return false
}

// tell sends the listeners and tables again that only the wire is unsure of, and
// that no stage of the path comes to: what is pruned may wait for them. What they
// send to is made before.
func (s *session) tell(step schema.Step, now time.Time) bool {
	made := s.at >= 0 && step.Settled || s.at < 0 && len(s.path.Stages) > 0 && s.path.Stages[0].Kind != schema.Make
	if !s.retell || !made {
		return false
	}
	s.retell = false
	s.types[schema.Listeners].again = s.types[schema.Listeners].strange && s.types[schema.Listeners].sub != nil
	f := &s.facts.Types[schema.Routes]
	f.Resend = f.Resend.Union(s.desired(schema.Routes))
	s.flushAll(now)
	return true
}

// pondering is how long a client is given to ask again for all that it uses.
const pondering = 2 * time.Second

// guess supposes which tables a gRPC client holds that came back with some that
// nobody has on record: the least advanced of which it names every cluster or, since
// it names those of its own virtual host alone, which names all that it does.
// Requests may be sent by those, whatever it holds: what it sends to next must be
// warm first, from there (rule G9). It waits for the names, and reports whether
// it found any.
func (s *session) guess() bool {
	names, tables := s.types[schema.Clusters].sub, s.types[schema.Routes].sub
	if !s.puzzled || names == nil || tables == nil {
		return false
	}
	s.puzzled = false
	var found []*schema.Resource
	for _, table := range tables.Names {
		r := s.earliest(table, func(r *schema.Resource) bool { return s.covers(names, r) })
		if r == nil && len(tables.Names) == 1 && len(names.Names) > 0 {
			r = s.earliest(table, func(r *schema.Resource) bool { return namesAll(r, names) })
		}
		if r != nil {
			found = append(found, r)
		}
	}
	supposed := schema.SetOf(found...)
	s.held = s.held.Replace(schema.Routes, s.held.Of(schema.Routes).Union(supposed))
	s.maybe = s.maybe.Replace(schema.Routes, without(s.maybe.Of(schema.Routes), supposed))
	return len(found) > 0
}

// earliest is the least advanced version of a table that passes, or nil.
func (s *session) earliest(table string, passes func(*schema.Resource) bool) *schema.Resource {
	for _, k := range s.target.Known {
		if r := k.Of(schema.Routes).Get(table); r != nil && passes(r) {
			return r
		}
	}
	return nil
}

// namesAll reports whether r names every cluster that a client asks for.
func namesAll(r *schema.Resource, asks *subscription) bool {
	return !slices.ContainsFunc(asks.Names, func(name string) bool {
		return !slices.ContainsFunc(r.Refs, func(ref schema.Ref) bool { return ref.Type == schema.Clusters && ref.Name == name })
	})
}

// covers reports whether a client asks for every cluster that r sends to or names,
// and for none of them as a part of another alone.
func (s *session) covers(names *subscription, r *schema.Resource) bool {
	return !slices.ContainsFunc(r.Refs, func(ref schema.Ref) bool {
		return ref.Type == schema.Clusters && (ref.Edge == schema.Traffic || ref.Edge == schema.Child) && (!names.Covers(ref.Name) || s.member(names, ref.Key))
	})
}

// member reports whether a cluster is part of one that the client asks for.
func (s *session) member(names *subscription, cluster schema.Key) bool {
	for _, k := range s.target.Known {
		for _, name := range names.Names {
			if r := k.Of(schema.Clusters).Get(name); r != nil && slices.ContainsFunc(r.Refs, func(ref schema.Ref) bool { return ref.Key == cluster }) {
				return true
			}
		}
	}
	return false
}

// enclose takes what a set refers to for something that the client may hold. It was
// recognised by each type alone, and not of one release; and a path does not begin
// with what refers to nothing (rule P2).
func (s *session) enclose(set schema.Set) {
	for r := range set.All() {
		for _, ref := range r.Refs {
			if ref.Type >= schema.Listeners || ref.Edge == schema.Optional || s.held.Get(ref.Key) != nil || s.maybe.Get(ref.Key) != nil {
				continue
			}
			i := slices.IndexFunc(s.target.Known, func(k schema.Snapshot) bool { return k.Get(ref.Key) != nil })
			if i < 0 {
				continue
			}
			found := s.target.Known[i].Get(ref.Key)
			s.maybe = s.maybe.Replace(ref.Type, s.maybe.Of(ref.Type).With(found))
			s.enclose(schema.SetOf(found))
		}
	}
}

// resendRetaken marks the tables that listeners came to or left lately: a client
// that another server told of it may have dropped one and asked for it again, which
// the version that it reports does not say. It waits for that (rule S6).
func (s *session) resendRetaken() {
	f := &s.facts.Types[schema.Routes]
	again := func(a, b *schema.Resource) {
		if a == nil {
			return
		}
		for _, ref := range a.Refs {
			if ref.Type == schema.Routes && (b == nil || !slices.Contains(b.Refs, ref)) {
				f.Resend = f.Resend.Union(f.Acked.Only([]string{ref.Name}))
			}
		}
	}
	for _, k := range s.target.Known {
		for old, now := range schema.Diff(k.Of(schema.Listeners), s.target.Snapshot.Of(schema.Listeners)) {
			again(old, now)
			again(now, old)
		}
	}
}

// strays reports whether the client may route by what nobody has on record, and
// has not accepted anything in its place yet (rule R6).
func (s *session) strays() bool {
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		if ts := &s.types[t]; ts.strange && (ts.unknown.Len() > 0 || t.FullState() && ts.stream.of == sotw) {
			return true
		}
	}
	return false
}

// routes reports whether the session has asked for anything that routes.
func (s *session) routes() bool {
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		if s.types[t].sub != nil {
			return true
		}
	}
	return false
}

// reveal takes a client for one that may hold anything that was taken for a
// newcomer, and says of some type that it holds something.
func (s *session) reveal() bool {
	if !s.fresh {
		return false
	}
	s.fresh = false
	s.held, s.maybe = schema.Snapshot{}, schema.Snapshot{}
	s.suppose()
	for t := range s.types {
		if ts := &s.types[t]; ts.sub != nil {
			ts.before = ts.before.Union(s.maybe.Of(schema.Type(t)))
		}
	}
	return true
}

// waitedFor are tables that a client asks for and does not hold: some listener, that
// it was sent before, warms until it has them (rule O7). Of those that it may have
// been sent with it, the least advanced that leads to nothing but what it has will
// do: it is changed when its turn comes. The same goes for clusters that a table of
// a gRPC client names.
func (s *session) waitedFor(t schema.Type, listed schema.Set) schema.Set {
	said, clusters := &s.types[schema.Clusters], s.facts.Types[schema.Clusters].Acked
	if !said.strange { // it has these, or others of the name
		clusters = clusters.Union(said.before)
	}
	if said.sub == nil || s.target.Client == schema.GRPC {
		clusters = clusters.Union(s.held.Of(schema.Clusters).Filter(sendable))
	}
	var found []*schema.Resource
next:
	for _, name := range s.types[t].sub.Names {
		if listed.Get(name) != nil || s.held.Of(t).Get(name) != nil || s.maybe.Of(t).Get(name) != nil {
			continue
		}
		for _, k := range s.target.Known {
			r := k.Of(t).Get(name)
			if r != nil && (t == schema.Clusters || !slices.ContainsFunc(r.Refs, func(ref schema.Ref) bool { return ref.Type == schema.Clusters && clusters.Get(ref.Name) == nil })) {
				found = append(found, r)
				continue next
			}
		}
	}
	return schema.SetOf(found...)
}

// resendSwapped marks the endpoints of clusters that were changed in place lately:
// a client that another server sent them may wait for endpoints, whatever it says
// that it has of them (rule O5).
func (s *session) resendSwapped() {
	f, t := &s.facts.Types[schema.Endpoints], schema.Clusters
	for _, k := range s.target.Known {
		for old, now := range schema.Diff(k.Of(t), s.target.Snapshot.Of(t)) {
			for _, r := range [...]*schema.Resource{old, now} {
				if old == nil || now == nil {
					continue
				}
				for _, ref := range r.Refs {
					if has := f.Acked.Get(ref.Name); ref.Type == schema.Endpoints && has != nil {
						f.Resend = f.Resend.Union(schema.SetOf(has))
					}
				}
			}
		}
	}
}
