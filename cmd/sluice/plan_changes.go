package main

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// stageWriter turns the steps of one group's path into what its author wrote.
type stageWriter struct {
	b        *planBuilder
	from, to side
}

// stages are the steps of a path.
func (w *stageWriter) stages(path *schema.Path, proof planner.Proof) []planStage {
	out := []planStage{}
	prev := w.from.snap
	for i := range path.Stages {
		st := &path.Stages[i]
		step := planStage{
			Stage: st.Kind, Gate: proof.Levels[i], DrainSeconds: st.Drain.Seconds(), Changes: w.stage(st.Kind, prev, st.Snapshot),
		}
		for _, want := range st.Wants {
			step.WaitsFor = append(step.WaitsFor, planWait{want.Key, want.Usable})
		}
		out = append(out, step)
		prev = st.Snapshot
	}
	return out
}

// stage lists what one step does, one change for each of the author's entries.
func (w *stageWriter) stage(kind schema.StageKind, prev, next schema.Snapshot) []planChange {
	out := changes{}
	for old, r := range schema.DiffAll(prev, next) {
		switch {
		case old == nil:
			out.add(actionAdd, w.authored(r.Key, w.to), w.resource(r.Key, w.to))
		case r == nil:
			c := w.authored(old.Key, w.from)
			c.Commit = w.b.commitOf(w.from)
			out.add(actionRemove, c, w.resource(old.Key, side{}))
		default:
			w.change(&out, kind, old, r)
		}
	}
	return out.sorted()
}

// authored is the author's word for a resource.
func (w *stageWriter) authored(k schema.Key, in side) planChange {
	o := in.fleet.Provenance.Of(k)
	if o.Kind == "" {
		return planChange{Kind: k.Type.Noun(), Name: k.Name}
	}
	return planChange{Kind: o.Kind, Name: o.Name, Pos: o.Pos}
}

func (w *stageWriter) resource(k schema.Key, in side) planResource {
	r := planResource{Key: k}
	if k.Type == schema.Endpoints && in.fleet != nil {
		r.Detail = hosts(in.fleet.Live.Get(k))
	}
	return r
}

// commitOf is the commit that a position belongs to which is not in the end.
func (b *planBuilder) commitOf(s side) string {
	if s.fleet != nil && s.fleet.Commit != "" {
		return s.fleet.Commit
	}
	return b.in.base.Commit
}

// change writes a changed resource. A path may change one several times: what an
// author changed is shown once, where it takes effect, and what the path does on
// its own is told in words.
func (w *stageWriter) change(out *changes, kind schema.StageKind, old, r *schema.Resource) {
	before, after := w.from.snap.Get(r.Key), w.to.snap.Get(r.Key)
	res := w.resource(r.Key, w.to)
	c := w.authored(r.Key, w.to)
	if kind == schema.Warm || kind == schema.Cool {
		c = w.warmed(r.Key, c, old, r)
	}
	switch {
	case kind == schema.Warm:
		c.Note = fmt.Sprintf("names %s, so that clients load it before traffic", sortedWords(newNames(old, r)))
	case kind == schema.Cool:
		c.Note = fmt.Sprintf("no longer names %s", sortedWords(newNames(r, old)))
	case before != nil && after != nil && before.Version != after.Version:
		for _, part := range w.parts(r.Key, before, after) {
			out.add(actionChange, part, res)
		}
		return
	}
	out.add(actionChange, c, res)
}

// warmed finds the entry whose virtual host gains or loses a warm route.
func (w *stageWriter) warmed(k schema.Key, whole planChange, old, r *schema.Resource) planChange {
	a, err1 := envoy.Unpack(old)
	b, err2 := envoy.Unpack(r)
	if err1 != nil || err2 != nil {
		return whole
	}
	if fields := diffFields(a, b); len(fields) > 0 && len(fields[0].at) > 0 {
		return w.ownerOf(k, whole, fields[0].at[:1])
	}
	return whole
}

// newNames lists the clusters that b refers to and a does not.
func newNames(a, b *schema.Resource) []string {
	var names []string
	for _, ref := range b.Refs {
		if ref.Type == schema.Clusters && !slices.ContainsFunc(a.Refs, func(o schema.Ref) bool { return o.Key == ref.Key }) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// parts are the changed fields of a resource, by the entry that they stand in.
func (w *stageWriter) parts(k schema.Key, before, after *schema.Resource) []planChange {
	whole := w.authored(k, w.to)
	old, err1 := envoy.Unpack(before)
	now, err2 := envoy.Unpack(after)
	if err1 != nil || err2 != nil {
		whole.Note = "cannot be read"
		return []planChange{whole}
	}
	return w.fieldsOf(k, whole, old, now)
}

func (w *stageWriter) fieldsOf(k schema.Key, whole planChange, old, now proto.Message) []planChange {
	var out []planChange
	for _, f := range diffFields(withoutSecrets(old), withoutSecrets(now)) {
		c := w.ownerOf(k, whole, f.at)
		i := slices.IndexFunc(out, func(o planChange) bool { return o.Kind == c.Kind && o.Name == c.Name })
		if i < 0 {
			i = len(out)
			out = append(out, c)
		}
		out[i].Fields = append(out[i].Fields, planField{k.Type, f.path, f.before, f.after})
	}
	if len(out) == 0 {
		whole.Note = "a value changes that is not shown"
		return []planChange{whole}
	}
	return out
}

// ownerOf finds the entry and the line behind a field of a route table: its
// virtual hosts are made of routes entries, joined by "+", and their routes of
// the entries' rules, in order.
func (w *stageWriter) ownerOf(k schema.Key, whole planChange, at []elemStep) planChange {
	if k.Type != schema.Routes || len(at) == 0 || at[0].list != "virtual_hosts" {
		return whole
	}
	in, host := w.to, at[0].after
	rule := -1
	if len(at) > 1 && strings.HasSuffix(at[1].list, ".routes") {
		rule = at[1].after
	}
	if host < 0 || len(at) > 1 && rule < 0 {
		in = w.from
		if rule < 0 && len(at) > 1 {
			rule = at[1].before
		}
	}
	var rules []schema.Origin
	entry := schema.Origin{}
	for _, name := range strings.Split(strings.Trim(at[0].key, `"`), "+") {
		for _, o := range in.fleet.Provenance[k] {
			switch {
			case o.Kind != "route" || o.Name != name:
			case o.Field == "":
				entry = cmp.Or(entry, o)
			default:
				rules = append(rules, o)
			}
		}
	}
	c := whole
	if entry.Kind != "" {
		c = planChange{Kind: entry.Kind, Name: entry.Name, Pos: entry.Pos}
	}
	if rule >= 0 && rule < len(rules) {
		c = planChange{Kind: "route", Name: rules[rule].Name, Pos: rules[rule].Pos}
	}
	if in.fleet == w.from.fleet && c.Pos.Line > 0 {
		c.Commit = w.b.commitOf(w.from)
	}
	return c
}

// live lists endpoints and secrets whose bodies change: they go out at once.
func (w *stageWriter) live() []planChange {
	out := changes{}
	for old, r := range liveChanges(w.from, w.to) {
		c := w.authored(r.Key, w.to)
		if r.Type == schema.Endpoints {
			before, err1 := envoy.Unpack(old)
			after, err2 := envoy.Unpack(r)
			if err1 == nil && err2 == nil {
				c = w.fieldsOf(r.Key, c, before, after)[0]
			}
		}
		out.add(actionChange, c, w.resource(r.Key, w.to))
	}
	return out.sorted()
}

// liveChanges yields the live bodies of both ends that differ.
func liveChanges(from, to side) iter.Seq2[*schema.Resource, *schema.Resource] {
	return func(yield func(*schema.Resource, *schema.Resource) bool) {
		for old, r := range schema.DiffAll(from.fleet.Live, to.fleet.Live) {
			if old != nil && r != nil && from.snap.Get(r.Key) != nil && to.snap.Get(r.Key) != nil && !yield(old, r) {
				return
			}
		}
	}
}

// changes collects what one step does to each entry.
type changes []planChange

func (cs *changes) add(action string, c planChange, r planResource) {
	c.Action = action
	for i := range *cs {
		o := &(*cs)[i]
		if o.Action == action && o.Kind == c.Kind && o.Name == c.Name {
			o.Fields = append(o.Fields, c.Fields...)
			if o.Note == "" {
				o.Note = c.Note
			}
			if !slices.Contains(o.Resources, r) {
				o.Resources = append(o.Resources, r)
			}
			return
		}
	}
	c.Resources = []planResource{r}
	*cs = append(*cs, c)
}

// sorted is what is added, then changed, then removed; each by kind and name.
func (cs changes) sorted() []planChange {
	actions := []string{actionAdd, actionChange, actionRemove}
	slices.SortStableFunc(cs, func(a, b planChange) int {
		return cmp.Or(cmp.Compare(slices.Index(actions, a.Action), slices.Index(actions, b.Action)),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	if cs == nil {
		return []planChange{}
	}
	return cs
}
