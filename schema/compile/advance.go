package compile

import (
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// state is what is kept of a compilation that found nothing wrong. Most commits
// change a service or two: then the next fleet is made from this one, at the cost
// of what changed. It has one owner at a time, who may change all of it but what
// fleets hold.
//
// What cannot be told to concern a few entries alone is compiled as a whole; both
// ways give the same fleet and the same diagnostics, as a test of random edits holds.
type state struct {
	dir    string
	limits Limits
	tree   fs.FS
	src    *source
	found  schema.Diagnostics // of loading
	pkgs   []pkg
	lo     *lowering
	fleet  *schema.Fleet
	users  map[string]*users
	steps  int // see Cache
}

// users are the entries that mention a service.
type users struct {
	routes   []string
	failover bool // part of one
	others   bool // something else
}

func newState(dir string, limits Limits, tree fs.FS, src *source, found schema.Diagnostics, pkgs []pkg, f made) *state {
	st := &state{dir: dir, limits: limits, tree: tree, src: src, found: found, pkgs: pkgs, lo: f.lo, fleet: f.Fleet, users: map[string]*users{}}
	m := f.lo.model
	for name := range m.services {
		st.users[name] = &users{}
	}
	for name, r := range m.routes {
		st.mentions(r.At, func(u *users) { u.routes = append(u.routes, name) })
	}
	for _, s := range m.services {
		st.mentions(s.At.get("failover"), func(u *users) { u.failover = true })
	}
	others := func(n *node) { st.mentions(n, func(u *users) { u.others = true }) }
	for _, l := range m.listeners {
		others(l.At)
	}
	for _, g := range m.groups {
		others(g.At)
	}
	for t := range m.resources {
		for _, r := range m.resources[t] {
			others(r.At)
		}
		for name := range m.patches[t] {
			if u := st.users[name]; u != nil {
				u.others = true
			}
		}
	}
	return st
}

// mentions calls each for the services that are named anywhere in a value.
func (st *state) mentions(n *node, each func(*users)) {
	if n == nil {
		return
	}
	if u := st.users[n.text]; u != nil && n.text != "" {
		each(u)
	}
	for _, f := range n.fields {
		if u := st.users[f.name]; u != nil {
			each(u)
		}
		st.mentions(f.value, each)
	}
	for _, e := range n.elems {
		st.mentions(e, each)
	}
}

// change is what differs between two trees, if it is of the kinds that are
// understood here: by name, the new entries.
type change struct {
	services map[string]*service
	moved    map[string]*routes // that stand elsewhere, and say the same
	ruled    map[string]*routes // that have other rules
	tests    map[string]*test
	files    map[string]bool
}

// changes compares packages with the last. It reports false for all that could
// concern more than the changed entries themselves.
func (st *state) changes(src *source, found schema.Diagnostics, pkgs []pkg) (*change, bool) {
	if st == nil || !slices.Equal(src.pkgs, st.src.pkgs) || !slices.Equal(found, st.found) {
		return nil, false
	}
	c := &change{services: map[string]*service{}, moved: map[string]*routes{}, ruled: map[string]*routes{}, tests: map[string]*test{}, files: map[string]bool{}}
	for i := range pkgs {
		was, is := &st.pkgs[i], &pkgs[i]
		if is.said == was.said && is.said != nil {
			continue
		}
		if len(is.bad) > 0 || is.base != was.base || (is.root == nil) != (was.root == nil) {
			return nil, false
		}
		if is.root != nil && !is.base && !c.pkg(was, is) {
			return nil, false
		}
	}
	return c, true
}

func (c *change) pkg(was, is *pkg) bool {
	if len(is.decoded().bad) > 0 {
		return false
	}
	for name := range topLevel {
		if name != "services" && name != "routes" && name != "tests" && !was.root.get(name).same(is.root.get(name), true) {
			return false
		}
	}
	old, now := &was.decoded().config, &is.decoded().config
	c.files[is.file] = true
	return differ(old.Services, now.Services, func(name string, a, b *service) bool {
		c.services[name] = b
		return a.hasEndpoints() == b.hasEndpoints()
	}) && differ(old.Routes, now.Routes, func(name string, a, b *routes) bool {
		if a.At.same(b.At, false) {
			c.moved[name] = b
			return true
		}
		c.ruled[name] = b
		return a.onlyRules(b)
	}) && differ(old.Tests, now.Tests, func(name string, _, b *test) bool {
		c.tests[name] = b
		return true
	})
}

// differ calls each for the entries that differ. It reports false if names do, or
// if each does.
func differ[E interface{ node() *node }](old, now map[string]E, each func(string, E, E) bool) bool {
	if len(old) != len(now) {
		return false
	}
	for name, a := range old {
		b, ok := now[name]
		if !ok || !a.node().same(b.node(), true) && !each(name, a, b) {
			return false
		}
	}
	return true
}

// same reports whether two values are equal, and stand at the same place if that
// matters.
func (n *node) same(o *node, placed bool) bool {
	if n == nil || o == nil {
		return n == o
	}
	if n.kind != o.kind || n.text != o.text || len(n.fields) != len(o.fields) || len(n.elems) != len(o.elems) || placed && n.pos != o.pos {
		return false
	}
	for i := range n.fields {
		if n.fields[i].name != o.fields[i].name || !n.fields[i].value.same(o.fields[i].value, placed) {
			return false
		}
	}
	for i := range n.elems {
		if !n.elems[i].same(o.elems[i], placed) {
			return false
		}
	}
	return true
}

// advance makes the fleet after a change, or nil if that has to be compiled as a
// whole. After nil the state is of no use any more.
func (st *state) advance(c *change) *schema.Fleet {
	m := st.lo.model
	todo := newEntries()
	for name, s := range c.services {
		u, old := st.users[name], m.services[name]
		wire := st.lo.wireOf(name)
		m.services[name], todo.services[name] = s, s
		if u.others || u.failover || s.Failover != nil || s.Rename != old.Rename || !maps.Equal(s.Allow, old.Allow) {
			return nil
		}
		delete(st.lo.wires, name)
		if st.lo.wireOf(name) != wire {
			return nil // routes are to name it anew
		}
		for _, r := range u.routes {
			todo.routes[r] = m.routes[r]
		}
	}
	for name, r := range c.moved {
		m.routes[name], todo.routes[name] = r, r
	}
	for name, r := range c.ruled {
		if !st.local(name, r) {
			return nil
		}
		c.files[m.routes[name].At.pos.File] = true
		for _, l := range r.Listeners {
			c.files[m.listeners[l].At.pos.File] = true
		}
		m.routes[name], todo.routes[name] = r, r
	}
	for name, t := range c.tests {
		m.tests[name], todo.tests[name] = t, t
	}
	for _, r := range todo.routes {
		c.files[r.At.pos.File] = true
	}
	for _, s := range todo.services {
		c.files[s.At.pos.File] = true
	}
	if slices.ContainsFunc(st.fleet.Warnings, func(d schema.Diagnostic) bool { return c.files[d.Pos.File] }) {
		return nil // it may be one no more, or stand elsewhere
	}
	m.todo, m.found, m.profiled = &todo, nil, map[string]bool{}
	m.lint()
	m.resolve(st.dir)
	for name, r := range c.ruled {
		for _, l := range r.Listeners {
			m.unreachableIn(*m.hostOf(l, name), map[*rule]bool{})
		}
	}
	if len(m.found) > 0 || !st.relower(c) || len(m.found) > 0 {
		return nil
	}
	return st.fleet
}

// relower makes again what is made of the changed entries.
func (st *state) relower(c *change) bool {
	lo := st.lo
	next := *st.fleet
	next.Groups, next.Provenance = slices.Clone(next.Groups), maps.Clone(next.Provenance)
	lo.fleet = &next
	for name, s := range sorted(c.services) {
		for client := range lo.clusters {
			delete(lo.clusters[client], name)
		}
		for _, t := range [...]schema.Type{schema.Clusters, schema.Endpoints} {
			k := schema.Key{Type: t, Name: name}
			if t == schema.Clusters {
				k.Name = lo.wireOf(name)
			}
			delete(lo.shared, k)
			delete(next.Provenance, k)
		}
		lo.service(name, s)
		if !lo.replace(name) {
			return false
		}
	}
	for name, r := range c.moved {
		if !lo.place(name, r) {
			return false
		}
	}
	for name, r := range c.ruled {
		if !lo.reroute(name, r) {
			return false
		}
	}
	if len(c.tests) > 0 {
		next.Tests = slices.Clone(next.Tests)
		for name, t := range c.tests {
			i, ok := slices.BinarySearchFunc(next.Tests, name, func(t schema.RouteTest, name string) int { return strings.Compare(t.Name, name) })
			if !ok {
				return false
			}
			next.Tests[i] = t.lower(name)
		}
	}
	st.fleet = &next
	st.steps++
	return true
}

// replace puts what a service is made into in the place of what it was made into
// before. It reports false if the group would reach something else by it.
func (lo *lowering) replace(name string) bool {
	if r := lo.shared[schema.Key{Type: schema.Endpoints, Name: name}]; r != nil && lo.fleet.Live.Get(r.Key) != nil {
		lo.fleet.Live = lo.fleet.Live.Replace(r.Type, lo.fleet.Live.Of(r.Type).With(r))
	}
	k := schema.Key{Type: schema.Clusters, Name: lo.wireOf(name)}
	used := false
	for i := range lo.fleet.Groups {
		g := &lo.fleet.Groups[i]
		old := g.Snapshot.Get(k)
		if old == nil {
			continue
		}
		used = true
		r := lo.clusterOf(name, g.Client)
		if r == nil || !slices.Equal(old.Refs, r.Refs) {
			return false
		}
		g.Snapshot = g.Snapshot.Replace(k.Type, g.Snapshot.Of(k.Type).With(r))
		lo.newer(g.Name, lo.groups[g.Name], []*schema.Resource{r, schema.NewLive(schema.Key{Type: schema.Endpoints, Name: name})})
	}
	return used // what is not is warned of, or allowed
}
