package planner

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// made are the types of the first stage: what nothing is sent to before
// something else refers to it.
var made = [...]schema.Type{schema.Clusters, schema.Endpoints, schema.Secrets, schema.Extensions, schema.Runtimes}

// routed are the types that decide where a request goes.
var routed = [...]schema.Type{schema.ScopedRoutes, schema.Routes, schema.VirtualHosts}

// NewPath plans the way of a session from a state to a target, in the stages of
// rule P1. A session that is blank orders itself and has no stages, and neither
// has one that is known to hold the target.
//
// Where a session may hold two versions of a resource, the newer stands for it
// until its own stage comes: to send the older again would only move it back and
// forth. Whatever either version refers to is kept until the prune (rule P3).
//
// A blank session may be left with something all the same, that nothing refers to
// and that nobody has told it to drop: that is pruned.
func NewPath(from schema.State, to *schema.Target) *schema.Path {
	b := builder{path: &schema.Path{Target: to}, from: from, target: to.Snapshot}
	if from.Blank {
		if from.Acked.Len() > 0 {
			b.now = from.Acked.Union(to.Snapshot)
			b.path.From = b.now
			b.prune()
		}
		return b.path
	}
	for _, t := range schema.AllTypes() {
		to.Snapshot.Of(t).Succeed(from.Acked.Of(t))
	}
	b.certain = certain(from)
	b.now = from.Acked.Union(from.Maybe)
	b.path.From = b.now
	b.gains = b.gaining()

	b.make()
	if to.Client == schema.GRPC {
		b.befores = b.replaced()
	}
	b.warm()
	tables := b.tables()
	b.makeListeners(tables)
	b.switchRoutes(tables)
	b.path.Converged = len(b.path.Stages)
	b.unlisten()
	b.cool()
	b.prune()
	return b.path
}

type builder struct {
	path   *schema.Path
	from   schema.State
	target schema.Snapshot
	// certain is what the session holds at the last stage whatever it did with
	// what is not acknowledged.
	certain schema.Snapshot
	now     schema.Snapshot // of the last stage
	gains   map[string]bool // clusters that a route gains weight on

	// Of gRPC clients:
	befores  map[string][]*schema.Resource // the tables whose place one of the target's takes
	accepted map[string]bool               // tables of which only warm routes remain to be dropped
}

// certain is what was acknowledged and is not touched by what may have been
// applied since.
func certain(from schema.State) schema.Snapshot {
	sure := from.Acked
	for _, t := range schema.AllTypes() {
		if from.Maybe.Of(t).Len() == 0 {
			continue // nothing of the type was sent since
		}
		for old, r := range schema.Diff(from.Acked.Of(t), from.Maybe.Of(t)) {
			// What a response leaves out is removed only if it is the whole
			// truth (rule S7).
			if old != nil && (r != nil || t.FullState()) {
				sure = sure.Replace(t, sure.Of(t).Without(old.Name))
			}
		}
	}
	return sure
}

// stage appends a step, unless it would neither change anything nor wait for
// anything. Of the types that it moves, the session is sure to hold what it asks
// for once the gate opens.
func (b *builder) stage(kind schema.StageKind, next schema.Snapshot, w wants) {
	if next.Equal(b.now) && len(w) == 0 {
		return
	}
	moves := b.moves(next, w)
	for _, t := range schema.AllTypes() {
		if moves[t] {
			b.certain = b.certain.Replace(t, next.Of(t))
		}
	}
	b.path.Stages = append(b.path.Stages, schema.Stage{
		Kind: kind, Snapshot: next, Moves: moves, Wants: w.list(b.certain, next, b.target),
	})
	b.now = next
}

// moves are the types that a step changes, or waits for.
func (b *builder) moves(next schema.Snapshot, w wants) [schema.NumTypes]bool {
	var m [schema.NumTypes]bool
	for _, t := range schema.AllTypes() {
		m[t] = !next.Of(t).Equal(b.now.Of(t))
	}
	for _, want := range w {
		m[want.Type] = true
	}
	return m
}

// make adds and changes what is sent to.
func (b *builder) make() {
	next := b.now
	for _, t := range made {
		next = next.Replace(t, next.Of(t).Union(b.target.Of(t)))
	}
	b.stage(schema.Make, next, b.makes(next))
}

// makeWay are the session's listeners without those that go and whose address
// one of the target's has: two cannot have one address, so they make way in the
// response that brings the other (rule P4).
func (b *builder) makeWay() schema.Set {
	stay, target := b.now.Of(schema.Listeners), b.target.Of(schema.Listeners)
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
func (b *builder) makeListeners(tables schema.Snapshot) {
	stay := b.makeWay()
	next := b.now.Replace(schema.Listeners, stay.Union(b.target.Of(schema.Listeners)))
	var w wants
	b.lacks(&w, next.Of(schema.Listeners), schema.Listeners)
	for _, t := range routed {
		var bring []*schema.Resource
		for old, r := range schema.Diff(b.from.Acked.Of(t), tables.Of(t)) {
			if stands := b.now.Get(keyOf(old, r)); old != nil || stands != nil && stands.Version != r.Version {
				continue // in place: its turn comes with the routes
			}
			bring = append(bring, r)
			if !same(b.certain.Get(r.Key), r) {
				w.add(r)
			}
		}
		next = next.Replace(t, next.Of(t).Union(schema.SetOf(bring...)))
	}
	b.follow(&w, next)
	if b.path.Target.Client == schema.GRPC {
		b.comes(&w, next)
	}
	b.stage(schema.MakeListeners, next, w)
}

// switchRoutes serves the target's routes.
func (b *builder) switchRoutes(tables schema.Snapshot) {
	next := b.now
	var w wants
	for _, t := range routed {
		next = next.Replace(t, next.Of(t).Union(tables.Of(t)))
		b.lacks(&w, next.Of(t), t)
	}
	w = slices.DeleteFunc(w, func(want schema.Want) bool { return want.Type == schema.Routes && b.accepted[want.Name] })
	b.follow(&w, next)
	b.stage(schema.SwitchRoutes, next, w)
}

// lacks wants what the target has of a type, in the version that a step brings
// it, and the session is not sure to hold. What only stands in the step and is
// not the target's may have been refused: it is not waited for.
func (b *builder) lacks(w *wants, next schema.Set, t schema.Type) {
	for _, r := range schema.Diff(b.certain.Of(t), next) {
		if r != nil && b.target.Get(r.Key) != nil {
			w.add(r)
		}
	}
}

// unlisten drops the listeners that the target lacks, and the routes that only
// they used.
func (b *builder) unlisten() {
	next := b.now.Replace(schema.Listeners, b.target.Of(schema.Listeners))
	for _, t := range routed {
		for old, r := range schema.Diff(b.now.Of(t), b.target.Of(t)) {
			if r == nil {
				next = next.Replace(t, next.Of(t).Without(old.Name))
			}
		}
	}
	b.stage(schema.Unlisten, next, nil)
}

// cool drops the warm routes.
func (b *builder) cool() {
	next := b.now
	var w wants
	for _, t := range routed {
		next = next.Replace(t, b.target.Of(t))
		b.lacks(&w, next.Of(t), t)
	}
	b.stage(schema.Cool, next, w)
}

// prune removes what is left over, after the drain.
func (b *builder) prune() {
	if b.target.Equal(b.now) {
		return
	}
	st := schema.Stage{Kind: schema.Prune, Snapshot: b.target, Moves: b.moves(b.target, nil), Drain: b.drain()}
	for old, r := range schema.DiffAll(b.now, b.target) {
		if r == nil {
			st.Unused = append(st.Unused, old.Key)
		}
	}
	b.path.Stages = append(b.path.Stages, st)
	b.now = b.target
}

// Drain times, from Envoy's --drain-time-s (600 s, for connections of a drained
// listener) and a margin for requests that were routed before the switch.
const (
	drainListener = 600 * time.Second
	drainRoute    = 5 * time.Second
)

// drain is how long what goes must outlive the last reference to it (rule O10).
// A path that begins behind the change of a listener knows of it by what else
// the target's sessions may have held.
func (b *builder) drain() time.Duration {
	to := b.path.Target
	switch {
	case to.Drain >= 0:
		return to.Drain
	case to.Client == schema.GRPC:
		return 0
	}
	once := append([]schema.Snapshot{b.from.Acked, b.from.Maybe}, to.Known...)
	for _, s := range once {
		for old := range schema.Diff(s.Of(schema.Listeners), b.target.Of(schema.Listeners)) {
			if old != nil && b.leads(old, once) {
				return drainListener
			}
		}
	}
	return drainRoute
}

// leads reports whether r once led to what the prune removes. It does not through
// what the target has too: a listener that drains follows its table.
func (b *builder) leads(r *schema.Resource, once []schema.Snapshot) bool {
	for _, ref := range r.Refs {
		switch {
		case ref.Edge == schema.Optional || b.target.Get(ref.Key) != nil:
		case ref.Type < schema.Listeners:
			if b.now.Get(ref.Key) != nil {
				return true
			}
		default:
			for _, s := range once {
				if to := s.Get(ref.Key); to != nil && b.leads(to, once) {
					return true
				}
			}
		}
	}
	return false
}

func keyOf(a, b *schema.Resource) schema.Key {
	if b != nil {
		return b.Key
	}
	return a.Key
}

func same(a, b *schema.Resource) bool { return a != nil && b != nil && a.Version == b.Version }
