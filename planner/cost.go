package planner

import "github.com/sluice-xds/sluice/schema"

// Cost is what one session pays for a path (rule P12), if it subscribes to all
// that the path moves.
type Cost struct {
	Types []TypeCost // of the types that move, in their order
	// Drained are listeners that are replaced or removed: their connections end.
	Drained []schema.Key
	// Reset are clusters whose connections are closed.
	Reset []schema.Key
}

// TypeCost is the cost in responses of one type.
type TypeCost struct {
	Type      schema.Type
	Responses int
	// Changed is the size in bytes of the resources that the responses bring
	// anew, as delta sends them. Full is that of all resources in the responses,
	// as state of the world does. Live resources count with the bodies that are
	// known when the path is planned.
	Changed, Full int
}

// CostOf adds up what a path sends. live holds the bodies of live types.
func CostOf(p *schema.Path, live schema.Snapshot) Cost {
	var by [schema.NumTypes]TypeCost
	prev := p.From
	for i := range p.Stages {
		st := &p.Stages[i]
		for _, t := range schema.AllTypes() {
			if st.Moves[t] {
				by[t].add(st, prev, live, t)
			}
		}
		prev = st.Snapshot
	}
	var hs hazards
	c := Cost{Drained: hs.listeners(p), Reset: hs.clusters(p)}
	for t := range by {
		if by[t].Responses > 0 {
			by[t].Type = schema.Type(t)
			c.Types = append(c.Types, by[t])
		}
	}
	return c
}

// add counts the response of a stage.
func (c *TypeCost) add(st *schema.Stage, prev, live schema.Snapshot, t schema.Type) {
	next := st.Snapshot.Of(t)
	changed, removed := 0, 0
	for _, r := range schema.Diff(prev.Of(t), next) {
		switch {
		case r == nil:
			removed++
		case t.Live():
		default:
			changed += len(r.Chunk())
		}
	}
	if t.Live() {
		for _, w := range st.Wants {
			if r := live.Get(w.Key); w.Type == t && r != nil && sentAgain(w.Key, prev, st.Snapshot) {
				changed += len(r.Chunk())
			}
		}
	}
	if changed+removed == 0 {
		return // it only waits for what was sent before
	}
	c.Responses++
	c.Changed += changed
	if !t.FullState() {
		c.Full += changed
		return
	}
	for r := range next.All() {
		c.Full += len(r.Chunk())
	}
}

// sentAgain reports whether a live resource goes out with a stage: it is new, or
// what refers to it is, or changes (rule O5). Another stage only waits for it.
func sentAgain(k schema.Key, prev, next schema.Snapshot) bool {
	if prev.Get(k) == nil {
		return true
	}
	for t := range schema.NumTypes {
		for _, r := range next.Of(schema.Type(t)).Referrers(k) {
			if now := next.Get(r.Key); now != nil && !same(prev.Get(r.Key), now) {
				return true
			}
		}
	}
	return false
}
