package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// used are the types that the models speak, in the order in which they are made.
var used = [...]schema.Type{schema.Clusters, schema.Endpoints, schema.Listeners, schema.Routes}

// model is what a kind of client does with what it is sent.
type model interface {
	// apply takes in a response, and refuses it with words.
	apply(m *message) (words string)
	// wants is what is asked for of a type; nil without asking.
	wants(t schema.Type) *asking
	// holdsBack reports whether requests of a type wait.
	holdsBack(t schema.Type) bool
	// next is when something happens by itself, and tick has it happen.
	next() time.Time
	tick()
	// route says why a request is not answered, or nothing.
	route(r request) (why string)
	// routes are the listeners and tables by which requests go.
	routes() []*item
	// exact reports whether requests are routed as a snapshot says, and whole
	// whether that is all that is held.
	exact(s schema.Snapshot) bool
	whole(s schema.Snapshot) (missing string)
}

type asking struct {
	everything bool
	names      map[string]bool
}

func (a *asking) equal(b *asking) bool {
	return a == nil && b == nil || a != nil && b != nil && a.everything == b.everything && maps.Equal(a.names, b.names)
}

// proc is one generation of a node's process: the part of an xDS client that is
// the same for all.
type proc struct {
	h     *history
	team  *team
	id    string
	gen   int
	delta bool
	slow  bool // takes its time to read
	model model

	wire  *wire // nil while there is no stream
	since time.Time
	types [schema.NumTypes]typed
	held  int              // the newest commit whose routes it had, exactly
	seen  map[request]bool // requests that were answered once
	// stranger is set while it came back with what no store remembers.
	stranger bool
}

// typed is what a client knows of one type.
type typed struct {
	asks    *asking
	version string            // state of the world: of the last accepted response
	had     map[string]string // delta: versions of what was accepted
	first   bool              // on the stream
	nonce   string            // of the newest response
	ack     string            // delta: of the response that is to be answered
	words   string            // of the refusal of the newest response
	said    map[string]bool   // delta: names that the server was told
	due     bool              // a request is to be sent
	dueAt   time.Time
}

func (p *proc) String() string { return fmt.Sprintf("%s.%d", p.id, p.gen) }

// connect opens a stream. A client asks again for all that it uses; a gRPC client
// leaves out types of which it uses nothing: to name nothing would be to ask for
// everything (grpc-go: sendExisting).
func (p *proc) connect() {
	p.wire, p.since = openWire(p, p.h.plane), time.Now()
	for _, t := range used {
		s := &p.types[t]
		s.first, s.nonce, s.ack, s.words, s.said, s.due = true, "", "", "", map[string]bool{}, s.asks != nil && (p.team.client == schema.Envoy || len(s.asks.names) > 0)
		s.dueAt = time.Now()
	}
	p.h.log("%s connects", p)
	p.ask()
}

// cut ends a stream: of what is under way in either direction, a beginning
// arrives.
func (p *proc) cut() {
	if p.wire == nil {
		return
	}
	n := p.wire.waiting()
	for range p.h.rng.IntN(n + 1) {
		p.receive()
	}
	p.wire.cut()
	p.wire = nil
	p.h.log("%s is cut off", p)
}

// ask makes requests due for what is asked for otherwise than before.
func (p *proc) ask() {
	for _, t := range used {
		s := &p.types[t]
		now := p.model.wants(t)
		if s.asks.equal(now) || now == nil {
			continue
		}
		if p.wire != nil {
			s.soon()
		}
		s.asks = now
	}
}

func (s *typed) soon() {
	if !s.due {
		s.due, s.dueAt = true, time.Now()
	}
}

// ready reports whether a request of a type can be sent now.
func (p *proc) ready(t schema.Type) bool {
	s := &p.types[t]
	if p.wire == nil || !s.due || p.model.holdsBack(t) {
		return false
	}
	// Envoy asks again in the order of its types (rule O3 is about what it holds
	// back), gRPC clients in any.
	return p.team.client == schema.GRPC || !s.first || !slices.ContainsFunc(used[:slices.Index(used[:], t)], func(u schema.Type) bool {
		return p.types[u].first && p.ready(u)
	})
}

// say sends the request of a type that is due: it says all that there is to say,
// of whatever has come since the last.
func (p *proc) say(t schema.Type) {
	s := &p.types[t]
	m := &message{t: t, words: s.words}
	if !slices.ContainsFunc(used[:], func(t schema.Type) bool { return p.types[t].asks != nil && !p.types[t].first }) {
		m.node = p.id
	}
	if p.delta {
		m.nonce = s.ack
		if s.first {
			m.initial = maps.Clone(s.had)
			if !s.asks.everything {
				maps.DeleteFunc(m.initial, func(name, _ string) bool { return !s.asks.names[name] })
			}
		}
		m.names, m.drop = lacks(s.said, s.asks.names), lacks(s.asks.names, s.said)
		s.said = maps.Clone(s.asks.names)
	} else {
		m.nonce, m.version, m.names = s.nonce, s.version, keys(s.asks.names)
	}
	s.first, s.due, s.ack, s.words = false, false, "", ""
	p.wire.up = append(p.wire.up, m)
	p.h.log("%s says %s", p, m)
}

// lacks lists what b has and a has not.
func lacks(a, b map[string]bool) []string {
	var out []string
	for _, name := range keys(b) {
		if !a[name] {
			out = append(out, name)
		}
	}
	return out
}

// receive reads a response, applies it, and owes an answer.
func (p *proc) receive() {
	m := p.wire.next()
	s := &p.types[m.t]
	p.h.log("%s reads %s", p, m)
	words := p.model.apply(m)
	s.nonce, s.ack, s.words = m.nonce, m.nonce, words
	if words == "" {
		s.version = m.version
		if s.had == nil {
			s.had = map[string]string{}
		}
		for i, v := range m.versions {
			s.had[m.items[i].Name] = v
		}
		for _, name := range m.removed {
			delete(s.had, name)
		}
	}
	s.soon()
	p.ask()
	p.check()
}

// tick has time pass.
func (p *proc) tick() {
	p.model.tick()
	p.ask()
	p.check()
}

// check routes every request that must be answered.
func (p *proc) check() {
	p.arrive()
	if p.stranger {
		clear(p.seen)
		return
	}
	must := p.h.expected(p)
	for r := range p.seen {
		if !must[r] {
			delete(p.seen, r)
		}
	}
	for r := range must {
		switch why := p.model.route(r); {
		case why == "":
			p.seen[r] = true
		case p.seen[r]:
			p.h.holes++
			p.h.fail("%s: %s is black-holed: %s", p, r, why)
		}
	}
}

// arrive notes the newest commit whose routes the process has now.
func (p *proc) arrive() {
	for i := len(p.h.commits) - 1; i > p.held; i-- {
		if p.model.exact(p.h.commits[i].snapshotOf(p.team)) {
			p.held = i
			break
		}
	}
	p.stranger = p.stranger && p.model.whole(p.h.commits[len(p.h.commits)-1].snapshotOf(p.team)) != ""
}

// greets has the server meet a process: one that it cannot know.
func (p *proc) greets() {
	if !p.stranger && !p.h.remembers(p) {
		p.h.log("%s is a stranger: it holds what nobody remembers", p)
		p.stranger = true
	}
}

// remembers reports whether the store knows of all that a process routes by. Of
// a node that stayed away for several releases, the server cannot tell what it
// holds. Nor of a gRPC client that holds tables of a way that another superseded:
// the warm routes in them are nobody's configuration.
func (h *history) remembers(p *proc) bool {
	h.saved.mu.Lock()
	defer h.saved.mu.Unlock()
	if s := p.types[schema.Clusters]; !p.delta && s.version == "" && p.model.wants(schema.Routes) != nil {
		return false // it accepted some clusters and refused others, and says nothing of either
	}
	g := h.saved.state.Groups[p.team.name]
	var known []schema.Snapshot
	for _, r := range append(slices.Clone(g.Trail), g.Base, g.Target) {
		if r != nil {
			known = append(known, r.Group.Snapshot)
		}
	}
	if p.team.client == schema.GRPC && g.Base != nil {
		// The ways from the base to any, and from any to the newest.
		releases, newest := slices.Clone(known), g.Base
		if g.Target != nil {
			newest = g.Target
		}
		for _, from := range releases {
			for _, to := range releases {
				if !from.Equal(g.Base.Group.Snapshot) && !to.Equal(newest.Group.Snapshot) {
					continue
				}
				path := planner.NewPath(schema.State{Acked: from}, &schema.Target{Client: p.team.client, Snapshot: to, Drain: -1})
				for _, st := range path.Stages {
					known = append(known, st.Snapshot)
				}
			}
		}
	}
	return !slices.ContainsFunc(p.model.routes(), func(it *item) bool {
		return !slices.ContainsFunc(known, func(s schema.Snapshot) bool {
			res := s.Get(it.Key)
			return res != nil && (res.Version == it.Version || res.Version == it.bare && p.team.client == schema.Envoy)
		})
	})
}

func (c *commit) snapshotOf(t *team) schema.Snapshot { return c.fleet.Group(t.name).Snapshot }

// never is later than any time of a history.
var never = time.Unix(math.MaxInt32, 0)

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
