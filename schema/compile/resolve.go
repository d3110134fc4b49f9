package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// resolve checks what entries say of one another.
func (m *model) resolve(dir string) {
	if len(m.groups) == 0 {
		m.error(schema.Pos{File: dir}, "empty", `declare one: groups: edge: {client: "envoy", match: id: "edge-*"}`,
			"the configuration has no groups: nobody would be served")
		return
	}
	m.resolveGroups()
	m.resolveListeners()
	m.resolveRoutes()
	m.resolveServices()
	m.resolveSecrets()
	m.resolvePatches()
	m.resolveTests()
	for g := range sorted(m.todo.groups) {
		m.clashes(g)
	}
	for g := range sorted(m.groups) {
		m.profile(g)
	}
	m.duplicateHosts()
	m.hostPorts()
	m.unreachable()
}

func (m *model) resolveGroups() {
	var names []string
	for name, g := range sorted(m.todo.groups) {
		for i, after := range g.Rollout.After {
			if m.groups[after] == nil {
				m.error(g.At.get("rollout").elem("after", i), "dangling", meant(after, sortedKeys(m.groups), ""),
					"group %q waits for group %q, which does not exist", name, after)
			}
		}
		for _, other := range names {
			if o := m.groups[other]; o.Priority == g.Priority && o.Match.same(g.Match) {
				m.error(g.At.at("match"), "group-overlap", "tell them apart by match, or give one a higher priority",
					"groups %q and %q match the same nodes", other, name)
			}
		}
		names = append(names, name)
	}
	m.loops("groups wait for each other", " after ", sortedKeys(m.groups), func(name string) (*node, []string) {
		if g := m.groups[name]; g != nil {
			return g.At.get("rollout").get("after"), g.Rollout.After
		}
		return nil, nil
	})
}

func (a match) same(b match) bool {
	return a.ID == b.ID && a.Cluster == b.Cluster && a.UserAgent == b.UserAgent && a.Zone == b.Zone &&
		fmt.Sprint(a.Metadata) == fmt.Sprint(b.Metadata)
}

// loops refuses what refers to itself in a circle, once for each.
func (m *model) loops(what, word string, names []string, next func(name string) (*node, []string)) {
	const onPath, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(name string)
	visit = func(name string) {
		at, after := next(name)
		if state[name] == done || at == nil {
			return
		}
		if state[name] == onPath {
			cycle := append(slices.Clone(path[slices.Index(path, name):]), name)
			m.error(at.pos, "cycle", "", "%s: %s", what, strings.Join(cycle, word))
			return
		}
		state[name] = onPath
		path = append(path, name)
		for _, n := range slices.Sorted(slices.Values(after)) {
			visit(n)
		}
		path = path[:len(path)-1]
		state[name] = done
	}
	for _, name := range names {
		visit(name)
	}
}

func (m *model) resolveListeners() {
	for name, l := range sorted(m.todo.listeners) {
		for i, g := range l.Groups {
			m.groupExists(l.At.elem("groups", i), quoted("listener", name), g)
		}
		if l.Protocol == "tcp" && l.Bind != "" && len(m.routesOf(name)) == 0 {
			m.error(l.At.pos, "no-routes", fmt.Sprintf("name it: routes: db: {listeners: [%q], hosts: [\"*\"], tcp: service: \"db\"}", name),
				"no routes name the TCP listener %q: Envoy would refuse it", name)
		} else if l.Serve == "" && !l.HTTPSRedirect && len(m.routesOf(name)) == 0 {
			m.report(l.Allow, schema.Diagnostic{
				Pos: l.At.pos, Severity: schema.Warning, Code: "no-routes",
				Message: fmt.Sprintf("no routes name listener %q: every request to it ends in a 404", name),
			})
		}
	}
	m.generated()
	for t := range m.resources {
		for name, r := range sorted(m.todo.resources[t]) {
			for i, g := range r.Groups {
				m.groupExists(r.At.elem("groups", i), quoted(schema.Type(t).Noun(), name), g)
			}
		}
	}
}

// generated refuses raw resources that have the name of one which an entry is
// lowered to.
func (m *model) generated() {
	clash := func(t schema.Type, name, kind string, n *node) {
		if r := m.resources[t][name]; r != nil {
			m.error(r.At.pos, "duplicate-name", fmt.Sprintf("the %s is at %s", kind, n.pos),
				"%s %q has the name of what %s %q is made into", t.Noun(), name, kind, name)
		}
	}
	for name, s := range m.todo.services {
		clash(schema.Clusters, name, "service", s.At)
		if s.hasEndpoints() {
			clash(schema.Endpoints, name, "service", s.At)
		}
	}
	for name, l := range m.todo.listeners {
		if l.hasTable() {
			clash(schema.Routes, name, "listener", l.At)
		}
	}
}

func (m *model) groupExists(pos schema.Pos, what, g string) {
	if m.groups[g] == nil {
		m.error(pos, "dangling", meant(g, sortedKeys(m.groups), ""), "%s is for group %q, which does not exist", what, g)
	}
}

func (m *model) resolveRoutes() {
	for name, r := range sorted(m.todo.routes) {
		what := quoted("routes", name)
		for i, l := range r.Listeners {
			pos := r.At.elem("listeners", i)
			switch {
			case m.listeners[l] == nil:
				m.error(pos, "dangling", meant(l, sortedKeys(m.listeners), ""), "%s is on listener %q, which does not exist", what, l)
			case m.listeners[l].Serve != "":
				m.error(pos, "client-mismatch", "route where clients dial: on a listener with target",
					"%s is on listener %q, which serves: a gRPC server's requests are its own", what, l)
			default:
				m.sameProtocol(pos, what, r, l)
			}
		}
		for i := range r.Rules {
			u, where := &r.Rules[i], fmt.Sprintf("%s: rules[%d]", what, i)
			m.servicesExist(u.At, where, r, u.Service, u.Split)
			if u.Mirror != nil {
				m.serviceExists(u.Mirror.At.at("service"), where, r, u.Mirror.Service)
			}
			m.hashed(where, r, u)
		}
		if r.TCP != nil {
			m.servicesExist(r.TCP.At, what+": tcp", r, r.TCP.Service, r.TCP.Split)
		}
	}
}

// sameProtocol wants rules on HTTP listeners and tcp on TCP listeners, with hosts
// that TLS can ask for.
func (m *model) sameProtocol(pos schema.Pos, what string, r *routes, l string) {
	tcp := m.listeners[l].Protocol == "tcp"
	switch {
	case tcp && r.Rules != nil:
		m.error(r.At.at("rules"), "protocol-mismatch", `say where connections go: tcp: service: "…"`,
			"%s has rules, which are for HTTP, but listener %q is TCP", what, l)
	case !tcp && r.TCP != nil:
		m.error(r.At.at("tcp"), "protocol-mismatch", `say protocol: "tcp" of the listener`, "%s is for TCP, but listener %q is HTTP", what, l)
	case tcp:
		for i, h := range r.Hosts {
			if h != "*" && strings.Contains(h, "*") && !strings.HasPrefix(h, "*.") {
				m.error(r.At.elem("hosts", i), "host", `write "*.example.com" or "*"`, "%s: %q is no name that TLS can ask for", what, h)
			}
		}
		if r.At.get("priority") != nil {
			m.error(r.At.at("priority"), "no-effect", "the most specific name wins", "%s: priority has no meaning for TCP", what)
		}
	}
}

// hashed warns of a hash that no service of the rule asks for.
func (m *model) hashed(where string, r *routes, u *rule) {
	if len(u.Hash) == 0 || u.Service == "" && u.Split == nil {
		return
	}
	names := append(sortedKeys(u.Split), u.Service)
	for _, name := range names {
		if s := m.services[name]; name != "" && (s == nil || s.LB == "ring_hash" || s.LB == "maglev" || s.Failover != nil) {
			return
		}
	}
	m.report(r.Allow, schema.Diagnostic{
		Pos: u.At.at("hash"), Severity: schema.Warning, Code: "no-effect", Hint: `say lb: "ring_hash" or lb: "maglev" of the service`,
		Message: where + ": hash has no effect: no service of the rule balances by it",
	})
}

func (m *model) servicesExist(at *node, where string, r *routes, service string, split map[string]uint32) {
	if service != "" {
		m.serviceExists(at.at("service"), where, r, service)
	}
	for s := range sorted(split) {
		m.serviceExists(at.at("split", s), where, r, s)
	}
}

// resolveServices wants the members of failovers to exist, and to end somewhere.
func (m *model) resolveServices() {
	for name, s := range sorted(m.todo.services) {
		for i, member := range s.Failover {
			if m.services[member] == nil && m.resources[schema.Clusters][member] == nil {
				known := append(sortedKeys(m.services), sortedKeys(m.resources[schema.Clusters])...)
				m.report(s.Allow, schema.Diagnostic{
					Pos: s.At.elem("failover", i), Code: "dangling", Hint: meant(member, known, danglingHint),
					Message: fmt.Sprintf("service %q falls over to service %q, which does not exist", name, member),
				})
			}
		}
	}
	m.loops("services fall over to each other", " to ", sortedKeys(m.todo.services), func(name string) (*node, []string) {
		if s := m.services[name]; s != nil {
			return s.At.get("failover"), s.Failover
		}
		return nil, nil
	})
}

// resolvePatches wants each patch to have something to be merged onto.
func (m *model) resolvePatches() {
	for t := range m.todo.patches {
		if len(m.todo.patches[t]) == 0 {
			continue
		}
		known := m.generatedNames(schema.Type(t))
		for name, p := range sorted(m.todo.patches[t]) {
			switch {
			case contains(known, name):
			case m.resources[t][name] != nil:
				m.error(p.At.pos, "patch", "write it there", "%s %q is a resource of your own, at %s", schema.Type(t).Noun(), name, m.resources[t][name].At.pos)
			default:
				m.error(p.At.pos, "dangling", meant(name, known, ""), "the patch is for %s %q, which no entry is made into", schema.Type(t).Noun(), name)
			}
		}
	}
}

func contains(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

// generatedNames are those of the entries that are made into resources of a type.
func (m *model) generatedNames(t schema.Type) (names []string) {
	switch t {
	case schema.Clusters, schema.Endpoints:
		for name, s := range sorted(m.services) {
			if t == schema.Clusters || s.hasEndpoints() {
				names = append(names, name)
			}
		}
	case schema.Listeners, schema.Routes:
		for name, l := range sorted(m.listeners) {
			if t == schema.Listeners || l.hasTable() {
				names = append(names, name)
			}
		}
	}
	return names
}

// serviceExists wants a service, a raw cluster, or a name that every group
// which gets the routes declares as its own.
func (m *model) serviceExists(pos schema.Pos, where string, r *routes, name string) {
	if m.services[name] != nil || m.resources[schema.Clusters][name] != nil || m.externalTo(r, name) {
		return
	}
	known := append(sortedKeys(m.services), sortedKeys(m.resources[schema.Clusters])...)
	m.report(r.Allow, schema.Diagnostic{
		Pos: pos, Code: "dangling", Hint: meant(name, known, danglingHint),
		Message: fmt.Sprintf("%s leads to service %q, which does not exist", where, name),
	})
}

func (m *model) externalTo(r *routes, name string) bool {
	any := false
	for _, l := range r.Listeners {
		if m.listeners[l] == nil {
			continue
		}
		for _, g := range m.listeners[l].Groups {
			if m.groups[g] == nil || !slices.Contains(m.groups[g].External, name) {
				return false
			}
			any = true
		}
	}
	return any
}

func (m *model) resolveTests() {
	for name, t := range sorted(m.todo.tests) {
		check := func(pos schema.Pos, s string) {
			if m.services[s] == nil && m.resources[schema.Clusters][s] == nil {
				known := append(sortedKeys(m.services), sortedKeys(m.resources[schema.Clusters])...)
				m.error(pos, "dangling", meant(s, known, ""), "test %q expects service %q, which does not exist", name, s)
			}
		}
		if l := t.Request.Listener; l != "" && m.listeners[l] == nil && m.resources[schema.Listeners][l] == nil {
			known := append(sortedKeys(m.listeners), sortedKeys(m.resources[schema.Listeners])...)
			m.error(t.Request.At.at("listener"), "dangling", meant(l, known, ""), "test %q asks listener %q, which does not exist", name, l)
		}
		if t.Expect.Service != "" {
			check(t.Expect.At.at("service"), t.Expect.Service)
		}
		for s := range sorted(t.Expect.Split) {
			check(t.Expect.At.at("split", s), s)
		}
	}
}

// clashes refuses two listeners of one group that want one port, or one name.
func (m *model) clashes(g string) {
	type taken struct{ name, addr string }
	var ports []taken
	targets := map[string]string{}
	for name, l := range sorted(m.listeners) {
		if !slices.Contains(l.Groups, g) {
			continue
		}
		addr, field := l.Bind, "bind"
		if l.Serve != "" {
			addr, field = l.Serve, "serve"
		}
		if addr != "" {
			for _, t := range ports {
				if overlap(t.addr, addr) {
					m.error(l.At.at(field), "port-clash", fmt.Sprintf("%q is at %s", t.name, m.listeners[t.name].At.pos),
						"listeners %q (%s) and %q (%s) of group %q want the same port", t.name, t.addr, name, addr, g)
				}
			}
			ports = append(ports, taken{name, addr})
		}
		if l.Target == "" {
			continue
		}
		if first, ok := targets[l.Target]; ok {
			m.error(l.At.at("target"), "duplicate-target", fmt.Sprintf("%q is at %s", first, m.listeners[first].At.pos),
				"listeners %q and %q of group %q have one target %q", first, name, g, l.Target)
		}
		targets[l.Target] = name
	}
}

// overlap reports whether two sockets cannot be bound at once.
func overlap(a, b string) bool {
	hostA, portA := splitAddress(a)
	hostB, portB := splitAddress(b)
	ipA, errA := netip.ParseAddr(hostA)
	ipB, errB := netip.ParseAddr(hostB)
	return portA == portB && errA == nil && errB == nil &&
		(ipA == ipB || ipA.IsUnspecified() || ipB.IsUnspecified())
}

// duplicateHosts refuses two entries that claim one host on one listener, but
// for those that both say which comes first.
func (m *model) duplicateHosts() {
	for l := range sorted(m.todo.listeners) {
		owners := map[string][]string{}
		for _, name := range m.routesOf(l) {
			for i, h := range m.routes[name].Hosts {
				h = strings.ToLower(h)
				for _, other := range owners[h] {
					m.sameHost(l, h, other, name, i)
				}
				owners[h] = append(owners[h], name)
			}
		}
	}
}

// hostPorts refuses hosts that cannot match: what comes in at a port may carry
// that port in its host or not, so ports are not looked at there.
func (m *model) hostPorts() {
	for l, entry := range sorted(m.todo.listeners) {
		for _, name := range m.routesOf(l) {
			for i, h := range m.routes[name].Hosts {
				if _, port := splitAddress(h); port != 0 && entry.Bind != "" {
					m.error(m.routes[name].At.elem("hosts", i), "host", "leave the port out",
						"routes %q: host %q has a port, which listener %q does not look at", name, h, l)
				}
			}
		}
	}
}

func (m *model) sameHost(l, h, first, second string, i int) {
	a, b := m.routes[first], m.routes[second]
	pos := b.At.elem("hosts", i)
	switch {
	case first == second:
		m.error(pos, "duplicate-host", "", "routes %q list host %q twice", first, h)
	case m.listeners[l].Protocol == "tcp":
		m.error(pos, "duplicate-host", "the first is at "+a.At.pos.String(), "routes %q and %q share host %q on TCP listener %q", first, second, h, l)
	case a.At.get("priority") == nil || b.At.get("priority") == nil || a.Priority == b.Priority:
		m.error(pos, "duplicate-host", "give both a different priority, or one of them another host; the first is at "+a.At.pos.String(),
			"routes %q and %q share host %q on listener %q", first, second, h, l)
	}
}
