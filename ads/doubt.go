package ads

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// What a client may hold and does not say (rule D9). It reports what it accepted:
// of a response that it refused it has applied what was good, and removed what was
// to go, and does not mention either when it comes back.

// recollect finds out whether a client's word for what it holds of a type can be
// taken. For the types whose responses are the whole truth it cannot after a crash
// in the middle of a rollout, when a refusal may have been forgotten.
func (s *session) recollect(t schema.Type) {
	ts := &s.types[t]
	ts.doubt = s.srv.memory.doubt(s.node.ID, t)
	if ts.doubt != unmet || t == schema.Endpoints {
		return
	}
	ts.doubt = noDoubt
	if s.target.Open && t.FullState() {
		ts.doubt = unanswered
	}
	s.srv.memory.record(s.node.ID, t, ts.doubt)
}

// unheard keeps in mind that the stream of a type ends before its last response
// was answered, or before the client was sent what it waits for: it may report the
// version that it had before it began to wait.
func (s *session) unheard(t schema.Type) {
	f := &s.facts.Types[t]
	doubt := noDoubt
	if f.InFlight && s.divisible(t) {
		doubt = unanswered
	}
	switch t {
	case schema.Endpoints:
		doubt = noDoubt
		if s.waiting().Len() > 0 || f.Flight.Len() > 0 {
			doubt = unanswered
		}
	case schema.Routes: // it asked for none
		sent := f.Sub != nil || s.types[schema.Listeners].nonce != 0
		if sent && f.Acked.Len() == 0 && !f.InFlight && s.lacks(schema.Listeners, t).Len() > 0 {
			doubt = wanting
		}
	}
	if doubt > s.srv.memory.doubt(s.node.ID, t) {
		s.srv.memory.record(s.node.ID, t, doubt)
	}
}

func (s *session) unheardAll() {
	for _, t := range schema.AllTypes() {
		s.unheard(t)
	}
}

// waiting are the endpoints that the client may wait for, whatever it says that it
// has of them: those of clusters that it was sent without them, and what an earlier
// stream left so. What is in flight is not among them, and nothing that does not exist
// any more.
func (s *session) waiting() schema.Set {
	ts, f := &s.types[schema.Endpoints], &s.facts.Types[schema.Endpoints]
	w := without(without(s.waits, f.Acked), f.Flight).Union(unsent(f.Resend)).Union(refsTo(schema.Endpoints, s.early, schema.Set{}))
	switch {
	case ts.sub != nil && s.types[schema.Clusters].nonce != 0:
		w = w.Union(without(s.lacks(schema.Clusters, schema.Endpoints), f.Flight))
	case ts.sub == nil && s.was != nil:
		w = w.Union(s.was.waits)
	}
	live := s.srv.live.Load().Of(schema.Endpoints)
	return w.Filter(func(r *schema.Resource) bool { return live.Get(r.Name) != nil })
}

// lacks are the names of another type that what a client has of a type refers to,
// and that it was not sent.
func (s *session) lacks(t, of schema.Type) schema.Set {
	f := &s.facts.Types[t]
	return refsTo(of, f.Acked.Union(f.Flight), s.facts.Types[of].Acked)
}

// refsTo are the names of a type that resources refer to, and that a client has not.
func refsTo(t schema.Type, from, has schema.Set) schema.Set {
	var names []*schema.Resource
	for r := range from.All() {
		for _, ref := range r.Refs {
			if ref.Type == t && has.Get(ref.Name) == nil {
				names = append(names, schema.Restore(ref.Key, "", nil, nil))
			}
		}
	}
	return schema.SetOf(names...)
}

// divisible reports whether the response in flight may be applied in part: of one
// change, the version says whether it was.
func (s *session) divisible(t schema.Type) bool {
	changes := 0
	acked, next := s.facts.Types[t].Acked, s.served(t)
	for range schema.Diff(acked, next) {
		if changes++; changes > 1 {
			return true
		}
	}
	return s.types[t].unknown.Len() > 0
}

// vague is what of a delta client's list it may hold in another version.
func (s *session) vague(t schema.Type, listed schema.Set) schema.Set {
	if s.trusts(t) {
		return schema.Set{}
	}
	var vague []*schema.Resource
	for _, k := range s.target.Known {
		for old, now := range schema.Diff(k.Of(t), listed) {
			if old == nil || now == nil || s.was.settled(now.Key) || s.was.brought(now) {
				continue
			}
			vague = append(vague, now)
		}
	}
	return schema.SetOf(vague...)
}

// leftover takes in what a delta client may hold beside what it lists, and reports
// whether that is news. It is never sent, and goes with the prune, after its drain:
// requests may be on their way to it. A state-of-the-world client drops it with
// the next response.
func (s *session) leftover(t schema.Type, req *request, listed schema.Set) bool {
	if req.of != delta || !t.FullState() || s.trusts(t) {
		return false
	}
	ts, target := &s.types[t], s.target.Snapshot.Of(t)
	supposed := s.held.Of(t).Union(s.maybe.Of(t))
	var left []*schema.Resource
	for _, k := range s.target.Known {
		for r, now := range schema.Diff(k.Of(t), listed.Union(target)) {
			if now == nil && supposed.Get(r.Name) == nil && ts.sub.Covers(r.Name) {
				left = append(left, r)
			}
		}
	}
	return s.leave(t, unsent(schema.SetOf(left...)))
}

// leave has names go with the prune, and reports whether there are any.
func (s *session) leave(t schema.Type, names schema.Set) bool {
	s.types[t].unknown = s.types[t].unknown.Union(names)
	s.held = s.held.Replace(t, s.held.Of(t).Union(names))
	return names.Len() > 0
}

// betrayed takes in the clusters that a delta client does not list, and has: it
// asks for their endpoints. It reports whether there are any.
func (s *session) betrayed() bool {
	t := schema.Clusters
	clusters, endpoints := &s.types[t], s.types[schema.Endpoints].sub
	if s.target.Client != schema.Envoy || s.path == nil || clusters.sub == nil || clusters.stream.of != delta || endpoints == nil {
		return false
	}
	supposed := s.held.Of(t).Union(s.maybe.Of(t)).Union(s.target.Snapshot.Of(t))
	var strange []string
	for _, name := range endpoints.Names {
		// Most clusters are named as their endpoints.
		if c := supposed.Get(name); c == nil || !takes(c, name) {
			strange = append(strange, name)
		}
	}
	if len(strange) == 0 {
		return false
	}
	listed := refsTo(schema.Endpoints, supposed, schema.Set{})
	var names []*schema.Resource
	for _, name := range strange {
		if listed.Get(name) != nil {
			continue
		}
		for _, k := range s.trail() {
			for c := range k.Of(t).All() {
				if supposed.Get(c.Name) == nil && takes(c, name) {
					names = append(names, c)
				}
			}
		}
	}
	return s.leave(t, unsent(schema.SetOf(names...)))
}

// takes reports whether a cluster has its endpoints by a name.
func takes(cluster *schema.Resource, name string) bool {
	return slices.ContainsFunc(cluster.Refs, func(ref schema.Ref) bool { return ref.Type == schema.Endpoints && ref.Name == name })
}

// giveUp keeps in mind what the client refused, the target does not want, and
// something else stands for: whatever it accepts next, its path does not come back
// to that.
func (s *session) giveUp(t schema.Type) {
	ts := &s.types[t]
	for name, v := range ts.refused.versions {
		old, w := s.facts.Types[t].Acked.Get(name), s.target.Snapshot.Of(t).Get(name)
		if old == nil {
			old = ts.before.Get(name)
		}
		if !t.Live() && ts.refused.blames(name) && (w == nil || w.Version != v) && s.carries(t, name, v) && old != nil && old.Version != v {
			ts.avoid(name, v)
		}
	}
}

// carries reports whether the path has a version only because the client may hold
// it. What a path makes on its way, like a warm table, is no version of the target
// either, and there is no way without it.
func (s *session) carries(t schema.Type, name string, v schema.Version) bool {
	r := s.path.From.Of(t).Get(name)
	return r != nil && r.Version == v
}

// disproved forgets that the client may hold what was given up, now that it has
// accepted what stands in for that, and reports whether its path waits for it.
func (s *session) disproved(t schema.Type) (found bool) {
	ts, acked := &s.types[t], s.facts.Types[t].Acked
	for name, vs := range ts.never {
		has, carried := acked.Get(name), s.path.From.Of(t).Get(name)
		if has == nil || carried == nil || has.Version == carried.Version || !slices.Contains(vs, carried.Version) || ts.unknown.Get(name) != nil || !s.awaits(carried) {
			continue
		}
		s.maybe = s.maybe.Replace(t, s.maybe.Of(t).Without(name))
		found = true
	}
	return found
}

// awaits reports whether a gate of the path, that is not behind the session, waits
// for the ACK of a resource in its version.
func (s *session) awaits(r *schema.Resource) bool {
	return slices.ContainsFunc(s.path.Stages[min(max(s.at, 0), len(s.path.Stages)):], func(st schema.Stage) bool {
		return slices.ContainsFunc(st.Wants, func(w schema.Want) bool { return w.Key == r.Key && w.Version == r.Version })
	})
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

// unsent are the names of a set, that a path can carry to its prune, in no version
// and without anything to send.
func unsent(set schema.Set) schema.Set {
	var names []*schema.Resource
	for r := range set.All() {
		names = append(names, schema.Restore(r.Key, "", nil, nil))
	}
	return schema.SetOf(names...)
}

// awaited are tables that a client asks for and does not hold: some listener, that
// it was sent before, warms until it has them (rule O7). Of those that it may have
// been sent with it, the least advanced that leads to nothing but what it has will
// do: it is changed when its turn comes. The same goes for clusters that a table of
// a gRPC client names.
func (s *session) awaited(t schema.Type, listed schema.Set) schema.Set {
	clusters := s.facts.Types[schema.Clusters].Acked
	if s.types[schema.Clusters].sub == nil || s.target.Client == schema.GRPC {
		clusters = clusters.Union(s.held.Of(schema.Clusters).Filter(whole))
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
