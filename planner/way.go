package planner

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// way is what a path does to listeners and routes, and what it asks of those and of
// what they lead to. It depends on nothing else that a session holds: classes of
// sessions that differ in their clusters go one way, found once for a target.
type way struct {
	gains map[string]bool // clusters that a route gains weight on
	steps []step
}

// step is what a stage is to listeners and routes.
type step struct {
	kind schema.StageKind
	sets schema.Snapshot // of those types alone
	// wants are of those types, and of live ones.
	wants wants
	// parts are extensions that wanted ones name: wanted where they do not change.
	parts []schema.Key
	// clusters are wanted with what they lead to.
	clusters []string
}

// wayKey is all that a way depends on.
type wayKey struct {
	acked, maybe, target [schema.Runtimes - schema.Listeners]schema.Sum
	client               schema.Client
}

// wayOf is the way from a state to a target.
func wayOf(from schema.State, to *schema.Target) *way {
	var k wayKey
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		i := t - schema.Listeners
		k.acked[i], k.maybe[i], k.target[i] = from.Acked.Of(t).Sum(), from.Maybe.Of(t).Sum(), to.Snapshot.Of(t).Sum()
	}
	k.client = to.Client
	return to.Memory.Derive(k, func() any {
		return findWay(schema.State{Acked: leading(from.Acked), Maybe: leading(from.Maybe)}, leading(to.Snapshot), to.Client)
	}).(*way)
}

// leading is a snapshot without all but listeners and routes.
func leading(s schema.Snapshot) (only schema.Snapshot) {
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		only = only.Replace(t, s.Of(t))
	}
	return only
}

// finder finds a way. Its snapshots hold listeners and routes alone.
type finder struct {
	way    *way
	client schema.Client
	from   schema.State
	target schema.Snapshot
	// certain and now are those of a builder.
	certain, now schema.Snapshot

	// Of gRPC clients:
	befores  map[string][]*schema.Resource // the tables whose place one of the target's takes
	accepted map[string]bool               // tables of which only warm routes remain to be dropped
}

func findWay(from schema.State, target schema.Snapshot, client schema.Client) *way {
	f := finder{way: &way{}, client: client, from: from, target: target, certain: certain(from), now: from.Acked.Union(from.Maybe)}
	f.way.gains = f.gaining()
	if client == schema.GRPC {
		f.befores = f.replaced()
	}
	f.warm()
	tables := f.tables()
	f.makeListeners(tables)
	f.switchRoutes(tables)
	f.unlisten()
	f.cool()
	return f.way
}

// step appends one, unless it would neither change anything nor wait for anything.
// Behind it, as behind a stage, the session is sure to hold what it asks for.
func (f *finder) step(st step) {
	if st.sets.Equal(f.now) && len(st.wants) == 0 {
		return
	}
	moves := moves(f.now, st.sets, st.wants)
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		if moves[t] {
			f.certain = f.certain.Replace(t, st.sets.Of(t))
		}
	}
	slices.Sort(st.clusters)
	st.clusters = slices.Compact(st.clusters)
	f.way.steps = append(f.way.steps, st)
	f.now = st.sets
}

// makeWay are the session's listeners without those that go and whose address
// one of the target's has: two cannot have one address, so they make way in the
// response that brings the other (rule P4).
func (f *finder) makeWay() schema.Set {
	stay, target := f.now.Of(schema.Listeners), f.target.Of(schema.Listeners)
	var bound map[string]string
	for old, l := range schema.Diff(stay, target) {
		if l != nil {
			continue
		}
		if bound == nil {
			bound = boundBy(target)
		}
		if addresses, err := addressesOf(old); err == nil && slices.ContainsFunc(addresses, func(a string) bool { return bound[a] != "" }) {
			stay = stay.Without(old.Name)
		}
	}
	return stay
}

// makeListeners adds and changes listeners, and brings the route tables that the
// session is not sure to have: a new listener's ACK may wait for them.
func (f *finder) makeListeners(tables schema.Snapshot) {
	stay := f.makeWay()
	next := f.now.Replace(schema.Listeners, stay.Union(f.target.Of(schema.Listeners)))
	var w wants
	f.lacks(&w, next.Of(schema.Listeners), schema.Listeners)
	for _, t := range routed {
		var bring []*schema.Resource
		for old, r := range schema.Diff(f.from.Acked.Of(t), tables.Of(t)) {
			if stands := f.now.Get(keyOf(old, r)); old != nil || stands != nil && stands.Version != r.Version {
				continue // in place: its turn comes with the routes
			}
			bring = append(bring, r)
			if !same(f.certain.Get(r.Key), r) {
				w.add(r)
			}
		}
		next = next.Replace(t, next.Of(t).Union(schema.SetOf(bring...)))
	}
	st := step{kind: schema.MakeListeners, sets: next, wants: w}
	f.follow(&st)
	if f.client == schema.GRPC {
		st.comes()
	}
	f.step(st)
}

// switchRoutes serves the target's routes.
func (f *finder) switchRoutes(tables schema.Snapshot) {
	next := f.now
	var w wants
	for _, t := range routed {
		next = next.Replace(t, next.Of(t).Union(tables.Of(t)))
		f.lacks(&w, next.Of(t), t)
	}
	w = slices.DeleteFunc(w, func(want schema.Want) bool { return want.Type == schema.Routes && f.accepted[want.Name] })
	st := step{kind: schema.SwitchRoutes, sets: next, wants: w}
	f.follow(&st)
	f.step(st)
}

// follow wants what wanted listeners and scoped routes are made of: tables,
// secrets and extensions. A client that holds the parent may have had no use for
// the child before, and so never have asked for it.
func (f *finder) follow(st *step) {
	for _, want := range st.wants {
		if want.Type != schema.Listeners && want.Type != schema.ScopedRoutes {
			continue
		}
		r := st.sets.Get(want.Key)
		st.wants.children(r)
		for _, ref := range r.Refs {
			switch {
			case ref.Edge != schema.Child || ref.Type.Live():
			case ref.Type < schema.Listeners || ref.Type >= schema.Runtimes:
				st.parts = append(st.parts, ref.Key)
			default:
				if to := st.sets.Get(ref.Key); same(f.certain.Get(ref.Key), to) {
					st.wants.add(to)
				}
			}
		}
	}
}

// lacks wants what the target has of a type, in the version that a step brings
// it, and the session is not sure to hold. What only stands in the step and is
// not the target's may have been refused: it is not waited for.
func (f *finder) lacks(w *wants, next schema.Set, t schema.Type) {
	for _, r := range schema.Diff(f.certain.Of(t), next) {
		if r != nil && f.target.Get(r.Key) != nil {
			w.add(r)
		}
	}
}

// unlisten drops the listeners that the target lacks, and the routes that only
// they used.
func (f *finder) unlisten() {
	next := f.now.Replace(schema.Listeners, f.target.Of(schema.Listeners))
	for _, t := range routed {
		for old, r := range schema.Diff(f.now.Of(t), f.target.Of(t)) {
			if r == nil {
				next = next.Replace(t, next.Of(t).Without(old.Name))
			}
		}
	}
	f.step(step{kind: schema.Unlisten, sets: next})
}

// cool drops the warm routes.
func (f *finder) cool() {
	next := f.now
	var w wants
	for _, t := range routed {
		next = next.Replace(t, f.target.Of(t))
		f.lacks(&w, next.Of(t), t)
	}
	f.step(step{kind: schema.Cool, sets: next, wants: w})
}
