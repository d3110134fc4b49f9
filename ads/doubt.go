package ads

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// What a client may hold and does not say (rule D9). It reports what it accepted:
// of a response that it refused it has applied what was good, and removed what was
// to go, and does not mention either when it comes back.

// doubt is why a client's word for what it holds of a type proves nothing: parts
// of a response that it refused may have been applied (rule D9).
type doubt uint8

const (
	noDoubt doubt = iota
	// unmet: this server has not sent it anything yet, and another may have.
	unmet
	// wanting: its stream ended before it was sent what it waits for. What it says
	// that it holds is true, and must be sent again.
	wanting
	// unanswered: whether it refused its last response was never heard.
	unanswered
	refused
)

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
	why := noDoubt
	if f.InFlight && s.divisible(t) {
		why = unanswered
	}
	switch t {
	case schema.Endpoints:
		why = noDoubt
		if s.waiting().Len() > 0 || f.Flight.Len() > 0 {
			why = unanswered
		}
	case schema.Routes: // it asked for none
		sent := f.Sub != nil || s.types[schema.Listeners].nonce != 0
		if sent && f.Acked.Len() == 0 && !f.InFlight && s.lacks(schema.Listeners, t).Len() > 0 {
			why = wanting
		}
	}
	if why > s.srv.memory.doubt(s.node.ID, t) {
		s.srv.memory.record(s.node.ID, t, why)
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
	return s.pruneLater(t, unsent(schema.SetOf(left...)))
}

// pruneLater has names go with the prune, and reports whether there are any.
func (s *session) pruneLater(t schema.Type, names schema.Set) bool {
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
	return s.pruneLater(t, unsent(schema.SetOf(names...)))
}

// takes reports whether a cluster has its endpoints by a name.
func takes(cluster *schema.Resource, name string) bool {
	return slices.ContainsFunc(cluster.Refs, func(ref schema.Ref) bool { return ref.Type == schema.Endpoints && ref.Name == name })
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
