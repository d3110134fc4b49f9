package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

func (m *model) lintService(name string, s *service) {
	m.allowed(s.At)
	what := quoted("service", name)
	m.reservedName(s.At.pos, what, name)
	m.oneOf(s.At, what, "endpoints", "dns", "discovered", "failover")
	if s.Discovered != "" {
		m.error(s.At.at("discovered"), "unsupported", "list the endpoints, or use dns", "%s: discovered endpoints are not supported yet", what)
	}
	if s.DNS != "" {
		_, port := splitAddress(s.DNS)
		m.port(s.At.at("dns"), what+": dns", s.DNS, port)
	} else {
		for _, field := range []string{"dns_type", "dns_refresh", "dns_family"} {
			if s.At.get(field) != nil {
				m.error(s.At.at(field), "no-effect", "", "%s: %s is for a service with dns", what, field)
			}
		}
	}
	if s.Failover != nil {
		m.lintFailover(what, s)
		return // all else is its members' own
	}
	m.lintEndpoints(what, s)
	m.lintLB(what, s)
	m.lintHealth(what, s)
	m.lintTLS(what, s)
	if s.Breakers != nil {
		m.atMostOne(s.Breakers.At, what+".breakers", "retries", "retry_budget")
	}
}

// reservedName refuses what could be the name on the wire of another service.
func (m *model) reservedName(pos schema.Pos, what, name string) {
	if stable := schema.StableName(name); stable != name {
		m.error(pos, "reserved-name", fmt.Sprintf("end it in another way than with %q", name[len(stable):]),
			"%s has a name of the kind that clusters of rename: \"safe\" have on the wire", what)
	}
}

// ownOnly are the fields of a service that a failover leaves to its members.
var ownOnly = []string{"lb_settings", "health", "outliers", "breakers", "tls", "idle_timeout"}

func (m *model) lintFailover(what string, s *service) {
	m.nonEmpty(s.At, what, "failover", "there is nothing to send requests to")
	for _, field := range ownOnly {
		if s.At.get(field) != nil {
			m.error(s.At.at(field), "no-effect", "say it of the members", "%s: %s is the members' own", what, field)
		}
	}
	seen := map[string]bool{}
	for i, member := range s.Failover {
		if seen[member] {
			m.error(s.At.elem("failover", i), "duplicate-name", "", "%s: failover lists %q twice", what, member)
		}
		seen[member] = true
	}
}

func (m *model) lintEndpoints(what string, s *service) {
	seen := map[string]bool{}
	priorities := map[uint32]bool{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		where := fmt.Sprintf("%s: endpoints[%d]", what, i)
		m.ipAddress(e.At.at("address"), where, e.Address, "endpoints are IP addresses; a name is resolved with dns: \"host:port\"")
		if seen[e.Address] {
			m.report(s.Allow, schema.Diagnostic{
				Pos: e.At.at("address"), Code: "duplicate-endpoint",
				Message: fmt.Sprintf("%s: %s is listed twice", where, e.Address), Hint: "give it a weight instead; gRPC refuses it",
			})
		}
		seen[e.Address] = true
		priorities[e.Priority] = true
	}
	for i := range s.Endpoints {
		if e := &s.Endpoints[i]; e.Priority > 0 && !priorities[e.Priority-1] {
			m.error(e.At.at("priority"), "priority-gap", "priorities are 0, 1, 2 and so on, without gaps",
				"%s: endpoints[%d] has priority %d, but none has %d", what, i, e.Priority, e.Priority-1)
		}
	}
}

func (m *model) lintLB(what string, s *service) {
	l := s.LBSettings
	if l == nil {
		return
	}
	for _, f := range l.At.fields {
		if lbs := lbSettingOf[f.name]; lbs != nil && !slices.Contains(lbs, s.LB) {
			m.error(f.value.pos, "no-effect", "", "%s.lb_settings: %s is for %s, and lb is %s", what, f.name, strings.Join(lbs, " and "), s.LB)
		}
	}
	if l.MinRing > 0 && l.MaxRing > 0 && l.MinRing > l.MaxRing {
		m.error(l.At.at("min_ring"), "range", "", "%s.lb_settings: min_ring is greater than max_ring", what)
	}
	if l.Table > 0 && !prime(l.Table) {
		m.error(l.At.at("table"), "value", "Envoy's default is 65537", "%s.lb_settings: %d is no prime number", what, l.Table)
	}
	if l.Zones != "" && (s.LB == "ring_hash" || s.LB == "maglev") && l.Zones == "near" {
		m.error(l.At.at("zones"), "no-effect", "", "%s.lb_settings: %s does not look at the proxy's zone", what, s.LB)
	}
}

func prime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

func (m *model) lintHealth(what string, s *service) {
	h := s.Health
	if h == nil || !m.oneOf(h.At, what+": health", "http", "grpc", "tcp") {
		return
	}
	kind := map[string]bool{"http": h.HTTP != "", "grpc": h.GRPC}
	for field, kinds := range map[string][]string{"host": {"http", "grpc"}, "statuses": {"http"}, "service": {"grpc"}} {
		if h.At.get(field) != nil && !slices.ContainsFunc(kinds, func(k string) bool { return kind[k] }) {
			m.error(h.At.at(field), "no-effect", "", "%s: health.%s is for a check by %s", what, field, strings.Join(kinds, " or "))
		}
	}
	if h.GRPC && !s.http2() {
		m.error(h.At.at("grpc"), "protocol-mismatch", `say protocol: "grpc"`, "%s: a gRPC check needs a service that speaks it", what)
	}
	if h.Timeout > 0 && h.Interval > 0 && h.Timeout > h.Interval {
		m.error(h.At.at("timeout"), "range", "", "%s: health.timeout is longer than interval", what)
	}
}
