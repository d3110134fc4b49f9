package planner

import (
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
	b.way = wayOf(from, to)

	b.make()
	b.path.Converged = len(b.path.Stages)
	for i := range b.way.steps {
		st := &b.way.steps[i]
		b.take(st)
		if st.kind <= schema.SwitchRoutes {
			b.path.Converged = len(b.path.Stages)
		}
	}
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
	way     *way
	spare   wants // room for those of the next stage
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
	moves := moves(b.now, next, w)
	for _, t := range schema.AllTypes() {
		if moves[t] {
			b.certain = b.certain.Replace(t, next.Of(t))
		}
	}
	b.path.Stages = append(b.path.Stages, schema.Stage{
		Kind: kind, Snapshot: next, Moves: moves, Wants: w.list(b.certain, next, b.target),
	})
	b.now, b.spare = next, w[:0]
}

// moves are the types that a step changes, or waits for.
func moves(now, next schema.Snapshot, w wants) [schema.NumTypes]bool {
	var m [schema.NumTypes]bool
	for _, t := range schema.AllTypes() {
		m[t] = !next.Of(t).Equal(now.Of(t))
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

// take makes a stage of a step of the way.
func (b *builder) take(st *step) {
	next := b.now
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		next = next.Replace(t, st.sets.Of(t))
	}
	w := append(b.spare, st.wants...)
	for _, k := range st.parts {
		if to := next.Get(k); same(b.certain.Get(k), to) {
			w.add(to)
		}
	}
	for _, name := range st.clusters {
		b.ready(&w, next, name)
	}
	b.stage(st.kind, next, w)
}

// prune removes what is left over, after the drain.
func (b *builder) prune() {
	if b.target.Equal(b.now) {
		return
	}
	st := schema.Stage{Kind: schema.Prune, Snapshot: b.target, Moves: moves(b.now, b.target, nil), Drain: b.drain()}
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
