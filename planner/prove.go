package planner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// Level says how sure it is that a step may follow the one before (rule P9).
type Level uint8

// The levels, the surest first.
const (
	Warmed   Level = iota // the client proves that what it was sent is ready
	Acked                 // it proves that what it was sent is valid
	Timed                 // only time speaks
	Unproven              // some reference cannot be followed
)

func (l Level) String() string { return [...]string{"warm", "acked", "timed", "unproven"}[l] }

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Proof is what holds along a path.
type Proof struct {
	// Levels are those of the stages, in order.
	Levels []Level
	// Open are references that lead out of some snapshot of the path: there must
	// be none.
	Open []Opening
}

// Opening is a reference that dangles at a stage.
type Opening struct {
	Stage schema.StageKind
	schema.Dangle
}

// Prove checks a whole path. live holds the bodies of live types.
func Prove(p *schema.Path, live schema.Snapshot) (Proof, []Hazard) {
	var proof Proof
	var hs hazards
	doubts := hs.unprovable(p)
	hs.empties(p, live)
	hs.listeners(p)
	hs.clusters(p)
	hs.filterOrders(p)
	hs.fetches(p)
	hs.chosen(p)
	hs.routes(p)
	for i := range p.Stages {
		st := &p.Stages[i]
		l := level(st, p.Target.Client)
		if slices.ContainsFunc(st.Wants, func(w schema.Want) bool { return doubts[w.Key] }) {
			l = Unproven
		}
		proof.Levels = append(proof.Levels, l)
	}
	proof.Open = openings(p)
	return proof, hs.sorted()
}

// level is what the gate behind a stage proves: a CDS ACK of Envoy, that the
// clusters are warm; a gRPC client's, that they are valid (rules O2, S13).
func level(st *schema.Stage, c schema.Client) Level {
	switch {
	case st.Drain > 0:
		return Timed
	case st.Kind == schema.Make && c == schema.Envoy:
		return Warmed
	}
	return Acked
}

// empties finds clusters that a route gains weight on although no request could
// be sent to them (rule P14).
func (hs *hazards) empties(p *schema.Path, live schema.Snapshot) {
	seen := map[schema.Key]bool{}
	for _, st := range p.Stages {
		for _, w := range st.Wants {
			if !w.Usable || seen[w.Key] {
				continue
			}
			seen[w.Key] = true
			if !usable(p.Target.Snapshot, live, w.Key, nil) {
				hs.add("empty-cluster", w.Key, "add a healthy endpoint to the service first, or leave the weight where it is",
					"a route gains weight on %s, which has no endpoint that could answer", w.Name)
			}
		}
	}
}

// usable reports whether some request could be sent to endpoints, or to a
// cluster: one without endpoints here, such as a DNS one, is exempt.
func usable(s, live schema.Snapshot, k schema.Key, above []schema.Key) bool {
	if k.Type == schema.Endpoints {
		r := live.Get(k)
		return r != nil && r.Usable
	}
	r := s.Get(k)
	if r == nil || slices.Contains(above, k) {
		return false
	}
	judged := false
	for _, ref := range r.Refs {
		if ref.Type == schema.Endpoints || ref.Type == schema.Clusters && ref.Edge == schema.Traffic {
			judged = true
			if usable(s, live, ref.Key, append(above, k)) {
				return true
			}
		}
	}
	return !judged
}

// unprovable reports, for what the path adds or changes, references that no
// reading of the message can follow, and which resources have some.
func (hs *hazards) unprovable(p *schema.Path) map[schema.Key]bool {
	seen := map[schema.Key]bool{} // true for those with doubts
	for _, st := range p.Stages {
		for _, w := range st.Wants {
			r := p.Target.Snapshot.Get(w.Key)
			if _, ok := seen[w.Key]; ok || r == nil || w.Type.Live() {
				continue
			}
			seen[w.Key] = false
			doubt := func(format string, args ...any) {
				seen[w.Key] = true
				hs.add("unproven", w.Key, "see to it that what it may refer to is there before it is served",
					"%s%s", w.Key, fmt.Sprintf(format, args...))
			}
			doubts, err := doubtsOf(r)
			if err != nil {
				doubt(" cannot be read: %v", err)
				continue
			}
			for _, why := range doubts {
				doubt(": %s", why)
			}
		}
	}
	return seen
}

// openings finds what dangles at each stage. Snapshots of a path are mostly the
// target's, of which the referrers are known: only what differs is looked at.
func openings(p *schema.Path) []Opening {
	target := p.Target.Snapshot
	open := map[schema.Ref]map[*schema.Resource]bool{}
	for _, d := range target.Dangling() {
		opened(open, target, d.To.Key, []*schema.Resource{d.From})
	}
	var out []Opening
	prev := target
	for i := schema.Before; i < len(p.Stages); i++ {
		next := p.At(i)
		reopen(open, prev, next, target)
		prev = next
		if i < 0 {
			continue
		}
		first := len(out)
		for ref, from := range open {
			for r := range from {
				out = append(out, Opening{p.Stages[i].Kind, schema.Dangle{From: r, To: ref}})
			}
		}
		slices.SortFunc(out[first:], func(a, b Opening) int {
			return cmp.Or(a.From.Key.Compare(b.From.Key), a.To.Key.Compare(b.To.Key))
		})
	}
	return out
}

// opened notes those of some resources that refer to k, which s lacks.
func opened(open map[schema.Ref]map[*schema.Resource]bool, s schema.Snapshot, k schema.Key, from []*schema.Resource) {
	for _, r := range from {
		if !same(s.Get(r.Key), r) {
			continue
		}
		for _, ref := range r.Refs {
			if ref.Key != k || ref.Edge == schema.Optional {
				continue
			}
			if open[ref] == nil {
				open[ref] = map[*schema.Resource]bool{}
			}
			open[ref][r] = true
		}
	}
}

// reopen makes what dangles in a snapshot of what dangles in another.
func reopen(open map[schema.Ref]map[*schema.Resource]bool, prev, next, target schema.Snapshot) {
	var came []*schema.Resource
	gone := map[schema.Key]bool{}
	for old, r := range schema.DiffAll(prev, next) {
		if r != nil {
			came = append(came, r)
		} else {
			gone[old.Key] = true
		}
	}
	for ref, from := range open {
		for r := range from {
			if next.Get(ref.Key) != nil || !same(next.Get(r.Key), r) {
				delete(from, r)
			}
		}
		if len(from) == 0 {
			delete(open, ref)
		}
	}
	for _, r := range came {
		for _, ref := range r.Refs {
			if next.Get(ref.Key) == nil {
				opened(open, next, ref.Key, []*schema.Resource{r})
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, t := range schema.AllTypes() {
		for k := range gone {
			opened(open, next, k, target.Of(t).Referrers(k))
		}
		for _, r := range schema.Diff(target.Of(t), next.Of(t)) {
			if r == nil {
				continue
			}
			for _, ref := range r.Refs {
				if gone[ref.Key] {
					opened(open, next, ref.Key, []*schema.Resource{r})
				}
			}
		}
	}
}
