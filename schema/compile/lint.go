package compile

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// lint checks each entry by itself.
func (m *model) lint() {
	for name, g := range sorted(m.todo.groups) {
		m.lintGroup(name, g)
	}
	for name, l := range sorted(m.todo.listeners) {
		m.lintListener(name, l)
	}
	for name, r := range sorted(m.todo.routes) {
		m.lintRoutes(name, r)
	}
	for name, s := range sorted(m.todo.services) {
		m.lintService(name, s)
	}
	for name, s := range sorted(m.todo.secrets) {
		m.lintSecret(name, s)
	}
	for t := range m.todo.patches {
		for _, p := range sorted(m.todo.patches[t]) {
			m.allowed(p.At)
		}
	}
	for name, t := range sorted(m.todo.tests) {
		m.lintTest(name, t)
	}
	for t := range m.todo.resources {
		for name, r := range sorted(m.todo.resources[t]) {
			m.allowed(r.At)
			if schema.Type(t) == schema.Clusters {
				m.reservedName(r.At.pos, quoted("cluster", name), name)
			}
			if schema.Type(t) == schema.Secrets {
				m.error(r.At.pos, "unsupported", "never keep a secret in Git: refer to one with secrets", "secret %q: Envoy's own secrets are not taken", name)
			}
			if schema.Type(t) == schema.Listeners && len(r.Groups) == 0 {
				m.error(r.At.pos, "missing-field", `add groups: ["…"] beside the listener's own fields`, "listener %q names no groups: nobody would get it", name)
			}
		}
	}
}

func (m *model) lintTest(name string, t *test) {
	what, answers := quoted("test", name)+".expect", []string{"service", "split", "redirect", "status"}
	if t.Expect.Redirect != "" {
		answers = answers[:3] // which may say its status
	}
	m.oneOf(t.Expect.At, what, answers...)
	if t.Expect.Service != "" || t.Expect.Split != nil {
		return
	}
	for _, field := range []string{"path", "host", "headers", "timeout"} {
		if t.Expect.At.get(field) != nil {
			m.error(t.Expect.At.at(field), "one-of", "no service sees a request that is answered at once",
				"%s: %s is for service or split", what, field)
		}
	}
}

// quoted is how messages call an entry: service "web".
func quoted(kind, name string) string { return fmt.Sprintf("%s %q", kind, name) }

// oneOf wants exactly one of some fields in a struct.
func (m *model) oneOf(n *node, what string, names ...string) bool {
	var found []string
	for _, name := range names {
		if n.get(name) != nil {
			found = append(found, name)
		}
	}
	if len(found) == 1 {
		return true
	}
	list := "none"
	if len(found) > 1 {
		list = strings.Join(found, " and ")
	}
	m.error(n.pos, "one-of", n.apart(found), "%s: want exactly one of %s; found %s", what, strings.Join(names, ", "), list)
	return false
}

// apart says where each of some fields stands, if that is not in one file: a
// package inherits from the directories above it.
func (n *node) apart(fields []string) string {
	var where []string
	one := true
	for _, f := range fields {
		pos := n.at(f)
		one = one && pos.File == n.at(fields[0]).File
		where = append(where, fmt.Sprintf("%s is at %s", f, pos))
	}
	if one {
		return ""
	}
	return strings.Join(where, ", ")
}

// atMostOne wants one of some fields in a struct, or none.
func (m *model) atMostOne(n *node, what string, names ...string) {
	if slices.ContainsFunc(names, func(name string) bool { return n.get(name) != nil }) {
		m.oneOf(n, what, names...)
	}
}

// allowed refuses codes that do not exist, or that nobody can allow.
func (m *model) allowed(n *node) {
	allow := n.get("allow")
	if allow == nil {
		return
	}
	for _, f := range allow.fields {
		if !slices.Contains(allowable, f.name) {
			m.error(f.value.pos, "unknown-code", meant(f.name, allowable, "no such check can be allowed"), "%q is no check that can be allowed", f.name)
		}
	}
}

func (m *model) lintGroup(name string, g *group) {
	m.allowed(g.At)
	for field, glob := range map[string]string{"id": g.Match.ID, "user_agent": g.Match.UserAgent} {
		if _, err := path.Match(glob, ""); err != nil {
			m.error(g.At.at("match", field), "value", `* is any text, ? one character, [a-c] one of some`, "group %q: %q is no glob", name, glob)
		}
	}
	for i, w := range g.Rollout.Waves {
		m.oneOf(w.At, fmt.Sprintf("group %q: rollout.waves[%d]", name, i), "percent", "count", "rest")
	}
}

func (m *model) lintListener(name string, l *listener) {
	m.allowed(l.At)
	what := quoted("listener", name)
	m.oneOf(l.At, what, "bind", "target", "serve")
	m.nonEmpty(l.At, what, "groups", "nobody would get it")
	if strings.Contains(l.Target, ":///") || strings.HasPrefix(l.Target, "xds:") {
		m.error(l.At.at("target"), "value", "leave out xds:///", "%s: the target is what follows the scheme", what)
	}
	for field, addr := range map[string]string{"bind": l.Bind, "serve": l.Serve} {
		if addr != "" {
			m.ipAddress(l.At.at(field), what+": "+field, addr, "listen on an IP address, such as 0.0.0.0")
		}
	}
	if l.AccessLog != nil {
		m.atMostOne(l.AccessLog.At, what+".access_log", "format", "json")
	}
	if l.Bind == "" {
		for _, field := range boundOnly {
			if l.At.get(field) != nil && (field != "protocol" || l.Protocol != "http") {
				m.error(l.At.at(field), "client-mismatch", "it is for a proxy's port: a listener with bind", "%s: %s has no meaning for gRPC", what, field)
			}
		}
		return
	}
	if l.Protocol == "tcp" {
		for _, field := range []string{"https_redirect", "edge", "trusted_hops"} {
			if l.At.get(field) != nil {
				m.error(l.At.at(field), "protocol-mismatch", "it is for HTTP", "%s: %s has no meaning for TCP", what, field)
			}
		}
	}
}

// boundOnly are the fields of a listener that are for a bound port alone.
var boundOnly = []string{"protocol", "https_redirect", "tls", "access_log", "proxy_protocol", "edge", "trusted_hops", "idle_timeout"}

// nonEmpty wants a list to hold something.
func (m *model) nonEmpty(n *node, what, field, why string) {
	if l := n.get(field); l != nil && len(l.elems) == 0 {
		m.error(l.pos, "empty", "", "%s: %s is empty: %s", what, field, why)
	}
}

// ipAddress wants an IP and a port that exists.
func (m *model) ipAddress(pos schema.Pos, what, addr, hint string) {
	host, port := splitAddress(addr)
	if _, err := netip.ParseAddr(host); err != nil {
		m.error(pos, "address", hint, "%s: %q is no IP address", what, host)
	}
	m.port(pos, what, addr, port)
}

func (m *model) port(pos schema.Pos, what, addr string, port uint32) {
	if port == 0 {
		m.error(pos, "address", "", "%s: %q has no port between 1 and 65535", what, addr)
	}
}
