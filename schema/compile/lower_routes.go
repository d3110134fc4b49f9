package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/sluice-xds/sluice/schema"
)

// host is a virtual host in the making: the domains that the same routes
// entries answer for, in the order in which their rules are tried.
type host struct {
	names   []string // of the entries
	domains []string
}

// hostsOf groups the domains of a listener. Envoy wants each domain once, so
// what two entries share is a virtual host of its own: both entries' rules, the
// higher priority first.
func (m *model) hostsOf(listener string) []host {
	if out, ok := m.hosts[listener]; ok {
		return out
	}
	claims := map[string][]string{} // domain -> entries
	for _, name := range m.routesOf(listener) {
		for _, d := range m.routes[name].Hosts {
			d = strings.ToLower(d)
			if !slices.Contains(claims[d], name) {
				claims[d] = append(claims[d], name)
			}
		}
	}
	by := map[string]*host{}
	for d, names := range sorted(claims) {
		key := strings.Join(names, "+")
		if by[key] == nil {
			by[key] = &host{names: names}
		}
		by[key].domains = append(by[key].domains, d)
	}
	var out []host
	for _, h := range sorted(by) {
		out = append(out, *h)
	}
	slices.SortStableFunc(out, func(a, b host) int {
		return cmp.Compare(m.routes[b.names[0]].Priority, m.routes[a.names[0]].Priority)
	})
	m.hosts[listener] = out
	return out
}

// routesOf lists the routes entries on a listener, by priority, then name.
func (m *model) routesOf(listener string) []string {
	if m.byListener == nil {
		m.byListener = map[string][]string{}
		for name, r := range sorted(m.routes) {
			for _, l := range r.Listeners {
				// Names come in order, so one that is listed twice is the last.
				if n := len(m.byListener[l]); n == 0 || m.byListener[l][n-1] != name {
					m.byListener[l] = append(m.byListener[l], name)
				}
			}
		}
		for _, names := range m.byListener {
			slices.SortStableFunc(names, func(a, b string) int {
				return cmp.Compare(m.routes[b].Priority, m.routes[a].Priority)
			})
		}
	}
	return m.byListener[listener]
}

// table makes the listener's route table: empty if nothing names the listener.
func (lo *lowering) table(name string, l *listener, whole schema.Origin) {
	t := &routev3.RouteConfiguration{
		Name: name,
		// What a client calls the host may carry the port that it dialled. gRPC
		// matches the target as it is dialled.
		IgnorePortInHostMatching: l.Bind != "",
	}
	origins := []schema.Origin{whole}
	for _, entry := range lo.routesOf(name) {
		origins = append(origins, lo.routes[entry].origins(entry)...)
	}
	for _, h := range lo.hostsOf(name) {
		t.VirtualHosts = append(t.VirtualHosts, lo.virtualHost(h, l))
	}
	if l.HTTPSRedirect {
		redirectRest(t)
	}
	key := schema.Key{Type: schema.Routes, Name: name}
	lo.share(lo.patched(key, t, name, l.At.pos), origins...)
}

// origins are where a table's part comes from that is made of an entry.
func (r *routes) origins(name string) []schema.Origin {
	origins := []schema.Origin{{Kind: "route", Name: name, Pos: r.At.pos}}
	for i := range r.Rules {
		origins = append(origins, schema.Origin{
			Kind: "route", Name: name, Field: fmt.Sprintf("rules[%d]", i), Pos: r.Rules[i].At.pos,
		})
	}
	return origins
}

func (lo *lowering) virtualHost(h host, l *listener) *routev3.VirtualHost {
	vh := &routev3.VirtualHost{Name: strings.Join(h.names, "+"), Domains: h.domains}
	for _, entry := range h.names {
		for i := range lo.routes[entry].Rules {
			vh.Routes = append(vh.Routes, lo.routes[entry].Rules[i].lower(l.Target != ""))
		}
	}
	if l.HTTPSRedirect {
		vh.Routes = append(vh.Routes, redirectRoute())
	}
	return vh
}

// redirectName is that of the route, and of the host, that https_redirect makes.
const redirectName = "https_redirect"

// redirectRoute sends what no rule answers to https.
func redirectRoute() *routev3.Route {
	return &routev3.Route{
		Name:  redirectName,
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{
			SchemeRewriteSpecifier: &routev3.RedirectAction_HttpsRedirect{HttpsRedirect: true},
		}},
	}
}

// redirectRest does so for the hosts that no routes have.
func redirectRest(t *routev3.RouteConfiguration) {
	if !slices.ContainsFunc(t.VirtualHosts, func(vh *routev3.VirtualHost) bool { return slices.Contains(vh.Domains, "*") }) {
		t.VirtualHosts = append(t.VirtualHosts, &routev3.VirtualHost{
			Name: redirectName, Domains: []string{"*"}, Routes: []*routev3.Route{redirectRoute()},
		})
	}
}
