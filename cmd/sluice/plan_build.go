package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// planInput is what a plan is made from.
type planInput struct {
	base, to planRevision
	fleet    *schema.Fleet // the plan's end
	groups   map[string]planBase
	live     bool          // the nodes are known
	nodes    []schema.Node // connected; if the plan may move them to other groups
	allow    []string
}

// planBase is what a group's nodes hold. Fleets are nil where there was nothing.
type planBase struct {
	fleet  *schema.Fleet // acknowledged
	under  *schema.Fleet // on its way: the nodes may hold some of it
	parked *schema.Fleet // aborted, and not tried again until it changes
	halt   *reconcile.Halt
	commit string
	state  string
	nodes  planNodes
	differ []planNode
	// requests are those of the nodes' last load reports, by cluster.
	requests map[string]uint64
}

// newPlan makes the document.
func newPlan(in *planInput) (*planDocument, error) {
	b := planBuilder{in: in, doc: &planDocument{
		FormatVersion: planFormat, Base: in.base, To: in.to, Groups: []planGroup{}, Paths: []planPath{},
		Traffic: []planTraffic{}, Tests: []planTest{}, Hazards: []planHazard{}, Proof: planProof{Closed: true, Gates: []planner.Level{}},
	}, acts: map[planAct]bool{}}
	for i := range in.fleet.Groups {
		if err := b.group(&in.fleet.Groups[i]); err != nil {
			return nil, err
		}
	}
	b.gone()
	b.matches()
	b.order()
	b.finish()
	return b.doc, nil
}

type planBuilder struct {
	in   *planInput
	doc  *planDocument
	keys []string // of doc.Paths, by content
	acts map[planAct]bool
}

// planAct is what becomes of a resource in some group.
type planAct struct {
	schema.Key
	action string
}

// side is one end of a group's path.
type side struct {
	fleet *schema.Fleet
	snap  schema.Snapshot
}

func sideOf(f *schema.Fleet, group string) side {
	if f == nil {
		return side{fleet: &schema.Fleet{}}
	}
	s := side{fleet: f}
	if g := f.Group(group); g != nil {
		s.snap = g.Snapshot
	}
	return s
}

// and is a side with the bodies of live types of later fleets: they went out at once.
func (s side) and(later ...*schema.Fleet) side {
	f := *s.fleet
	for _, l := range later {
		if l != nil {
			f.Live = f.Live.Union(l.Live)
		}
	}
	return side{&f, s.snap}
}

// stays reports whether a group that is halted, or was aborted, has refused just
// what it should have: that is not tried again by itself.
func (b *planBase) stays(g *schema.Group) bool {
	refused := b.parked
	if b.halt != nil && refused == nil {
		refused = b.under
	}
	if refused == nil {
		return false
	}
	was := refused.Group(g.Name)
	return was != nil && was.Client == g.Client && was.Snapshot.Equal(g.Snapshot)
}

func (b *planBuilder) group(g *schema.Group) error {
	base := b.in.groups[g.Name]
	from, to := sideOf(base.fleet, g.Name), side{b.in.fleet, g.Snapshot}
	under, retry := sideOf(base.under, g.Name), base.stays(g)
	row := planGroup{Name: g.Name, Client: g.Client, Base: base.commit, State: base.state, After: g.After, Retry: retry}
	if h := base.halt; h != nil {
		row.Halted = &planHalt{h.Commit, h.Stage, h.Node, h.Cause}
	}
	if base.parked != nil {
		row.Parked = base.parked.Commit
	}
	if base.under != nil {
		row.Under = base.under.Commit
	}
	if b.in.live {
		n := base.nodes
		row.Nodes, row.Differ = &n, base.differ
	}
	w := stageWriter{b: b, from: from.and(base.under, base.parked), to: to}
	w.from.snap = from.snap.Union(under.snap)
	if retry { // whoever holds some of it is led back first
		under.snap = schema.Snapshot{}
		w.from.snap = from.snap
	}
	path := planner.NewPath(schema.State{Acked: from.snap, Maybe: under.snap}, &schema.Target{
		Group: g.Name, Client: g.Client, Commit: b.in.fleet.Commit, Snapshot: g.Snapshot, Drain: g.Drain,
	})
	proof, hazards := planner.Prove(path, b.in.fleet.Live)
	p := planPath{Client: g.Client, Stages: w.stages(path, proof), Retry: retry, Live: w.live()}
	if retry { // what was refused is of interest, and not what it waits for
		p.Stages = slices.DeleteFunc(p.Stages, func(s planStage) bool { return len(s.Changes) == 0 })
	}
	if len(p.Stages)+len(p.Live) > 0 {
		row.Path, row.Cost = b.path(g.Name, p), costOf(path, b.in.fleet.Live)
		b.count(w.from, to, retry)
		b.tests(g.Name, path)
	}
	b.doc.Groups = append(b.doc.Groups, row)
	b.prove(g, proof, slices.Concat(hazards, planner.Emptied(w.from.snap, w.from.fleet.Live, to.fleet.Live), planner.Busy(path, base.requests)))
	return b.traffic(g.Name, w.from.snap, to.snap)
}

// path adds a path, or the group to an equal one.
func (b *planBuilder) path(group string, p planPath) *int {
	// Strings and numbers always encode.
	content, _ := json.Marshal(p)
	i := slices.Index(b.keys, string(content))
	if i < 0 {
		i = len(b.keys)
		b.keys = append(b.keys, string(content))
		b.doc.Paths = append(b.doc.Paths, p)
	}
	b.doc.Paths[i].Groups = append(b.doc.Paths[i].Groups, group)
	return &i
}

// count notes what becomes of each resource between the ends; of a retry, only
// what goes out without one.
func (b *planBuilder) count(from, to side, retry bool) {
	for old, r := range schema.DiffAll(from.snap, to.snap) {
		if retry {
			break
		}
		switch {
		case old == nil:
			b.acts[planAct{r.Key, actionAdd}] = true
		case r == nil:
			b.acts[planAct{old.Key, actionRemove}] = true
		default:
			b.acts[planAct{r.Key, actionChange}] = true
		}
	}
	for _, r := range liveChanges(from, to) {
		b.acts[planAct{r.Key, actionChange}] = true
	}
}

func (b *planBuilder) prove(g *schema.Group, proof planner.Proof, hazards []planner.Hazard) {
	doc, where := b.doc, b.in.fleet.Provenance
	for _, l := range proof.Levels {
		if !slices.Contains(doc.Proof.Gates, l) {
			doc.Proof.Gates = append(doc.Proof.Gates, l)
		}
	}
	for _, o := range proof.Open {
		doc.Proof.Closed = false
		doc.Proof.Open = append(doc.Proof.Open, planOpening{[]string{g.Name}, o.Stage, o.From.Key, o.To.Key, where.Of(o.From.Key).Pos})
	}
	for _, h := range hazards {
		b.hazard(g.Name, planHazard{Code: h.Code, Blocking: h.Severity == planner.Blocking, Key: h.Key, Pos: where.Of(h.Key).Pos, Message: h.Message, WayOut: h.WayOut})
	}
	if g.Unsupported != "" {
		b.hazard(g.Name, planHazard{Code: "unsupported", Message: g.Unsupported + " are not supported yet: the group is planned, but not rolled out"})
	}
}

// tests runs the route tests along a group's path. Of groups that give a test the
// same answers, it is told once.
func (b *planBuilder) tests(group string, path *schema.Path) {
	for _, a := range planner.Assert(path, b.in.fleet.Tests) {
		t := planTest{
			Name: a.Test.Name, Pos: a.Test.Pos, Request: a.Test.Request, Listener: a.Listener, Answers: a.Answers,
		}
		for _, i := range a.Broken {
			t.Broken = append(t.Broken, path.Stages[i].Kind)
		}
		i := slices.IndexFunc(b.doc.Tests, func(o planTest) bool {
			return o.Name == t.Name && o.Pos == t.Pos && o.Listener == t.Listener && slices.Equal(o.Answers, t.Answers) && slices.Equal(o.Broken, t.Broken)
		})
		if i < 0 {
			i = len(b.doc.Tests)
			b.doc.Tests = append(b.doc.Tests, t)
		}
		b.doc.Tests[i].Groups = append(b.doc.Tests[i].Groups, group)
	}
}

// costOf is what a path sends.
func costOf(path *schema.Path, live schema.Snapshot) *planCost {
	c := planner.CostOf(path, live)
	out := &planCost{Types: []planTypeCost{}, Drained: c.Drained, Reset: c.Reset}
	for _, t := range c.Types {
		out.Types = append(out.Types, planTypeCost{t.Type, t.Responses, t.Changed, t.Full})
	}
	return out
}

// hazard adds a hazard, or the group to an equal one.
func (b *planBuilder) hazard(group string, h planHazard) {
	h.Reason = b.in.fleet.Allowed(group, h.Code, h.Key)
	h.Allowed = h.Reason != "" || h.Blocking && slices.Contains(b.in.allow, h.Code)
	for i := range b.doc.Hazards {
		if o := &b.doc.Hazards[i]; o.Code == h.Code && o.Key == h.Key && o.Message == h.Message && o.Reason == h.Reason {
			o.Groups = append(o.Groups, group)
			return
		}
	}
	h.Groups = []string{group}
	b.doc.Hazards = append(b.doc.Hazards, h)
}

// gone lists the groups that the plan's end does not name.
func (b *planBuilder) gone() {
	for name, base := range b.in.groups {
		if b.in.fleet.Group(name) != nil {
			continue
		}
		row := planGroup{Name: name, Base: base.commit, State: base.state, Gone: true}
		if base.fleet != nil {
			if g := base.fleet.Group(name); g != nil {
				row.Client = g.Client
			}
		}
		if b.in.live {
			n := base.nodes
			row.Nodes = &n
		}
		b.doc.Groups = append(b.doc.Groups, row)
	}
	slices.SortFunc(b.doc.Groups, func(x, y planGroup) int { return cmp.Compare(x.Name, y.Name) })
}

// order puts the groups that change into steps, each after what it waits for.
func (b *planBuilder) order() {
	step := map[string]int{}
	var depth func(name string) int
	depth = func(name string) int {
		if d, ok := step[name]; ok {
			return d
		}
		step[name] = 0 // a cycle is an error of the compiler's
		if g := b.in.fleet.Group(name); g != nil {
			for _, before := range g.After {
				step[name] = max(step[name], depth(before)+1)
			}
		}
		return step[name]
	}
	var steps [][]string
	waits := false
	for _, g := range b.doc.Groups {
		if g.Path == nil {
			continue
		}
		d := depth(g.Name)
		for len(steps) <= d {
			steps = append(steps, nil)
		}
		steps[d] = append(steps[d], g.Name)
		waits = waits || len(g.After) > 0
	}
	steps = slices.DeleteFunc(steps, func(s []string) bool { return len(s) == 0 })
	if waits && len(steps) > 1 {
		b.doc.Order = steps
	}
}

// finish sums up.
func (b *planBuilder) finish() {
	doc := b.doc
	slices.Sort(doc.Proof.Gates)
	slices.SortStableFunc(doc.Hazards, func(x, y planHazard) int { return cmp.Compare(x.rank(), y.rank()) })
	for act := range b.acts {
		switch act.action {
		case actionAdd:
			doc.Summary.Add++
		case actionRemove:
			doc.Summary.Prune++
		default:
			doc.Summary.Change++
		}
	}
	for i := range doc.Paths {
		if doc.Paths[i].Retry {
			continue
		}
		doc.Summary.Stages = max(doc.Summary.Stages, len(doc.Paths[i].Stages))
	}
	if !b.in.live {
		return
	}
	doc.Nodes, doc.Summary.Nodes = &planNodes{}, new(int)
	for _, g := range doc.Groups {
		doc.Nodes.Total += g.Nodes.Total
		doc.Nodes.Acked += g.Nodes.Acked
		doc.Nodes.Disconnected += g.Nodes.Disconnected
		if g.Path != nil && (!g.Retry || len(doc.Paths[*g.Path].Live) > 0) {
			*doc.Summary.Nodes += g.Nodes.Total
		}
	}
}

// hosts is "3 hosts, 2 zones" of endpoints.
func hosts(r *schema.Resource) string {
	if r == nil {
		return ""
	}
	msg, err := envoy.Unpack(r)
	cla, ok := msg.(*endpointv3.ClusterLoadAssignment)
	if err != nil || !ok {
		return ""
	}
	n, zones := 0, map[string]bool{}
	for _, l := range cla.GetEndpoints() {
		n += len(l.GetLbEndpoints())
		if z := l.GetLocality().GetZone(); z != "" {
			zones[z] = true
		}
	}
	words := []string{count(n, "host")}
	if len(zones) > 0 {
		words = append(words, count(len(zones), "zone"))
	}
	return strings.Join(words, ", ")
}

// sortedWords is "a, b and c".
func sortedWords(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if n := len(names); n > 1 {
		return fmt.Sprintf("%s and %s", strings.Join(names[:n-1], ", "), names[n-1])
	}
	return strings.Join(names, "")
}
