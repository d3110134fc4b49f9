package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// guide answers the wire: which target a node has, and what its path is. What it
// knows is replaced whole by the loop, and read by the owners of sessions.
type guide struct {
	plan  func(schema.State, *schema.Target) *schema.Path
	state atomic.Pointer[assignments]

	mu    sync.Mutex
	paths map[pathKey]func() *schema.Path // planned when the first asks
	spent map[turn]time.Duration          // on planning
}

// assignments are the targets of all groups at one moment.
type assignments struct {
	groups  []assignment // by rank
	waiting []assignment // groups that have nothing to give yet
}

type assignment struct {
	group schema.Group
	gone  bool
	// waits is why there is no target.
	waits  string
	target *schema.Target
	// fallback is what a session that begins is given in the place of a target
	// that is held: while the group is halted the base, and while it is paused
	// without a rollout the same, not held.
	fallback *schema.Target
}

type pathKey struct {
	acked, maybe schema.ID
	blank        bool
	target       *schema.Target
}

// turn is one generation of a group.
type turn struct {
	group      string
	generation uint64
}

// pathLimit bounds the paths that are remembered. A fleet is in a handful of
// states; one that is in more has some planned again.
const pathLimit = 1024

func newGuide(plan func(schema.State, *schema.Target) *schema.Path) *guide {
	return &guide{plan: plan, paths: map[pathKey]func() *schema.Path{}, spent: map[turn]time.Duration{}}
}

func (g *guide) set(groups, waiting []assignment) {
	byRank(groups)
	byRank(waiting)
	g.state.Store(&assignments{groups: groups, waiting: waiting})
	given, open := map[*schema.Target]bool{}, map[turn]bool{}
	for _, a := range groups {
		given[a.target], given[a.fallback] = true, true
		open[turn{a.group.Name, a.target.Generation}] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.paths, func(k pathKey, _ func() *schema.Path) bool { return !given[k.target] })
	maps.DeleteFunc(g.spent, func(k turn, _ time.Duration) bool { return !open[k] })
}

// byRank sorts groups by priority, the highest first. Of two that are equal one
// that the newest commit does not name gives way: it was renamed.
func byRank(all []assignment) {
	slices.SortFunc(all, func(a, b assignment) int {
		gone := func(a assignment) int {
			if a.gone {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(b.group.Priority, a.group.Priority), cmp.Compare(gone(a), gone(b)), cmp.Compare(a.group.Name, b.group.Name))
	})
}

// place finds the group of a node: the one that matches it with the highest
// priority (rule R1). It is nil if there is none.
func place(byRank []assignment, node schema.Node) (*assignment, error) {
	var found *assignment
	for i := range byRank {
		a := &byRank[i]
		switch {
		case node.Pinned != "":
			if a.group.Name == node.Pinned {
				return a, nil
			}
		case found != nil && (a.group.Priority != found.group.Priority || a.gone != found.gone):
			return found, nil
		case !a.group.Match.Matches(node):
		case found != nil:
			return nil, fmt.Errorf("node %q matches the groups %s and %s equally: give one of them a higher priority", node.ID, found.group.Name, a.group.Name)
		default:
			found = a
		}
	}
	return found, nil
}

// Placing finds the group of a node among groups, and among those that are gone,
// which give way to them (rule R1). The name is empty for one that no group has,
// and the error says why.
func Placing(groups, gone []schema.Group) func(schema.Node) (string, error) {
	var all assignments
	for _, g := range groups {
		all.groups = append(all.groups, assignment{group: g})
	}
	for _, g := range gone {
		all.groups = append(all.groups, assignment{group: g, gone: true})
	}
	byRank(all.groups)
	return func(node schema.Node) (string, error) {
		switch found, err := place(all.groups, node); {
		case err != nil:
			return "", err
		case found == nil:
			return "", all.nothingFor(node)
		default:
			return found.group.Name, nil
		}
	}
}

// notYet tells a client to come back.
type notYet string

func (e notYet) Error() string        { return string(e) }
func (e notYet) Is(target error) bool { return target == ads.ErrNotReady }

// Admit gives a node the target of its group; while that is held, perhaps the
// fallback, if it is not on its way already.
func (g *guide) Admit(node schema.Node, present *schema.Target) (*schema.Target, error) {
	st := g.state.Load()
	if st == nil {
		return nil, ads.ErrNotReady
	}
	found, err := place(st.groups, node)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, st.nothingFor(node)
	case found.fallback == nil,
		present != nil && present.Group == found.group.Name && present.Generation == found.target.Generation:
		return found.target, nil
	}
	return found.fallback, nil
}

// nothingFor says why a node is given nothing.
func (st *assignments) nothingFor(node schema.Node) error {
	for _, a := range st.waiting {
		switch {
		case !a.group.Match.Matches(node):
		case a.group.Unsupported != "":
			return fmt.Errorf("node %q is in group %s, which is not rolled out: %s are not supported yet", node.ID, a.group.Name, a.group.Unsupported)
		default:
			return notYet(fmt.Sprintf("there is nothing yet for node %q: its group %s %s", node.ID, a.group.Name, a.waits))
		}
	}
	return fmt.Errorf("no group matches node %q (cluster %q, zone %q, user agent %q): check groups.<name>.match", node.ID, node.Cluster, node.Zone, node.UserAgent)
}

// excludes reports whether a group has a node no more, by what was given out.
func (g *guide) excludes(group string, node schema.Node) bool {
	st := g.state.Load()
	if st == nil {
		return false
	}
	found, err := place(st.groups, node)
	return err != nil || found == nil || found.group.Name != group
}

// Path plans once for all sessions in one state: they wait for that plan, and for no
// other. In a rollout that is paused a session that holds nothing is one at the base,
// and is held there (rules R1, R7).
func (g *guide) Path(from schema.State, to *schema.Target) *schema.Path {
	if from.Blank && to.Hold && to.Base.Len() > 0 {
		from = schema.State{Acked: from.Acked.Union(to.Base)}
	}
	return g.planned(pathKey{from.Acked.ID(), from.Maybe.ID(), from.Blank, to}, from)()
}

// planned is the plan for a state, which whoever calls it first makes.
func (g *guide) planned(key pathKey, from schema.State) func() *schema.Path {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.paths[key]; p != nil {
		return p
	}
	if len(g.paths) >= pathLimit {
		for some := range g.paths { // any: a state that many are in is soon asked for again
			delete(g.paths, some)
			break
		}
	}
	p := sync.OnceValue(func() *schema.Path {
		began := time.Now()
		path := g.plan(from, key.target)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.spent[turn{key.target.Group, key.target.Generation}] += time.Since(began)
		return path
	})
	g.paths[key] = p
	return p
}

// Step is the planner's.
func (g *guide) Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	return planner.Step(p, at, f, now)
}

// planning is the time that was spent on planning for a group's generation.
func (g *guide) planning(group string, generation uint64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.spent[turn{group, generation}]
}
