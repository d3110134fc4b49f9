package compile

import (
	"maps"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// onlyRules reports whether two routes differ in nothing but their rules, as far as
// no listener would change by it.
func (r *routes) onlyRules(o *routes) bool {
	cors := func(u rule) bool { return u.CORS != nil }
	return len(r.Rules) > 0 && len(o.Rules) > 0 && r.At.without("rules").same(o.At.without("rules"), false) &&
		slices.ContainsFunc(r.Rules, cors) == slices.ContainsFunc(o.Rules, cors)
}

// local reports whether new rules of routes concern nothing but their own virtual
// host: they have that for themselves, nobody patched its table, and they lead where
// the old ones led.
func (st *state) local(name string, r *routes) bool {
	m := st.lo.model
	for _, l := range r.Listeners {
		if m.hostOf(l, name) == nil || m.patches[schema.Routes][l] != nil {
			return false
		}
	}
	return maps.Equal(st.mentioned(m.routes[name].At), st.mentioned(r.At))
}

func (st *state) mentioned(n *node) map[*users]bool {
	out := map[*users]bool{}
	st.mentions(n, func(u *users) { out[u] = true })
	return out
}

// hostOf is the virtual host of a listener that is that of some routes alone, or
// nil if they share one.
func (m *model) hostOf(listener, routes string) (own *host) {
	for i, h := range m.hostsOf(listener) {
		if !slices.Contains(h.names, routes) {
			continue
		}
		if len(h.names) > 1 {
			return nil
		}
		own = &m.hosts[listener][i]
	}
	return own
}

// reroute puts the virtual host of routes with new rules into the place of the old
// one. It reports false if the table would refer to something else by it.
func (lo *lowering) reroute(name string, r *routes) bool {
	for _, l := range slices.Compact(slices.Sorted(slices.Values(r.Listeners))) {
		key := schema.Key{Type: schema.Routes, Name: l}
		table := lo.shared[key]
		if table == nil {
			return false
		}
		// A table of this host alone is checked in the place of the whole.
		alone := &routev3.RouteConfiguration{Name: l, VirtualHosts: []*routev3.VirtualHost{
			lo.virtualHost(*lo.hostOf(l, name), lo.model.listeners[l]),
		}}
		part := lo.resource(alone, l, r.At.pos)
		if part == nil {
			return false
		}
		next, old, err := envoy.ReplaceHost(table, alone.VirtualHosts[0])
		if err != nil {
			return false
		}
		was, err := envoy.Resource(&routev3.RouteConfiguration{Name: l, VirtualHosts: []*routev3.VirtualHost{old}}, l)
		if err != nil || !slices.Equal(was.Refs, part.Refs) {
			return false
		}
		lo.shared[key] = next
		for i := range lo.fleet.Groups {
			g := &lo.fleet.Groups[i]
			if had := g.Snapshot.Get(key); had != nil {
				g.Snapshot = g.Snapshot.Replace(key.Type, g.Snapshot.Of(key.Type).With(schema.Restore(key, next.Version, had.Refs, next.Body)))
				lo.newer(g.Name, lo.groups[g.Name], []*schema.Resource{part})
			}
		}
		lo.fleet.Provenance[key] = replacedOrigins(lo.fleet.Provenance[key], name, r)
	}
	return true
}

// replacedOrigins are those of a table after routes got other rules.
func replacedOrigins(all []schema.Origin, name string, r *routes) []schema.Origin {
	its := func(o schema.Origin) bool { return o.Kind == "route" && o.Name == name }
	from := slices.IndexFunc(all, its)
	if from < 0 {
		return all
	}
	to := from
	for to < len(all) && its(all[to]) {
		to++
	}
	return slices.Concat(all[:from], r.origins(name), all[to:])
}

// place says anew where the parts of moved routes stand.
func (lo *lowering) place(name string, r *routes) bool {
	for _, l := range r.Listeners {
		for _, k := range [...]schema.Key{{Type: schema.Routes, Name: l}, {Type: schema.Listeners, Name: lo.model.listeners[l].wireName(l)}} {
			origins := slices.Clone(lo.fleet.Provenance[k])
			for i := range origins {
				o := &origins[i]
				if o.Kind != "route" || o.Name != name {
					continue
				}
				n := r.At
				if o.Field != "" {
					if n = r.At.follow(o.Field); n == r.At {
						return false
					}
				}
				o.Pos = n.pos
			}
			if origins != nil {
				lo.fleet.Provenance[k] = origins
			}
		}
	}
	return true
}
