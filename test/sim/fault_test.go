package sim

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/schema"
)

type plan = func(schema.State, *schema.Target) *schema.Path

// fault is something that a control plane could do wrong: it stands around what
// does it right. The zero fault does nothing.
type fault struct {
	name    string
	planned func(plan) plan
	guided  func(*history, ads.Guide) ads.Guide
	wire    func(*wire, *message) // changes what is sent
}

func (f fault) plan(p plan) plan {
	if f.planned == nil {
		return p
	}
	return f.planned(p)
}

func (f fault) around(h *history) func(ads.Guide) ads.Guide {
	return func(g ads.Guide) ads.Guide {
		if f.guided == nil {
			return g
		}
		return f.guided(h, g)
	}
}

// faults are those that the histories must find.
var faults = []fault{
	{name: "skip a gate", guided: func(_ *history, g ads.Guide) ads.Guide { return impatient{g} }},
	{name: "swap two stages", planned: changed(routesFirst)},
	{name: "prune early", planned: changed(pruneFirst)},
	{name: "forget what may have been applied", planned: func(p plan) plan {
		return func(from schema.State, to *schema.Target) *schema.Path {
			from.Maybe = schema.Snapshot{}
			return p(from, to)
		}
	}},
	{name: "forget to resend endpoints", wire: sendOnce},
	{name: "ignore the drain", planned: changed(func(p *schema.Path) {
		for i := range p.Stages {
			p.Stages[i].Drain, p.Stages[i].Unused = 0, nil
		}
	})},
	{name: "serve the target outside of its turn", guided: func(h *history, g ads.Guide) ads.Guide { return hasty{g, h} }},
}

// impatient opens the stage behind the one that makes clusters, acknowledged or
// not.
type impatient struct{ ads.Guide }

func (g impatient) Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	step := g.Guide.Step(p, at, f, now)
	if at >= 0 && at < len(p.Stages) && p.Stages[at].Kind == schema.Make && step.Verdict == schema.Wait && !step.Settled && !f.Hold {
		return schema.Step{Verdict: schema.Serve, Stage: at + 1, Settled: true}
	}
	return step
}

// hasty gives newcomers what the newest commit says, whoever comes before them.
type hasty struct {
	ads.Guide
	h *history
}

func (g hasty) Admit(node schema.Node, present *schema.Target) (*schema.Target, error) {
	to, err := g.Guide.Admit(node, present)
	if err != nil || present != nil {
		return to, err
	}
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	early := *to
	early.Snapshot = g.h.commits[len(g.h.commits)-1].fleet.Group(to.Group).Snapshot
	return &early, nil
}

// changed has paths changed before they are followed.
func changed(f func(*schema.Path)) func(plan) plan {
	return func(p plan) plan {
		return func(from schema.State, to *schema.Target) *schema.Path {
			path := *p(from, to)
			path.Stages = slices.Clone(path.Stages)
			f(&path)
			return &path
		}
	}
}

// routesFirst switches the routes before their clusters are made.
func routesFirst(p *schema.Path) {
	if len(p.Stages) == 0 || p.Stages[0].Kind != schema.Make {
		return
	}
	early := schema.Stage{Kind: schema.SwitchRoutes, Snapshot: p.From.Replace(schema.Routes, p.Target.Snapshot.Of(schema.Routes))}
	early.Moves[schema.Routes] = true
	p.Stages = slices.Insert(p.Stages, 0, early)
	p.Converged++
}

// pruneFirst drops what the target lacks as soon as what it adds is there.
func pruneFirst(p *schema.Path) {
	if len(p.Stages) == 0 {
		return
	}
	at := 0
	if p.Stages[0].Kind == schema.Make {
		at = 1
	}
	early := schema.Stage{Kind: schema.Prune, Snapshot: p.At(at-1).Replace(schema.Clusters, p.Target.Snapshot.Of(schema.Clusters))}
	early.Moves[schema.Clusters] = true
	p.Stages = slices.Insert(p.Stages, at, early)
	p.Converged++
}

// sendOnce leaves out of responses the endpoints that the stream has carried
// before and that have not changed.
func sendOnce(w *wire, m *message) {
	if m.t != schema.Endpoints {
		return
	}
	if w.told == nil {
		w.told = map[string]schema.Version{}
	}
	var items []*item
	var versions []string
	for i, it := range m.items {
		if w.told[it.Name] == it.Version {
			continue
		}
		w.told[it.Name] = it.Version
		items = append(items, it)
		if len(m.versions) > 0 {
			versions = append(versions, m.versions[i])
		}
	}
	m.items, m.versions = items, versions
}
