package planner

import (
	"maps"
	"slices"
	"weak"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// TrafficChange is what becomes of one class of requests.
type TrafficChange struct {
	Table  string   // the route table's name, or that of what holds it
	Hosts  []string // domains
	Match  string   // in words
	Before Answer
	After  Answer
	// Note says what is odd about the route that the target brings: that it is
	// never reached, or that its weights do not add up.
	Note string
}

// Moves reports whether requests go elsewhere: else there is only the note.
func (c *TrafficChange) Moves() bool { return !c.Before.equal(c.After) }

// Answer is where requests go. The zero Answer is a 404.
type Answer struct {
	Weights  map[string]uint32 // by cluster
	Redirect string
	Status   uint32 // of a direct response
	Other    string // what else: only a running proxy can tell, or the node itself answers
}

func (a Answer) equal(b Answer) bool {
	return a.Redirect == b.Redirect && a.Status == b.Status && a.Other == b.Other && maps.Equal(a.Weights, b.Weights)
}

// stable is the answer in the names that authors gave: a service that is renamed at
// each change stays what it is.
func (a Answer) stable() Answer {
	if len(a.Weights) == 0 {
		return a
	}
	w := make(map[string]uint32, len(a.Weights))
	for c, n := range a.Weights {
		w[schema.StableName(c)] += n
	}
	a.Weights = w
	return a
}

// Impact compares where requests go under two snapshots, by domain and by the
// matches of either's routes (rule P11). Of two routes that would take a request
// the first counts, as far as their words tell: a route without conditions
// beside a prefix takes all below it.
func Impact(from, to schema.Snapshot) ([]TrafficChange, error) {
	var out []TrafficChange
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		for old, r := range schema.Diff(from.Of(t), to.Of(t)) {
			err := classes(old, r, func(domains []string, l envoy.RouteLine, was, is Answer, note string) {
				was, is = was.stable(), is.stable()
				if note != "" || !was.equal(is) {
					out = append(out, TrafficChange{keyOf(old, r).Name, domains, l.Match, was, is, note})
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// classes calls f for the classes of requests that two versions of a resource,
// either of which may be nil, tell apart, with the answers of both: those of the
// newer first, and what is odd about a route that is not the older's.
func classes(old, r *schema.Resource, f func(domains []string, l envoy.RouteLine, was, is Answer, note string)) error {
	was, err := readTraffic(old)
	if err != nil {
		return err
	}
	is, err := readTraffic(r)
	if err != nil {
		return err
	}
	newDomains, oldDomains := differing(is.list, was.list, func(envoy.Host) bool { return false })
	order, names := pairs(&newDomains, &oldDomains)
	for _, p := range order {
		if p.a >= 0 && p.b >= 0 && is.list[p.a].Equal(was.list[p.b]) {
			continue
		}
		newer, err := is.host(p.a)
		if err != nil {
			return err
		}
		older, err := was.host(p.b)
		if err != nil {
			return err
		}
		for i, l := range newer.all() {
			note := newer.odd(i)
			if note != "" && older.has(l) && older.odd(older.words[l.Match]) == note {
				note = "" // nothing new
			}
			f(names[p], l, older.answer(l), newer.answer(l), note)
		}
		for _, l := range older.all() {
			if !newer.has(l) {
				f(names[p], l, older.answer(l), newer.answer(l), "")
			}
		}
	}
	return nil
}

// traffic is what the route tables in a resource say, by host; hosts are read
// when they are asked for.
type traffic struct {
	list []envoy.Host
	read map[int]*host
}

// host is a virtual host, or nil. Of routes with the same words only the first
// counts.
type host struct {
	lines []envoy.RouteLine
	words map[string]int // by match
	// Without conditions beside the path:
	prefix, separated, exact map[string]int
}

// readTraffic reads a resource, which may be nil.
func readTraffic(r *schema.Resource) (*traffic, error) {
	list, err := hostsOf(r)
	return &traffic{list: list, read: map[int]*host{}}, err
}

func (t *traffic) host(i int) (*host, error) {
	if i < 0 {
		return nil, nil
	}
	if h := t.read[i]; h != nil {
		return h, nil
	}
	lines, err := t.list[i].Lines()
	if err != nil {
		return nil, err
	}
	h := &host{words: map[string]int{}, prefix: map[string]int{}, separated: map[string]int{}, exact: map[string]int{}}
	for _, l := range lines {
		h.add(l)
	}
	t.read[i] = h
	return h, nil
}

func (h *host) add(l envoy.RouteLine) {
	i := len(h.lines)
	h.lines = append(h.lines, l)
	first := func(m map[string]int, k string) {
		if _, ok := m[k]; !ok {
			m[k] = i
		}
	}
	first(h.words, l.Match)
	if l.Headers != "" {
		return
	}
	switch l.PathKind {
	case envoy.PathPrefix:
		first(h.prefix, l.Path)
	case envoy.PathSeparated:
		first(h.separated, l.Path)
	case envoy.PathExact:
		first(h.exact, l.Path)
	}
}

func (h *host) all() []envoy.RouteLine {
	if h == nil {
		return nil
	}
	return h.lines
}

func (h *host) has(l envoy.RouteLine) bool {
	if h == nil {
		return false
	}
	_, ok := h.words[l.Match]
	return ok
}

// answer is what becomes of the requests that a line matches: the answer of the
// first line that takes all of them.
func (h *host) answer(l envoy.RouteLine) Answer {
	if h == nil {
		return Answer{}
	}
	if at := h.first(l); at < len(h.lines) {
		return answerOf(h.lines[at])
	}
	return Answer{}
}

// odd says what is odd about a line, if anything.
func (h *host) odd(i int) string {
	l := h.lines[i]
	if at := h.first(l); at < i {
		return "never reached: " + h.lines[at].Match + " comes first"
	}
	return l.Note
}

// first is the first line that takes all requests that l matches, or behind all.
func (h *host) first(l envoy.RouteLine) int {
	at := len(h.lines)
	try := func(m map[string]int, k string) {
		if i, ok := m[k]; ok {
			at = min(at, i)
		}
	}
	try(h.words, l.Match)
	switch l.PathKind {
	case envoy.PathExact, envoy.PathPrefix, envoy.PathSeparated:
		for i := range len(l.Path) + 1 {
			try(h.prefix, l.Path[:i])
			if i < len(l.Path) && l.Path[i] == '/' {
				try(h.separated, l.Path[:i])
			}
		}
		if l.PathKind != envoy.PathPrefix {
			try(h.separated, l.Path)
		}
		if l.PathKind == envoy.PathExact {
			try(h.exact, l.Path)
		}
	case envoy.PathRegex, envoy.PathTemplate:
		try(h.prefix, "")
		try(h.prefix, "/")
	}
	return at
}

func answerOf(l envoy.RouteLine) Answer {
	a := Answer{Weights: l.Weights, Redirect: l.Redirect, Status: l.Status, Other: l.Unprovable}
	if l.Kind == envoy.Local {
		a.Other = "answered by the node itself"
	}
	return a
}

// gaining lists the clusters on which some route has more weight in the target
// than in what the session may hold, or a listener begins to send to directly
// (rule P14). Of tables that it may hold in two versions both count.
func (f *finder) gaining() map[string]bool {
	gains := map[string]bool{}
	older := f.from.Maybe.Union(f.from.Acked)
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		for old, r := range schema.Diff(f.now.Of(t), f.target.Of(t)) {
			gain(gains, old, r)
		}
		if older.Of(t).Equal(f.now.Of(t)) {
			continue
		}
		for old, r := range schema.Diff(older.Of(t), f.target.Of(t)) {
			if r != nil && !same(old, f.now.Get(r.Key)) {
				gain(gains, old, r)
			}
		}
	}
	if f.client == schema.GRPC {
		for _, s := range [...]schema.Snapshot{f.from.Acked, f.now} {
			f.leaves(s, func(left, taken schema.Key) {
				// What a table names warm, a client that came back may hold without it.
				for _, from := range [...]schema.Snapshot{f.from.Acked, f.now} {
					if old := from.Get(left); old != nil {
						gain(gains, old, f.target.Get(taken))
					}
				}
			})
		}
	}
	return gains
}

// gain adds the clusters that r sends more to than old does.
func gain(gains map[string]bool, old, r *schema.Resource) {
	if r == nil {
		return
	}
	for _, name := range derived(r, question{about: "gains", with: weak.Make(old)}, func() []string { return gainsOf(old, r) }) {
		gains[name] = true
	}
}

// gainsOf lists the clusters that r sends more to than old does, which may be nil.
func gainsOf(old, r *schema.Resource) (gains []string) {
	routes := map[string]bool{}
	// A table that cannot be read gains nothing that could be told: Prove
	// reports it.
	_ = classes(old, r, func(_ []string, _ envoy.RouteLine, was, is Answer, _ string) {
		before, after := was.shares(), is.shares()
		for c, share := range after {
			routes[c] = true
			if share > before[c] {
				gains = append(gains, c)
			}
		}
	})
	if r.Type == schema.Routes {
		return gains // what else it names takes copies of requests, and no weight
	}
	for _, ref := range r.Refs {
		if ref.Type == schema.Clusters && ref.Edge == schema.Traffic && !routes[ref.Name] && !refers(old, ref.Key) {
			gains = append(gains, ref.Name)
		}
	}
	return gains
}

func refers(r *schema.Resource, to schema.Key) bool {
	return r != nil && slices.ContainsFunc(r.Refs, func(ref schema.Ref) bool { return ref.Key == to })
}

// shares are the parts of the requests that each cluster is sent.
func (a Answer) shares() map[string]float64 {
	total := 0.0
	for _, w := range a.Weights {
		total += float64(w)
	}
	out := make(map[string]float64, len(a.Weights))
	for c, w := range a.Weights {
		out[c] = float64(w) / total
	}
	return out
}
