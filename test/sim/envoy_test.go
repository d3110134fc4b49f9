package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// Times of Envoy.
const (
	// fetchTimeout is the default of initial_fetch_timeout (rule O12). It counts
	// what the server leaves unanswered: not the time without a stream, nor while
	// the process has not read what was sent. Those are outages that no order
	// could prevent.
	fetchTimeout = 15 * time.Second
	// drainTime is the default of --drain-time-s: how long the connections of a
	// listener that was removed or replaced go on.
	drainTime = 600 * time.Second
	// longest is how long a request takes at most: less than the 5 s that a
	// cluster outlives its last route (rule O10).
	longest = 4 * time.Second
)

// envoyModel is Envoy. Clusters and listeners warm beside the ones that they
// replace. Routes do not warm (rule O9).
type envoyModel struct {
	p *proc
	// withholds the ACK of clusters while one warms (rule O2). Before the first
	// clusters are warm it asks for no listeners.
	withholds bool
	begun     time.Time
	initial   bool // clusters have come

	clusters  map[string]*pools // that requests are sent to
	warming   map[string]*pools
	listeners map[string]*socket
	opening   map[string]*socket
	draining  []*socket
	tables    map[string]*item
	asked     bool // for listeners
	routed    map[string]time.Time
}

// pools are a cluster as it was sent once, with its own endpoints.
type pools struct {
	*item
	hosts *item
	since time.Time
}

// socket is a listener as it was sent once.
type socket struct {
	*item
	since, until time.Time
}

func newEnvoy(p *proc) *envoyModel {
	return &envoyModel{
		p: p, withholds: p.h.rng.IntN(5) > 0, begun: time.Now(),
		clusters: map[string]*pools{}, warming: map[string]*pools{}, listeners: map[string]*socket{},
		opening: map[string]*socket{}, tables: map[string]*item{}, routed: map[string]time.Time{},
	}
}

func (e *envoyModel) apply(m *message) string {
	switch m.t {
	case schema.Clusters:
		return e.applyClusters(m)
	case schema.Endpoints:
		for _, it := range m.items {
			e.endpoints(it)
		}
	case schema.Listeners:
		return e.applyListeners(m)
	case schema.Routes:
		// Removal of a route table is ignored (rule D10).
		for _, it := range m.items {
			if e.usesTable(it.Name) {
				e.tables[it.Name] = it
			}
		}
		e.openListeners()
	}
	return ""
}

// gone lists what a response takes away of what is held.
func gone[V any](m *message, delta bool, held ...map[string]V) []string {
	if delta {
		return m.removed
	}
	var out []string
	for _, h := range held {
		for _, name := range keys(h) {
			if !slices.ContainsFunc(m.items, func(it *item) bool { return it.Name == name }) {
				out = append(out, name)
			}
		}
	}
	return out
}

// refuses reports whether the process refuses a resource.
func (p *proc) refuses(it *item) bool { return it.refuser == "all" || it.refuser == p.id }

// applyClusters is no transaction: what is good is applied (rule D9).
func (e *envoyModel) applyClusters(m *message) (words string) {
	e.initial = true
	for _, name := range gone(m, e.p.delta, e.clusters, e.warming) {
		if since := time.Since(e.routed[name]); e.clusters[name] != nil && since < e.longest() && !e.p.stranger {
			e.p.h.holes++
			e.p.h.fail("%s: cluster %s is removed %s after a request was sent to it", e.p, name, since)
		}
		delete(e.clusters, name)
		delete(e.warming, name)
	}
	for _, it := range m.items {
		stands, warms := e.clusters[it.Name], e.warming[it.Name]
		switch {
		case e.p.refuses(it):
			words = fmt.Sprintf("cluster %s is not to my taste", it.Name)
		case warms != nil && warms.Version == it.Version, warms == nil && stands != nil && stands.Version == it.Version:
		case it.eds == "":
			e.clusters[it.Name] = &pools{item: it}
			delete(e.warming, it.Name)
		default:
			e.warming[it.Name] = &pools{item: it, since: time.Now()}
		}
	}
	return words
}

// longest is how long requests are under way: an operator who sets a shorter
// drain has none that take longer.
func (e *envoyModel) longest() time.Duration {
	if d := e.p.team.drain; d >= 0 {
		return min(longest, d*4/5)
	}
	return longest
}

func (e *envoyModel) drainTime() time.Duration {
	if d := e.p.team.drain; d >= 0 {
		return min(drainTime, d)
	}
	return drainTime
}

// endpoints go to every cluster that asked for them; one that warms is swapped in.
func (e *envoyModel) endpoints(it *item) {
	for _, c := range e.clusters {
		if c.eds == it.Name {
			c.hosts = it
		}
	}
	for name, c := range e.warming {
		if c.eds == it.Name {
			c.hosts = it
			e.clusters[name] = c
			delete(e.warming, name)
		}
	}
}

func (e *envoyModel) applyListeners(m *message) (words string) {
	for _, name := range gone(m, e.p.delta, e.listeners, e.opening) {
		e.drain(name)
		delete(e.opening, name)
	}
	for _, it := range m.items {
		stands, opens := e.listeners[it.Name], e.opening[it.Name]
		switch {
		case e.p.refuses(it):
			words = fmt.Sprintf("listener %s is not to my taste", it.Name)
		case opens != nil && opens.Version == it.Version, opens == nil && stands != nil && stands.Version == it.Version:
		default:
			e.opening[it.Name] = &socket{item: it, since: time.Now()}
		}
	}
	e.openListeners()
	return words
}

// openListeners lets those listen whose route table is there.
func (e *envoyModel) openListeners() {
	for _, name := range keys(e.opening) {
		l := e.opening[name]
		if l.rds == "" || e.tables[l.rds] != nil || e.timesOut(l.since) {
			e.drain(name)
			e.listeners[name] = l
			delete(e.opening, name)
		}
	}
}

func (e *envoyModel) drain(name string) {
	if l := e.listeners[name]; l != nil {
		l.until = time.Now().Add(e.drainTime())
		e.draining = append(e.draining, l)
		delete(e.listeners, name)
	}
}

func (e *envoyModel) eachListener(f func(*socket)) {
	for _, m := range [...]map[string]*socket{e.listeners, e.opening} {
		for _, l := range m {
			f(l)
		}
	}
	for _, l := range e.draining {
		f(l)
	}
}

func (e *envoyModel) usesTable(name string) (uses bool) {
	e.eachListener(func(l *socket) { uses = uses || l.rds == name })
	return uses
}

func (e *envoyModel) wants(t schema.Type) *asking {
	a := &asking{names: map[string]bool{}}
	switch t {
	case schema.Clusters:
		a.everything = true
	case schema.Listeners:
		if !e.asked && (!e.initial || len(e.warming) > 0) && !e.timesOut(e.begun) {
			return nil
		}
		e.asked, a.everything = true, true
	case schema.Endpoints:
		for _, m := range [...]map[string]*pools{e.clusters, e.warming} {
			for _, c := range m {
				if c.eds != "" {
					a.names[c.eds] = true
				}
			}
		}
	case schema.Routes:
		e.eachListener(func(l *socket) {
			if l.rds != "" {
				a.names[l.rds] = true
			}
		})
		for name := range e.tables {
			if !a.names[name] {
				delete(e.tables, name)
			}
		}
	}
	if !a.everything && len(a.names) == 0 && e.p.types[t].asks == nil {
		return nil
	}
	return a
}

func (e *envoyModel) holdsBack(t schema.Type) bool {
	return t == schema.Clusters && e.withholds && len(e.warming) > 0
}

// timeout is when the process gives up waiting for what it asked for at a time.
func (e *envoyModel) timeout(since time.Time) time.Time {
	if e.p.wire == nil || e.p.wire.waiting() > 0 {
		return never
	}
	if e.p.since.After(since) {
		since = e.p.since
	}
	return since.Add(fetchTimeout)
}

func (e *envoyModel) timesOut(since time.Time) bool { return !time.Now().Before(e.timeout(since)) }

func (e *envoyModel) next() time.Time {
	at := never
	for _, c := range e.warming {
		at = earlier(at, e.timeout(c.since))
	}
	for _, l := range e.opening {
		at = earlier(at, e.timeout(l.since))
	}
	for _, l := range e.draining {
		at = earlier(at, l.until)
	}
	if !e.asked {
		at = earlier(at, e.timeout(e.begun))
	}
	return at
}

// tick gives up waiting for what does not come.
func (e *envoyModel) tick() {
	for _, name := range keys(e.warming) {
		if c := e.warming[name]; e.timesOut(c.since) {
			e.p.h.log("%s: cluster %s warms no longer: its endpoints did not come", e.p, name)
			e.clusters[name] = c
			delete(e.warming, name)
		}
	}
	e.openListeners()
	e.draining = slices.DeleteFunc(e.draining, func(l *socket) bool { return !time.Now().Before(l.until) })
}

// route sends a request through the listener, and through those that it replaced
// and that still have connections.
func (e *envoyModel) route(r request) string {
	l := e.listeners[r.listener]
	if l == nil {
		return "there is no listener"
	}
	to := e.through(l, r)
	if len(to) == 0 {
		return "no route"
	}
	var why []string
	for _, name := range to {
		e.routed[name] = time.Now()
		if w := e.reach(name); w != "" {
			why = append(why, w)
		}
	}
	for _, d := range e.draining { // whose requests end with it, if not before
		for _, name := range e.through(d, r) {
			if w := e.reach(name); w != "" && d.Name == r.listener {
				why = append(why, w)
			}
		}
	}
	return strings.Join(why, "; ")
}

// through lists the clusters that a listener sends a request to.
func (e *envoyModel) through(l *socket, r request) []string {
	switch {
	case l.tcp != "" && r.host == "":
		return []string{l.tcp}
	case l.rds == "" || r.host == "" || e.tables[l.rds] == nil:
		return nil
	}
	return e.tables[l.rds].to(r)
}

// reach says why a request to a cluster finds nobody.
func (e *envoyModel) reach(name string) string {
	c := e.clusters[name]
	switch {
	case c == nil && e.warming[name] != nil:
		return name + " is warming"
	case c == nil:
		return "no cluster " + name
	}
	if c.eds != "" {
		if c.hosts == nil || !c.hosts.Usable {
			return name + " has no host"
		}
		return ""
	}
	for _, m := range c.members {
		if e.reach(m) == "" {
			return ""
		}
	}
	return name + " has no member with a host"
}

func (e *envoyModel) routes() []*item {
	var all []*item
	e.eachListener(func(l *socket) { all = append(all, l.item) })
	for _, t := range e.tables {
		all = append(all, t)
	}
	return all
}

func (e *envoyModel) exact(s schema.Snapshot) bool {
	for l := range s.Of(schema.Listeners).All() {
		mine := e.listeners[l.Name]
		if mine == nil || mine.Version != l.Version {
			return false
		}
		if mine.rds != "" && (e.tables[mine.rds] == nil || e.tables[mine.rds].bare != s.Of(schema.Routes).Get(mine.rds).Version) {
			return false
		}
	}
	return true
}

func (e *envoyModel) whole(s schema.Snapshot) string {
	if !e.exact(s) {
		return "its routes are others"
	}
	for c := range s.Of(schema.Clusters).All() {
		if mine := e.clusters[c.Name]; mine == nil || mine.Version != c.Version {
			return "it lacks cluster " + c.Name
		}
	}
	if len(e.listeners) != s.Of(schema.Listeners).Len() {
		return fmt.Sprintf("it has the listeners %v", keys(e.listeners))
	}
	if len(e.clusters) != s.Of(schema.Clusters).Len() {
		return fmt.Sprintf("it has the clusters %v", keys(e.clusters))
	}
	return ""
}
