//go:build e2e

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// Of replays.
const (
	replayGroup = "nodes"
	replayDrain = 50 * time.Millisecond
	// replayLate is how long endpoints are away that come late, and replayWait how
	// long a wrong order waits between its two steps.
	replayLate = 250 * time.Millisecond
	replayWait = 150 * time.Millisecond
)

// replay is one small change, and the order in which it is served.
type replay struct {
	seed          uint64
	words         string
	before, after conf
	late          bool   // the endpoints of fresh come a moment after the rest
	fresh         string // the cluster that is new, if one is
	order         order
}

// order makes the path to the target of a replay. The zero plan is the planner's.
type order struct {
	name string
	plan plan
}

const noListener = "no listener"

var (
	proved = order{name: "proved"}
	orders = []order{
		{"clusters first", func(from schema.State, to *schema.Target) *schema.Path {
			return twoSteps(from, to, withOld(from, to, schema.Listeners, schema.Routes))
		}},
		{"routes first", func(from schema.State, to *schema.Target) *schema.Path {
			return twoSteps(from, to, withOld(from, to, schema.Clusters, schema.Endpoints))
		}},
		{noListener, func(from schema.State, to *schema.Target) *schema.Path {
			return twoSteps(from, to, withOld(from, to, schema.Routes).Replace(schema.Listeners, schema.Set{}))
		}},
	}
	ungated = order{"ungated", func(from schema.State, to *schema.Target) *schema.Path {
		return twoSteps(from, to, withOld(from, to, schema.Listeners, schema.Routes).Union(from.Acked))
	}}
)

// withOld is the target with some types as the session has them.
func withOld(from schema.State, to *schema.Target, types ...schema.Type) schema.Snapshot {
	holds := from.Acked.Union(from.Maybe)
	s := to.Snapshot
	for _, t := range types {
		s = s.Replace(t, holds.Of(t))
	}
	return s
}

// twoSteps serves first, waits, and serves the target. It asks for no more than
// the ACKs.
func twoSteps(from schema.State, to *schema.Target, first schema.Snapshot) *schema.Path {
	var all [schema.NumTypes]bool
	for i := range all {
		all[i] = true
	}
	return &schema.Path{Target: to, Converged: 2, From: from.Acked.Union(from.Maybe), Stages: []schema.Stage{
		{Kind: schema.Make, Snapshot: first, Moves: all},
		{Kind: schema.SwitchRoutes, Snapshot: to.Snapshot, Moves: all, Drain: replayWait},
	}}
}

// planned puts the order in the place of the planner's, on the way to one target:
// a session that holds nothing orders itself.
func (o order) planned(target func(schema.Snapshot) bool) func(plan) plan {
	return func(p plan) plan {
		return func(from schema.State, to *schema.Target) *schema.Path {
			if o.plan == nil || from.Blank || !target(to.Snapshot) || from.Acked.Of(schema.Routes).Len() == 0 {
				return p(from, to)
			}
			return o.plan(from, to)
		}
	}
}

// draw makes the replay of a seed. Tag begins the names of its clusters: a client
// that never forgets one must not have seen it.
func draw(seed uint64, tag string) replay {
	rng := rand.New(rand.NewPCG(seed, 7))
	a, b, c := tag+"-a", tag+"-b", tag+"-c"
	r := replay{seed: seed, order: proved, before: conf{
		clusters:  map[string]cluster{a: {eds: a}, b: {eds: b}},
		tables:    map[string][]route{"r": {{host: "*", path: "/", to: []string{a}}}},
		listeners: map[string]listener{"l": {table: "r"}},
	}}
	if rng.IntN(2) == 0 {
		r.before.tables["r"] = []route{{host: "*", path: "/p", to: []string{pick(rng, []string{a, b})}}, {host: "*", path: "/", to: []string{a}}}
	}
	r.after = r.before.clone()
	root := &r.after.tables["r"][len(r.after.tables["r"])-1]
	switch rng.IntN(6) {
	case 0:
		r.words, root.to = "move", []string{b}
	case 1:
		r.words, r.fresh, root.to = "add", c, []string{c}
	case 2:
		r.words, r.fresh = "replace", c
		r.after.replace(a, c)
		delete(r.after.clusters, a)
	case 3:
		r.words = "remove"
		r.after.replace(a, b)
		delete(r.after.clusters, a)
	case 4:
		r.words, root.to, root.weight = "split", []string{a, b}, 10+80*rng.IntN(2)
		if rng.IntN(2) == 0 {
			r.fresh, root.to[1] = c, c
		}
	default:
		r.words = "in place"
		r.after.clusters[a] = cluster{eds: a, version: 1}
	}
	if r.fresh != "" {
		r.after.clusters[c] = cluster{eds: c}
		r.late = rng.IntN(3) == 0
	}
	switch wrong := rng.IntN(2) == 0; {
	case wrong && r.late:
		r.order = ungated
	case wrong:
		r.order = pick(rng, orders)
	}
	if r.late {
		r.words += ", hosts late"
	}
	return r
}

// commits are what is merged, one after the other.
func (r replay) commits(t *team) []*commit {
	var out []*commit
	add := func(g conf, empty string) {
		n := len(out)
		c := &commit{id: fmt.Sprintf("%040d", n), number: n, groups: map[string]conf{t.name: g}, live: map[string]hosts{}}
		for name := range g.clusters {
			c.live[name] = hosts{empty: name == empty}
		}
		c.lower([]*team{t})
		out = append(out, c)
	}
	add(r.before, "")
	if r.late {
		add(r.after, r.fresh)
	}
	add(r.after, "")
	return out
}

// target reports whether a snapshot is what a replay leads to.
func (r replay) target(client schema.Client) func(schema.Snapshot) bool {
	after := r.after.snapshot(client)
	return func(s schema.Snapshot) bool { return s.Equal(after) }
}
