package compile

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/sluice-xds/sluice/schema"
)

// profile checks that a group's kind of client can do what it is given: a gRPC
// client takes part of what Envoy does, and refuses or passes over the rest
// (rules G6 to G8).
func (m *model) profile(g string) {
	client := m.groups[g].client()
	for name, l := range sorted(m.listeners) {
		if !slices.Contains(l.Groups, g) {
			continue
		}
		switch {
		case client == schema.GRPC && l.Bind != "":
			m.error(l.At.at("bind"), "client-mismatch", "use target for what its clients dial, serve for its servers",
				"listener %q binds a port, but the nodes of group %q are gRPC processes", name, g)
		case client == schema.Envoy && l.Bind == "" && (l.Target != "" || l.Serve != ""):
			field := "target"
			if l.Serve != "" {
				field = "serve"
			}
			m.error(l.At.at(field), "client-mismatch", "use bind for a proxy's port",
				"listener %q has a %s, but the nodes of group %q are Envoy proxies", name, field, g)
		case client == schema.GRPC && l.Target != "":
			m.profileTarget(name, l)
		}
	}
}

func (m *model) profileTarget(name string, l *listener) {
	routes := m.routesOf(name)
	matches := false
	for _, r := range routes {
		for _, h := range m.routes[r].Hosts {
			matches = matches || hostMatches(h, l.Target)
		}
		if m.todo.routes[r] != nil {
			m.profileRoutes(r, m.routes[r])
		}
	}
	if len(routes) > 0 && !matches {
		r := m.routes[routes[0]]
		m.error(r.At.at("hosts"), "grpc-host", fmt.Sprintf("add %q, as the clients dial it", l.Target),
			"no host of the routes on listener %q matches its target %q: every call would fail", name, l.Target)
	}
}

// hostMatches reports whether a domain takes a host.
func hostMatches(domain, host string) bool {
	domain, host = strings.ToLower(domain), strings.ToLower(host)
	switch {
	case domain == "*":
		return true
	case strings.HasPrefix(domain, "*"):
		return len(host) >= len(domain) && strings.HasSuffix(host, domain[1:])
	case strings.HasSuffix(domain, "*"):
		return len(host) >= len(domain) && strings.HasPrefix(host, domain[:len(domain)-1])
	}
	return domain == host
}

func (m *model) profileRoutes(name string, r *routes) {
	for i := range r.Rules {
		u, where := &r.Rules[i], fmt.Sprintf("routes %q: rules[%d]", name, i)
		refuse := func(pos schema.Pos, code, format string, args ...any) {
			m.report(r.Allow, schema.Diagnostic{Pos: pos, Code: code, Message: where + ": " + fmt.Sprintf(format, args...)})
		}
		for _, action := range []string{"redirect", "respond"} {
			if u.At.get(action) != nil {
				refuse(u.At.at(action), "grpc-action", "gRPC clients cannot %s: calls would fail", action)
			}
		}
		for _, field := range []string{"method", "methods", "template", "query", "query_matches"} {
			if u.Match.At.get(field) != nil {
				refuse(u.Match.At.at(field), "grpc-match", "gRPC clients match no %s: the rule would never match", strings.TrimSuffix(field, "_matches"))
			}
		}
		for _, field := range []string{"idle_timeout", "rewrite", "cors", "request_headers", "response_headers", "websocket"} {
			if u.At.get(field) != nil {
				refuse(u.At.at(field), "grpc-ignored", "gRPC clients pass over %s", field)
			}
		}
		for j := range u.Hash {
			if u.Hash[j].Header == "" {
				refuse(u.Hash[j].At.pos, "grpc-ignored", "gRPC clients hash headers alone")
			}
		}
		if u.Mirror != nil {
			refuse(u.At.at("mirror"), "grpc-mirror", "gRPC clients do not mirror calls")
		}
		if u.Retry != nil {
			for _, field := range []string{"per_try_timeout", "per_try_idle_timeout", "status_codes", "other_host"} {
				if u.Retry.At.get(field) != nil {
					refuse(u.Retry.At.at(field), "grpc-retry", "gRPC clients pass over %s", field)
				}
			}
			for j, on := range u.Retry.On {
				if known, ok := retryConditions[on]; ok && !known {
					refuse(u.Retry.At.elem("on", j), "grpc-retry", "gRPC clients do not retry on %q", on)
				}
			}
		}
		m.profileService(u.Service)
		for s := range u.Split {
			m.profileService(s)
		}
	}
}

// profileRaw checks a resource of the author's own that a gRPC group reaches.
func (lo *lowering) profileRaw(g string, client schema.Client, k schema.Key) {
	a := lo.authored[k]
	c, ok := a.msg.(*clusterv3.Cluster)
	if !ok || client != schema.GRPC {
		return
	}
	t := c.GetType()
	if c.GetClusterType() == nil && t != clusterv3.Cluster_EDS && t != clusterv3.Cluster_LOGICAL_DNS {
		lo.report(a.allow, schema.Diagnostic{
			Pos: a.body.at("type"), Code: "grpc-cluster",
			Message: fmt.Sprintf("cluster %q: the gRPC clients of group %q refuse the type %s", k.Name, g, t),
			Hint:    "known to them: EDS, LOGICAL_DNS and aggregates",
		})
	}
}

func (m *model) profileService(name string) {
	s := m.services[name]
	if s == nil || m.profiled[name] {
		return
	}
	m.profiled[name] = true
	for _, member := range s.Failover {
		m.profileService(member)
	}
	if s.TLS != nil {
		m.report(s.Allow, schema.Diagnostic{
			Pos: s.At.at("tls"), Code: "grpc-tls",
			Message: fmt.Sprintf("service %q: gRPC clients get their TLS from their own bootstrap and code", name),
		})
	}
	if b := s.Breakers; b != nil {
		for _, f := range b.At.fields {
			if f.name != "requests" {
				m.report(s.Allow, schema.Diagnostic{
					Pos: f.value.pos, Code: "grpc-ignored", Hint: "they know requests",
					Message: fmt.Sprintf("service %q: gRPC clients pass over breakers.%s", name, f.name),
				})
			}
		}
	}
	if s.LB == "maglev" || s.LB == "random" {
		m.report(s.Allow, schema.Diagnostic{
			Pos: s.At.at("lb"), Code: "grpc-lb",
			Message: fmt.Sprintf("service %q: gRPC clients refuse the load balancer %q", name, s.LB),
			Hint:    "known to them: round_robin, least_request, ring_hash",
		})
	}
}
