package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// authority is what every gRPC channel calls: its virtual host alone counts.
const authority = "x.com"

// grpcModel is a gRPC client. It asks for what it uses, by name: a cluster only
// once a route names it. The route is swapped before the balancer, so that a
// cluster must have been named, and ready, before requests go to it (rule G9).
type grpcModel struct {
	p         *proc
	channels  map[string]*channel // by listener
	listeners map[string]*item
	tables    map[string]*item
	clusters  map[string]*item
	endpoints map[string]*item
	ready     map[string]bool // clusters that have had endpoints since they came
}

// channel is what an application dialled.
type channel struct {
	table    *item // in use until the one that the listener names instead has come
	complete bool  // all that it sends to was ready once
}

func newGRPC(p *proc) *grpcModel {
	g := &grpcModel{
		p: p, channels: map[string]*channel{"l": {}}, listeners: map[string]*item{}, tables: map[string]*item{},
		clusters: map[string]*item{}, endpoints: map[string]*item{}, ready: map[string]bool{},
	}
	if p.h.rng.IntN(3) == 0 {
		g.channels["m"] = &channel{}
	}
	return g
}

func (g *grpcModel) of(t schema.Type) map[string]*item {
	return map[schema.Type]map[string]*item{
		schema.Listeners: g.listeners, schema.Routes: g.tables, schema.Clusters: g.clusters, schema.Endpoints: g.endpoints,
	}[t]
}

// apply takes the good resources of a response (rule G3). What it leaves out of
// clusters and listeners is gone (rule G5).
func (g *grpcModel) apply(m *message) (words string) {
	held := g.of(m.t)
	if m.t.FullState() {
		for _, name := range gone(m, g.p.delta, held) {
			delete(held, name)
		}
	}
	asks := g.p.types[m.t].asks
	for _, it := range m.items {
		switch {
		case !asks.names[it.Name]:
		case g.p.refuses(it):
			words = fmt.Sprintf("%s %s is not to my taste", m.t.Noun(), it.Name)
		default:
			held[it.Name] = it
		}
	}
	g.settle()
	return words
}

// settle works out what is used, from the listeners down, and forgets the rest.
func (g *grpcModel) settle() {
	for root, ch := range g.channels {
		l := g.listeners[root]
		if l == nil {
			ch.table, ch.complete = nil, false
			continue
		}
		if t := g.tables[l.rds]; t != nil && t != ch.table {
			g.swap(root, ch, t)
		}
	}
	for _, t := range [...]schema.Type{schema.Routes, schema.Clusters, schema.Endpoints} {
		used := g.uses(t)
		for name := range g.of(t) {
			if !used[name] {
				delete(g.of(t), name)
			}
		}
	}
	for name := range g.ready {
		if g.clusters[name] == nil {
			delete(g.ready, name)
		}
	}
	for name := range g.clusters {
		if g.resolved(name) {
			g.ready[name] = true
		}
	}
	for _, ch := range g.channels {
		ch.complete = ch.complete || ch.table != nil && !slices.ContainsFunc(ch.table.named(authority), func(c string) bool { return !g.ready[c] })
	}
}

// swap puts a table in use. Requests that were answered before and after must
// find the balancer of either side.
func (g *grpcModel) swap(root string, ch *channel, next *item) {
	last := ch.table
	ch.table = next
	if last == nil || !ch.complete || g.p.stranger {
		return
	}
	before := last.named(authority)
	for r := range g.p.h.expected(g.p) {
		if r.listener != root || r.host != authority {
			continue
		}
		for _, c := range next.to(r) {
			if !slices.Contains(before, c) {
				g.p.h.holes++
				g.p.h.fail("%s: %s is black-holed: it moves to %s, of which the client did not know", g.p, r, c)
			}
		}
	}
}

func (g *grpcModel) uses(t schema.Type) map[string]bool {
	names := map[string]bool{}
	switch t {
	case schema.Listeners:
		for root := range g.channels {
			names[root] = true
		}
	case schema.Routes:
		for _, l := range g.listeners {
			if l.rds != "" {
				names[l.rds] = true
			}
		}
	case schema.Clusters:
		var add func(name string)
		add = func(name string) {
			if names[name] {
				return
			}
			names[name] = true
			if c := g.clusters[name]; c != nil {
				for _, m := range c.members {
					add(m)
				}
			}
		}
		for _, ch := range g.channels {
			if ch.table != nil {
				for _, c := range ch.table.named(authority) {
					add(c)
				}
			}
		}
	case schema.Endpoints:
		for _, c := range g.clusters {
			if c.eds != "" {
				names[c.eds] = true
			}
		}
	}
	return names
}

func (g *grpcModel) wants(t schema.Type) *asking {
	names := g.uses(t)
	if len(names) == 0 && g.p.types[t].asks == nil {
		return nil
	}
	return &asking{names: names}
}

func (g *grpcModel) holdsBack(schema.Type) bool { return false }
func (g *grpcModel) next() time.Time            { return never }
func (g *grpcModel) tick()                      {}

// resolved reports whether all that a cluster is made of has come. A change in
// place is swapped in when it has.
func (g *grpcModel) resolved(name string) bool {
	c := g.clusters[name]
	if c == nil || c.eds != "" {
		return c != nil && (g.ready[name] || g.endpoints[c.eds] != nil)
	}
	return !slices.ContainsFunc(c.members, func(m string) bool { return !g.resolved(m) })
}

// missing says what a cluster lacks to send requests to.
func (g *grpcModel) missing(name string) string {
	c := g.clusters[name]
	switch {
	case c == nil:
		return "no cluster " + name
	case !g.resolved(name):
		return name + " is not ready"
	case c.eds != "":
		if it := g.endpoints[c.eds]; it != nil && !it.Usable {
			return name + " has no host"
		}
		return ""
	}
	why := name + " has no member"
	for _, m := range c.members {
		if why = g.missing(m); why == "" {
			return ""
		}
	}
	return why
}

// route sends a request over its channel. Before it was complete requests wait.
func (g *grpcModel) route(r request) string {
	ch := g.channels[r.listener]
	switch {
	case ch == nil || r.host != authority:
		return "nobody asks"
	case ch.table == nil:
		return "there is no listener, or no table"
	}
	to := ch.table.to(r)
	if len(to) == 0 {
		return "no route"
	}
	for _, c := range to {
		if why := g.missing(c); why != "" {
			return why
		}
	}
	return ""
}

func (g *grpcModel) routes() []*item {
	var all []*item
	for root, ch := range g.channels {
		if ch.table != nil {
			all = append(all, g.listeners[root], ch.table)
		}
	}
	return all
}

func (g *grpcModel) exact(s schema.Snapshot) bool {
	for root, ch := range g.channels {
		l := s.Of(schema.Listeners).Get(root)
		switch {
		case l == nil: // what is taken away may go later
		case g.listeners[root] == nil || g.listeners[root].Version != l.Version:
			return false
		case ch.table == nil || ch.table.bare != s.Of(schema.Routes).Get(itemFor(l).rds).Version:
			return false
		}
	}
	return true
}

func (g *grpcModel) whole(s schema.Snapshot) string {
	if !g.exact(s) {
		return "its routes are others"
	}
	for name := range g.uses(schema.Clusters) {
		if c := s.Of(schema.Clusters).Get(name); c == nil || g.clusters[name] == nil || c.Version != g.clusters[name].Version {
			return "it uses cluster " + name + ", and not as it should be"
		}
	}
	return ""
}
