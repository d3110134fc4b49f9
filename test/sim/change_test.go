package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// pool are the names that clusters are given: few, so that they come back.
var pool = []string{"a", "b", "c", "d", "e"}

var (
	domains = []string{"*", "x.com", "y.com"}
	paths   = []string{"/", "/p"}
)

// author writes commits.
type author struct {
	rng  *rand.Rand
	ever map[string]bool // endpoints that were ever given
}

func (a *author) one(in int) bool { return a.rng.IntN(in) == 0 }

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// first is the configuration that a history begins with.
func (a *author) first(c *commit, t *team) {
	g := conf{clusters: map[string]cluster{}, tables: map[string][]route{}, listeners: map[string]listener{}}
	for _, name := range pool[:2+a.rng.IntN(3)] {
		g.clusters[name] = cluster{eds: name}
		a.endpoints(c, name, false)
	}
	for _, name := range []string{"r", "s"}[:1+a.rng.IntN(2)] {
		g.tables[name] = a.table(g)
	}
	g.listeners["l"] = listener{table: "r"}
	if a.one(3) {
		g.listeners["m"] = listener{table: pick(a.rng, keys(g.tables))}
	}
	c.groups[t.name] = g
}

func (a *author) table(g conf) []route {
	var out []route
	for i, d := range domains {
		if i > 0 && !a.one(3) {
			continue
		}
		if a.one(3) {
			out = append(out, a.aim(g, route{host: d, path: "/p"}))
		}
		out = append(out, a.aim(g, route{host: d, path: "/"}))
	}
	return out
}

// aim sends a route to one cluster or two.
func (a *author) aim(g conf, r route) route {
	names := keys(g.clusters)
	r.to, r.weight = []string{pick(a.rng, names)}, 0
	if other := pick(a.rng, names); a.one(3) && other != r.to[0] {
		r.to, r.weight = append(r.to, other), 10+80*a.rng.IntN(2)
	}
	return r
}

// endpoints gives a name its hosts, if it has none. Only what never had any may
// be empty: to take the last host of a service away is the author's own outage.
func (a *author) endpoints(c *commit, name string, mayBeEmpty bool) {
	if _, ok := c.live[name]; ok {
		return
	}
	c.live[name] = hosts{empty: mayBeEmpty && !a.ever[name] && a.one(5)}
	a.ever[name] = true
}

// change is one thing that an author does to a configuration. It says what, or
// nothing if there was nothing to do.
type change func(a *author, c *commit, g *conf, t *team) string

var changes = []struct {
	weight int
	do     change
}{
	{3, addService},
	{4, moveRoute},
	{2, removeService},
	{2, renameService},
	{3, changeInPlace},
	{2, changeEndpointsName},
	{3, changeEndpoints},
	{2, changeListener},
	{2, moveListener},
	{1, addListener},
	{1, removeListener},
	{1, changeTable},
	{1, aggregate},
	{1, plantRefusal},
}

func (a *author) change(c *commit, g *conf, t *team) string {
	total := 0
	for _, ch := range changes {
		total += ch.weight
	}
	n := a.rng.IntN(total)
	for _, ch := range changes {
		if n -= ch.weight; n < 0 {
			return ch.do(a, c, g, t)
		}
	}
	return ""
}

func addService(a *author, c *commit, g *conf, _ *team) string {
	name := pick(a.rng, pool)
	if _, ok := g.clusters[name]; ok {
		return ""
	}
	g.clusters[name] = cluster{version: a.rng.IntN(2), eds: name}
	a.endpoints(c, name, true)
	table := pick(a.rng, keys(g.tables))
	i := a.rng.IntN(len(g.tables[table]))
	g.tables[table][i].to = []string{name}
	return fmt.Sprintf("add %s, and send %s route %d there", name, table, i)
}

func moveRoute(a *author, _ *commit, g *conf, _ *team) string {
	table := pick(a.rng, keys(g.tables))
	i := a.rng.IntN(len(g.tables[table]))
	g.tables[table][i] = a.aim(*g, g.tables[table][i])
	return fmt.Sprintf("%s route %d to %v", table, i, g.tables[table][i].to)
}

func removeService(a *author, _ *commit, g *conf, _ *team) string {
	name := pick(a.rng, keys(g.clusters))
	if len(g.clusters) < 2 || g.member(name) {
		return ""
	}
	delete(g.clusters, name)
	to := pick(a.rng, keys(g.clusters))
	g.replace(name, to)
	return fmt.Sprintf("remove %s, whose traffic goes to %s", name, to)
}

// member reports whether a cluster is part of an aggregate. Those do not change in
// place: that is a hazard of its own (rule P4).
func (c conf) member(name string) bool {
	return slices.ContainsFunc(keys(c.clusters), func(k string) bool { return slices.Contains(c.clusters[k].members, name) })
}

// replace has everything refer to another cluster.
func (c *conf) replace(old, to string) {
	for name, routes := range c.tables {
		for i, r := range routes {
			r.to = slices.Clone(r.to)
			for j := range r.to {
				if r.to[j] == old {
					r.to[j] = to
				}
			}
			c.tables[name][i].to = slices.Compact(r.to)
		}
	}
	for name, l := range c.listeners {
		if l.tcp == old {
			l.tcp = to
			c.listeners[name] = l
		}
	}
}

func renameService(a *author, c *commit, g *conf, _ *team) string {
	old, name := pick(a.rng, keys(g.clusters)), pick(a.rng, pool)
	if _, ok := g.clusters[name]; ok || len(g.clusters[old].members) > 0 || g.member(old) {
		return ""
	}
	k := g.clusters[old]
	delete(g.clusters, old)
	if k.eds == old {
		k.eds = name
		a.endpoints(c, name, false)
	}
	g.clusters[name] = k
	g.replace(old, name)
	return fmt.Sprintf("rename %s to %s", old, name)
}

func changeInPlace(a *author, _ *commit, g *conf, _ *team) string {
	name := pick(a.rng, keys(g.clusters))
	k := g.clusters[name]
	k.version++
	g.clusters[name] = k
	return "change " + name + " in place"
}

func changeEndpointsName(a *author, c *commit, g *conf, _ *team) string {
	name := pick(a.rng, keys(g.clusters))
	k := g.clusters[name]
	if len(k.members) > 0 {
		return ""
	}
	k.eds = pick(a.rng, []string{name, "all", name + "-2"})
	if k.eds == g.clusters[name].eds {
		return ""
	}
	a.endpoints(c, k.eds, false)
	if c.live[k.eds].empty {
		return ""
	}
	g.clusters[name] = k
	return fmt.Sprintf("%s takes the endpoints %s", name, k.eds)
}

func changeEndpoints(a *author, c *commit, _ *conf, _ *team) string {
	name := pick(a.rng, keys(c.live))
	c.live[name] = hosts{version: c.live[name].version + 1}
	return "other endpoints of " + name
}

func changeListener(a *author, _ *commit, g *conf, _ *team) string {
	if len(g.listeners) == 0 {
		return ""
	}
	name := pick(a.rng, keys(g.listeners))
	l := g.listeners[name]
	l.version++
	g.listeners[name] = l
	return "change listener " + name
}

func moveListener(a *author, _ *commit, g *conf, t *team) string {
	if len(g.listeners) == 0 {
		return ""
	}
	name := pick(a.rng, keys(g.listeners))
	l := g.listeners[name]
	l.table, l.tcp = pick(a.rng, []string{"r", "s", "t"}), ""
	if _, ok := g.tables[l.table]; !ok {
		g.tables[l.table] = a.table(*g)
	}
	if t.client == schema.Envoy && a.one(4) {
		l.table, l.tcp = "", pick(a.rng, keys(g.clusters))
	}
	g.listeners[name] = l
	return fmt.Sprintf("listener %s to %s%s", name, l.table, l.tcp)
}

func addListener(a *author, _ *commit, g *conf, _ *team) string {
	name := pick(a.rng, []string{"l", "m"})
	if _, ok := g.listeners[name]; ok {
		return ""
	}
	g.listeners[name] = listener{version: a.rng.IntN(2), table: pick(a.rng, keys(g.tables))}
	return "add listener " + name
}

func removeListener(a *author, _ *commit, g *conf, _ *team) string {
	name := pick(a.rng, []string{"l", "m"})
	l, ok := g.listeners[name]
	if !ok || len(g.listeners) == 1 {
		return ""
	}
	delete(g.listeners, name)
	for _, other := range g.listeners {
		if other.table == l.table {
			return "remove listener " + name
		}
	}
	if l.table != "" && len(g.tables) > 1 {
		delete(g.tables, l.table)
	}
	return "remove listener " + name + " and its table"
}

func changeTable(a *author, _ *commit, g *conf, _ *team) string {
	name := pick(a.rng, keys(g.tables))
	g.tables[name] = a.table(*g)
	return "write table " + name + " anew"
}

func aggregate(a *author, _ *commit, g *conf, _ *team) string {
	var members []string
	for _, name := range keys(g.clusters) {
		if len(g.clusters[name].members) == 0 && a.one(2) {
			members = append(members, name)
		}
	}
	name := "all of " + strings.Join(members, " ")
	if _, ok := g.clusters[name]; ok || len(members) == 0 {
		return ""
	}
	g.clusters[name] = cluster{members: members}
	table := pick(a.rng, keys(g.tables))
	i := a.rng.IntN(len(g.tables[table]))
	g.tables[table][i].to = []string{name}
	return fmt.Sprintf("add %s, and send %s route %d there", name, table, i)
}

// plantRefusal changes something so that some node refuses it.
func plantRefusal(a *author, _ *commit, g *conf, t *team) string {
	who := pick(a.rng, []string{"all", t.name + "-0"})
	if a.one(3) && len(g.listeners) > 0 {
		name := pick(a.rng, keys(g.listeners))
		l := g.listeners[name]
		l.refuser = who
		g.listeners[name] = l
		return fmt.Sprintf("listener %s is refused by %s", name, who)
	}
	name := pick(a.rng, keys(g.clusters))
	k := g.clusters[name]
	k.refuser = who
	g.clusters[name] = k
	return fmt.Sprintf("%s is refused by %s", name, who)
}

// mend takes out all that is refused.
func (c *conf) mend() {
	for name, k := range c.clusters {
		k.refuser = ""
		c.clusters[name] = k
	}
	for name, l := range c.listeners {
		l.refuser = ""
		c.listeners[name] = l
	}
}

// next writes a commit on top of another.
func (a *author) next(last *commit, teams []*team, number int) (*commit, []string) {
	c := &commit{id: fmt.Sprintf("%040d", number), number: number, groups: map[string]conf{}, live: maps.Clone(last.live)}
	var did []string
	for _, t := range teams {
		g := last.groups[t.name].clone()
		if len(teams) == 1 || a.one(2) {
			for range 1 + a.rng.IntN(3) {
				if words := a.change(c, &g, t); words != "" {
					did = append(did, t.name+": "+words)
				}
			}
		}
		c.groups[t.name] = g
	}
	c.lower(teams)
	return c, did
}

// revert writes a commit that takes every group back to an older one. Endpoints
// stay as they are.
func (a *author) revert(last, old *commit, teams []*team, number int) *commit {
	c := &commit{id: fmt.Sprintf("%040d", number), number: number, groups: old.groups, live: maps.Clone(last.live)}
	c.lower(teams)
	return c
}

// mend writes a commit without anything that is or was refused.
func (a *author) mend(last *commit, teams []*team) *commit {
	c := &commit{id: fmt.Sprintf("%040d", last.number+1), number: last.number + 1, groups: map[string]conf{}, live: map[string]hosts{}}
	for name, e := range last.live {
		c.live[name] = hosts{version: e.version + 1}
	}
	for _, t := range teams {
		g := last.groups[t.name].clone()
		g.mend()
		for name, k := range g.clusters {
			k.version += 100
			g.clusters[name] = k
		}
		c.groups[t.name] = g
	}
	c.lower(teams)
	return c
}
