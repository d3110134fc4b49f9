package compile

import (
	"fmt"
	"path"

	"github.com/sluice-xds/sluice/schema"
)

// entries are what packages say, by kind and name.
type entries struct {
	groups    map[string]*group
	listeners map[string]*listener
	routes    map[string]*routes
	services  map[string]*service
	secrets   map[string]*secret
	resources [schema.NumTypes]map[string]*resource
	patches   [schema.NumTypes]map[string]*patch
	tests     map[string]*test
}

// model is what all packages of a fleet say together.
type model struct {
	entries
	// todo are the entries that checks are to look at: all, or those that a change
	// could concern. What they refer to they look up among all.
	todo *entries

	byListener map[string][]string // see routesOf
	hosts      map[string][]host   // see hostsOf
	owners     map[string]*pkg     // of each kind and name
	profiled   map[string]bool     // services that were held against gRPC
	found      schema.Diagnostics
}

// report notes a problem of an entry, unless its author allowed it.
func (m *model) report(allow map[string]string, d schema.Diagnostic) {
	if allow[d.Code] == "" {
		m.found = append(m.found, d)
	}
}

func (m *model) error(pos schema.Pos, code, hint, format string, args ...any) {
	m.found = append(m.found, schema.Diagnostic{Pos: pos, Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func newEntries() entries {
	e := entries{
		groups: map[string]*group{}, listeners: map[string]*listener{}, routes: map[string]*routes{},
		services: map[string]*service{}, secrets: map[string]*secret{}, tests: map[string]*test{},
	}
	for t := range e.resources {
		e.resources[t] = map[string]*resource{}
		e.patches[t] = map[string]*patch{}
	}
	return e
}

func newModel() *model {
	m := &model{entries: newEntries(), profiled: map[string]bool{}, hosts: map[string][]host{}}
	m.todo = &m.entries
	return m
}

// add takes in one package. Names are unique per kind across packages.
func (m *model) add(p *pkg) {
	d := p.decoded()
	if len(d.bad) > 0 {
		m.found = append(m.found, d.bad...)
		return
	}
	c := &d.config
	if m.owners == nil {
		m.owners = map[string]*pkg{}
	}
	in := merger{m: m, pkg: p}
	merge(&in, "group", m.groups, c.Groups)
	merge(&in, "listener", m.listeners, c.Listeners)
	merge(&in, "routes", m.routes, c.Routes)
	merge(&in, "service", m.services, c.Services)
	merge(&in, "secret", m.secrets, c.Secrets)
	merge(&in, "test", m.tests, c.Tests)
	for _, kind := range sortedKeys(c.Resources) {
		merge(&in, "resource of type "+kind, m.resources[resourceKinds[kind]], c.Resources[kind])
	}
	for _, kind := range sortedKeys(c.Patches) {
		merge(&in, "patch of "+kind, m.patches[resourceKinds[kind]], c.Patches[kind])
	}
}

type merger struct {
	m         *model
	pkg       *pkg
	inherited bool // said
}

func merge[E interface{ node() *node }](in *merger, kind string, all, some map[string]E) {
	for _, name := range sortedKeys(some) {
		e := some[name]
		old, ok := all[name]
		owner := in.m.owners[kind+" "+name]
		switch {
		case name == "":
			in.m.error(e.node().pos, "value", "", "a %s has an empty name", kind)
		case !ok:
			all[name] = e
			in.m.owners[kind+" "+name] = in.pkg
		case owner.name == in.pkg.name && within(in.pkg.dir, owner.dir):
			in.inherits(old.node().pos)
		case old.node().pos == e.node().pos:
			in.shares(owner, fmt.Sprintf("%s %q at %s", kind, name, e.node().pos))
		default:
			first, second := old.node().pos, e.node().pos
			if less(second, first) {
				first, second = second, first
			}
			in.m.error(second, "duplicate-name", "first at "+first.String(), "there are two of %s %q", kind, name)
		}
	}
}

func less(a, b schema.Pos) bool {
	if a.File != b.File {
		return a.File < b.File
	}
	if a.Line != b.Line {
		return a.Line < b.Line
	}
	return a.Col < b.Col
}

// inherits says once that a package repeats all that it inherits.
func (in *merger) inherits(from schema.Pos) {
	if in.inherited {
		return
	}
	in.inherited = true
	in.m.error(schema.Pos{File: in.pkg.file}, "inherited-twice",
		fmt.Sprintf("write sluice: base: true in %s if it is only inherited from, or compile one directory with --path", path.Dir(from.File)),
		"package %q here inherits what its ancestor directory also serves, such as %s", in.pkg.name, from)
}

// shares says once that two packages inherit the same, and so both serve it: the
// place where it is written is one, and no help to whoever looks for the second.
func (in *merger) shares(owner *pkg, what string) {
	if in.inherited {
		return
	}
	in.inherited = true
	in.m.error(schema.Pos{File: in.pkg.file}, "inherited-twice",
		"compile one directory with --path; or move what both inherit into a package of its own",
		"package %q here serves what package %q at %s serves too, as both take it from one place: %s", in.pkg.name, owner.name, owner.file, what)
}
