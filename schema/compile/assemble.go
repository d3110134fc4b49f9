package compile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// assemble makes each group's snapshot: its listeners and all that they reach,
// raw resources included. What is not reached is in no snapshot.
func (lo *lowering) assemble() {
	reached := map[schema.Key]bool{}
	for name, g := range sorted(lo.groups) {
		lo.fleet.Groups = append(lo.fleet.Groups, lo.group(name, g, reached))
	}
	var live []*schema.Resource
	for k := range reached {
		if k.Type.Live() && lo.shared[k] != nil {
			live = append(live, lo.shared[k])
		}
	}
	lo.fleet.Live = schema.SnapshotOf(live...)
	lo.unused(reached)
}

func (lo *lowering) group(name string, g *group, reached map[schema.Key]bool) schema.Group {
	out := schema.Group{
		Name:     name,
		Client:   g.client(),
		Match:    schema.Match(g.Match),
		Priority: g.Priority,
		After:    slices.Sorted(slices.Values(g.Rollout.After)),
		Drain:    -1,
		External: slices.Sorted(slices.Values(g.External)),
		At:       g.At.at("match"),
	}
	if g.At.get("rollout").get("drain") != nil {
		out.Drain = g.Rollout.Drain
	}
	out.TTL, out.Isolate = lo.lifetimes(name, g), g.Rollout.Isolate
	out.Unsupported = lo.unsupported(name, g)
	if allow := hazardous(g.Allow); len(allow) > 0 {
		out.Allow = allow
	}
	w := walker{lo: lo, group: g, client: out.Client, name: name, seen: map[schema.Key]*schema.Resource{}}
	for _, r := range lo.roots(name) {
		w.root(r)
	}
	w.run()
	for _, r := range w.all {
		reached[r.Key] = true
	}
	lo.newer(name, g, w.all)
	out.Snapshot = schema.SnapshotOf(w.all...)
	return out
}

// leastTTL is the shortest time to live: the heartbeats of a fleet are a third of
// it apart.
const leastTTL = time.Second

// lifetimes reads the times to live of a group, by type.
func (lo *lowering) lifetimes(name string, g *group) map[schema.Type]time.Duration {
	var out map[schema.Type]time.Duration
	for t, ttl := range g.TTL.byType() {
		at := g.At.get("ttl").get(t.String())
		switch {
		case at == nil:
			continue
		case ttl < leastTTL:
			lo.error(at.pos, "range", "", "group %q: a time to live of %s is less than %s", name, ttl, leastTTL)
			continue
		}
		if out == nil {
			out = map[schema.Type]time.Duration{}
		}
		out[t] = ttl
	}
	return out
}

func (g *group) client() schema.Client {
	if g.Client == "grpc" {
		return schema.GRPC
	}
	return schema.Envoy
}

// roots are what a group is given by name.
func (lo *lowering) roots(group string) []*schema.Resource {
	var out []*schema.Resource
	for name, l := range sorted(lo.model.listeners) {
		if r := lo.listeners[name]; r != nil && slices.Contains(l.Groups, group) {
			out = append(out, r)
		}
	}
	for t := range lo.resources {
		for name, raw := range sorted(lo.resources[t]) {
			if r := lo.shared[schema.Key{Type: schema.Type(t), Name: name}]; r != nil && slices.Contains(raw.Groups, group) {
				out = append(out, r)
			}
		}
	}
	return out
}

// unsupported warns of what a group's rollout asks for in vain.
func (lo *lowering) unsupported(name string, g *group) string {
	var what []string
	lacks := func(field, text string) {
		what = append(what, text)
		lo.report(g.Allow, schema.Diagnostic{
			Pos: g.At.at("rollout", field), Severity: schema.Warning, Code: "unsupported",
			Message: fmt.Sprintf("group %q: %s are not supported yet: the group can be checked and planned, but is not rolled out", name, text),
		})
	}
	if !g.oneWave() {
		lacks("waves", "waves")
	}
	if g.Rollout.Bake > 0 {
		lacks("bake", "bake times")
	}
	return strings.Join(what, ", ")
}

// oneWave reports whether the waves are the default, one of all.
func (g *group) oneWave() bool {
	if len(g.Rollout.Waves) != 1 {
		return len(g.Rollout.Waves) == 0
	}
	w := g.Rollout.Waves[0]
	return w.Rest || w.Percent == 100
}

// walker collects what a group's roots reach.
type walker struct {
	lo     *lowering
	group  *group
	client schema.Client
	name   string
	seen   map[schema.Key]*schema.Resource
	all    []*schema.Resource // complete, but for the keys of live types
	queue  []*schema.Resource
}

func (w *walker) add(r *schema.Resource) {
	if w.seen[r.Key] == nil {
		w.seen[r.Key] = r
		w.queue = append(w.queue, r)
	}
}

// root takes in what the group is given by name. Of listeners alone two may
// have one name on the wire.
func (w *walker) root(r *schema.Resource) {
	if old := w.seen[r.Key]; old != nil && old != r {
		from := w.lo.fleet.Provenance[r.Key]
		w.lo.error(from[len(from)-1].Pos, "duplicate-name", "first at "+from[0].Pos.String(),
			"group %q has two of %s %q", w.name, r.Type.Noun(), r.Name)
	}
	w.add(r)
}

func (w *walker) run() {
	for len(w.queue) > 0 {
		r := w.queue[0]
		w.queue = w.queue[1:]
		var missing []schema.Key
		for _, ref := range r.Refs {
			target := w.lo.find(ref.Key, w.client)
			switch {
			case target != nil:
				w.add(target)
				w.lo.profileRaw(w.name, w.client, target.Key)
			case ref.Edge != schema.Optional:
				missing = append(missing, ref.Key)
			}
		}
		if r.Type.Live() {
			r = schema.NewLive(r.Key)
		}
		w.all = append(w.all, w.loosen(r, missing))
	}
}

// loosen makes edges to what is missing optional where their author said that
// the nodes know it, or allowed it. All others are errors.
func (w *walker) loosen(r *schema.Resource, missing []schema.Key) *schema.Resource {
	if len(missing) == 0 {
		return r
	}
	refs := slices.Clone(r.Refs)
	for i := range refs {
		if slices.Contains(missing, refs[i].Key) {
			if !slices.Contains(w.group.External, refs[i].Name) && !w.lo.allowsDangling(r.Key) {
				w.lo.dangling(r.Key, refs[i].Key)
			}
			refs[i].Edge = schema.Optional
		}
	}
	return schema.Restore(r.Key, r.Version, refs, r.Body)
}

// allowsDangling reports whether a resource's author allowed it to refer to
// what is not there.
func (lo *lowering) allowsDangling(k schema.Key) bool {
	for _, o := range lo.fleet.Provenance[k] {
		switch o.Kind {
		case "resource":
			if raw := lo.resources[k.Type][o.Name]; raw != nil && raw.Allow["dangling"] != "" {
				return true
			}
		case "route":
			if lo.routes[o.Name].Allow["dangling"] != "" {
				return true
			}
		}
	}
	return false
}

// dangling says where a raw resource refers to what is not there. What the
// typed entries refer to was checked by name before.
func (lo *lowering) dangling(from, to schema.Key) {
	raw := lo.resources[from.Type][from.Name]
	if raw == nil || lo.fleet.Provenance.Of(from).Kind != "resource" {
		return
	}
	at := raw.At.pos
	if n := raw.At.search(to.Name); n != nil {
		at = n.pos
	}
	var known []string
	for k := range lo.shared {
		if k.Type == to.Type {
			known = append(known, k.Name)
		}
	}
	if to.Type == schema.Clusters {
		known = append(known, sortedKeys(lo.services)...)
	}
	slices.Sort(known)
	lo.error(at, "dangling", meant(to.Name, known, danglingHint), "%s %q refers to %s %q, which does not exist",
		from.Type.Noun(), from.Name, to.Type.Noun(), to.Name)
}

const danglingHint = "what the nodes' bootstrap holds is declared as external of the group"

// search finds the first string in a value that equals text.
func (n *node) search(text string) *node {
	if n.text == text {
		return n
	}
	for _, f := range n.fields {
		if found := f.value.search(text); found != nil {
			return found
		}
	}
	for _, e := range n.elems {
		if found := e.search(text); found != nil {
			return found
		}
	}
	return nil
}

// unused warns of what is in no group's snapshot.
func (lo *lowering) unused(reached map[schema.Key]bool) {
	for name, s := range sorted(lo.services) {
		if !reached[schema.Key{Type: schema.Clusters, Name: lo.wireOf(name)}] {
			lo.clusterOf(name, schema.Envoy) // for what is wrong with it
			lo.report(s.Allow, schema.Diagnostic{
				Pos: s.At.pos, Severity: schema.Warning, Code: "unused-service",
				Message: fmt.Sprintf("no route of any group leads to service %q: nobody is sent it", name),
			})
		}
	}
	for t := range lo.resources {
		for name, raw := range sorted(lo.resources[t]) {
			k := schema.Key{Type: schema.Type(t), Name: name}
			if lo.shared[k] != nil && !reached[k] {
				lo.report(raw.Allow, schema.Diagnostic{
					Pos: raw.At.pos, Severity: schema.Warning, Code: "unused-resource",
					Message: fmt.Sprintf("nothing refers to %s %q and it names no groups: nobody is sent it", k.Type.Noun(), name),
				})
			}
		}
	}
}
