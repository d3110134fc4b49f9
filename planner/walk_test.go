package planner

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// client is a model of a client and of the wire that serves it: types are asked
// for as what is held refers to them, one response of a type is in flight, and
// answers come in any order. Envoy withholds the ACK of clusters until their
// endpoints are there.
type client struct {
	grpc  bool
	roots []string // listeners that a gRPC application dialled
	live  schema.Snapshot
	path  *schema.Path
	at    int
	facts schema.Facts
	now   time.Time
	// held is what the client applied: Facts.Acked, but for what it no longer
	// asks for, which it forgets.
	held     [schema.NumTypes]schema.Set
	complete map[string]bool             // listeners
	tables   map[string]*schema.Resource // in use, by listener; of gRPC
	active   map[string]bool             // clusters that could be reached: a change in place is swapped in when it can be too
}

// newClient is one that holds, of what it would ask for, one snapshot, and is to
// go along a path.
func newClient(p *schema.Path, holds, live schema.Snapshot, roots []string) *client {
	c := &client{
		grpc: p.Target.Client == schema.GRPC, roots: roots, live: live, path: p, at: schema.Before,
		now: time.Unix(1e9, 0), complete: map[string]bool{}, tables: map[string]*schema.Resource{}, active: map[string]bool{},
	}
	c.facts.StageAt = c.now
	for range schema.NumTypes { // subscriptions follow what is held, down from the listeners
		c.ask()
		for t := range c.facts.Types {
			f := &c.facts.Types[t]
			have := holds.Of(schema.Type(t))
			if schema.Type(t).Live() {
				have = live.Of(schema.Type(t))
			}
			f.Acked = f.Sub.Select(have)
			c.held[t] = f.Acked
		}
	}
	return c
}

// ask makes the subscriptions those of what is held, down from the listeners.
func (c *client) ask() {
	for range schema.NumTypes {
		c.askOnce()
	}
}

func (c *client) askOnce() {
	names := [schema.NumTypes]map[string]bool{}
	for t := range names {
		names[t] = map[string]bool{}
	}
	for _, l := range c.roots {
		names[schema.Listeners][l] = true
	}
	c.choose()
	for t := range c.held {
		for r := range c.held[t].All() {
			if c.grpc && t == int(schema.Routes) {
				continue
			}
			for _, ref := range r.Refs {
				names[ref.Type][ref.Name] = true
			}
		}
	}
	for _, table := range c.tables {
		sends, warm := c.uses(table)
		for _, name := range append(sends, warm...) {
			names[schema.Clusters][name] = true
		}
	}
	for t := range names {
		typ := schema.Type(t)
		sub := &schema.Subscription{Names: slices.Sorted(maps.Keys(names[t]))}
		if !c.grpc && typ.HasWildcard() {
			sub = &schema.Subscription{Wildcard: true}
		}
		f := &c.facts.Types[t]
		if f.Sub == nil && len(sub.Names) == 0 && !sub.Wildcard {
			continue
		}
		f.Sub = sub
		f.Acked = sub.Select(f.Acked)
		c.held[t] = sub.Select(c.held[t])
	}
}

// uses lists the clusters that the virtual host of a gRPC client's authority sends
// to, and those that it names: the client has no use for any other.
func (c *client) uses(table *schema.Resource) (sends, warm []string) {
	hosts, err := envoy.HostsOf(table)
	if err != nil {
		panic(err)
	}
	var d domains
	for i, h := range hosts {
		d.add(i, h.Domains())
	}
	d.sort()
	i := d.find(authority)
	if i < 0 {
		return nil, nil
	}
	return clustersOf(hosts[i]), hosts[i].WarmClusters()
}

const authority = "x.com"

// choose finds the table of each of a gRPC client's listeners: the last is in use
// until one that the listener names instead has come.
func (c *client) choose() {
	for name := range c.tables {
		if c.held[schema.Listeners].Get(name) == nil {
			delete(c.tables, name)
		}
	}
	for l := range c.held[schema.Listeners].All() {
		for _, k := range tablesOf(l) {
			if table := c.held[schema.Routes].Get(k.Name); table != nil && c.grpc {
				c.tables[l.Name] = table
			}
		}
	}
}

// want is what the client is to hold of a type now.
func (c *client) want(t schema.Type) schema.Set {
	if t.Live() {
		return c.facts.Types[t].Sub.Select(c.live.Of(t))
	}
	return c.facts.Types[t].Sub.Select(c.path.At(c.at).Of(t))
}

func (c *client) moves(t schema.Type) bool {
	return t.Live() || c.at >= len(c.path.Stages) || c.at >= 0 && c.path.Stages[c.at].Moves[t]
}

// send sends what is owed: of types that the stage does not move, only what the
// client lacks.
func (c *client) send() {
	for t := range c.facts.Types {
		typ, f := schema.Type(t), &c.facts.Types[t]
		if f.Sub == nil {
			continue
		}
		want := c.want(typ)
		var owed schema.Set
		for old, r := range schema.Diff(f.Acked, want) {
			if r != nil && (c.moves(typ) || old == nil) {
				owed = owed.With(r)
			}
		}
		removes := typ.FullState() && c.moves(typ) && !f.Acked.Equal(want)
		f.Behind = owed.Len() > 0 || removes
		if !f.Behind || f.InFlight {
			continue
		}
		if typ.FullState() {
			owed = want
		}
		f.InFlight, f.Behind, f.Flight, f.SentAt = true, false, owed, c.now
	}
}

// ready reports whether the client would answer the response in flight.
func (c *client) ready(t schema.Type) bool {
	f := &c.facts.Types[t]
	if !f.InFlight || c.grpc || t != schema.Clusters {
		return f.InFlight
	}
	for r := range f.Flight.All() {
		for _, ref := range r.Refs {
			if ref.Type == schema.Endpoints && c.held[schema.Endpoints].Get(ref.Name) == nil {
				return false
			}
		}
	}
	return true
}

// receive applies a response. Envoy asks for the endpoints of clusters before it
// has acknowledged them.
func (c *client) receive(t schema.Type) {
	f := &c.facts.Types[t]
	if t.FullState() {
		c.held[t] = f.Sub.Select(f.Flight)
	} else {
		c.held[t] = f.Sub.Select(c.held[t].Union(f.Flight))
	}
	c.ask()
}

func (c *client) ack(t schema.Type) {
	f := &c.facts.Types[t]
	f.Acked = c.held[t]
	f.InFlight, f.Flight, f.AckedAt = false, schema.Set{}, c.now
}

// holes lists what sends to a cluster which the client lacks, or knows no
// endpoints of. A gRPC client that comes to a listener, or to its first routes,
// waits for all that they name: its listeners count once they were complete.
func (c *client) holes() []string {
	var out []string
	for name := range c.active {
		if c.held[schema.Clusters].Get(name) == nil {
			delete(c.active, name)
		}
	}
	for r := range c.held[schema.Clusters].All() {
		if c.unreachable(r.Name) == "" {
			c.active[r.Name] = true
		}
	}
	for name, table := range c.tables {
		gaps := c.gaps(table)
		if c.complete[name] {
			out = append(out, gaps...)
		}
		c.complete[name] = c.complete[name] || len(gaps) == 0
	}
	for name := range c.complete {
		if c.tables[name] == nil {
			delete(c.complete, name)
		}
	}
	if !c.grpc {
		for _, t := range [...]schema.Type{schema.Listeners, schema.Routes} {
			for r := range c.held[t].All() {
				out = append(out, c.gaps(r)...)
			}
		}
	}
	return out
}

func (c *client) gaps(r *schema.Resource) []string {
	var sends, out []string
	if c.grpc {
		sends, _ = c.uses(r)
	} else {
		for _, ref := range r.Refs {
			if ref.Type == schema.Clusters && ref.Edge == schema.Traffic {
				sends = append(sends, ref.Name)
			}
		}
	}
	for _, name := range sends {
		if why := c.unreachable(name); why != "" {
			out = append(out, fmt.Sprintf("%s sends to %s: %s", r.Key, name, why))
		}
	}
	return out
}

func (c *client) unreachable(cluster string) string {
	r := c.held[schema.Clusters].Get(cluster)
	if r == nil {
		return "no such cluster"
	}
	if c.active[cluster] {
		return ""
	}
	for _, ref := range r.Refs {
		if ref.Type == schema.Endpoints && c.held[schema.Endpoints].Get(ref.Name) == nil {
			return "no endpoints of " + ref.Name
		}
		if ref.Type == schema.Clusters && c.unreachable(ref.Name) != "" {
			return "its member " + ref.Name + " is not there"
		}
	}
	return ""
}

// drawWalk draws a change from one closed snapshot to another.
func drawWalk(t *rapid.T) (acked, live schema.Snapshot, to *schema.Target) {
	kind := schema.Client(rapid.IntRange(0, 1).Draw(t, "client"))
	acked, live = universe.snapshot(drawText(t, kind, "acked"))
	next, more := universe.snapshot(drawText(t, kind, "to"))
	return acked, live.Union(more), &schema.Target{Client: kind, Snapshot: next, Drain: -1, Patience: 30 * time.Second}
}

// A session that answers in any order comes to the target without a halt, is
// served no stage before the gates of the last are met, and never sends requests
// to what it does not have.
func TestWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acked, live, to := drawWalk(t)
		p := NewPath(schema.State{Acked: acked}, to)
		c := newClient(p, acked, live, []string{"l"})
		c.check(t)
		walk(t, c)
	})
}

// walk lets a client go along its path to the end.
func walk(t *rapid.T, c *client) {
	for range 300 {
		c.send()
		step := Step(c.path, c.at, &c.facts, c.now)
		switch step.Verdict {
		case schema.Halt:
			t.Fatalf("halts at %d of %v: %s", c.at, kinds(c.path), step)
		case schema.Done:
			checkEnd(t, c)
			return
		case schema.Serve:
			if step.Stage != c.at+1 {
				t.Fatalf("served %d after %d", step.Stage, c.at)
			}
			checkGate(t, c)
			c.at, c.facts.StageAt = step.Stage, c.now
			continue
		}
		var open []schema.Type
		for _, typ := range schema.AllTypes() {
			if c.ready(typ) || c.facts.Types[typ].InFlight && c.held[typ].Union(c.facts.Types[typ].Flight) != c.held[typ] {
				open = append(open, typ)
			}
		}
		if len(open) == 0 {
			if step.Until.IsZero() {
				t.Fatalf("stuck at %d of %v: %s", c.at, kinds(c.path), step)
			}
			c.now = step.Until
			continue
		}
		typ := open[rapid.IntRange(0, len(open)-1).Draw(t, "answers")]
		c.now = c.now.Add(time.Millisecond)
		c.receive(typ)
		if c.ready(typ) {
			c.ack(typ)
		}
		c.check(t)
	}
	t.Fatalf("does not come to an end: at %d of %v", c.at, kinds(c.path))
}

// check fails if a request would find nothing.
func (c *client) check(t *rapid.T) {
	if holes := c.holes(); len(holes) > 0 {
		t.Fatalf("at %d of\n%s%v", c.at, pathWords(c.path), holes)
	}
}

// checkGate holds the facts of a session that is let through against what the
// stage that it leaves brought.
func checkGate(t *rapid.T, c *client) {
	if c.at < 0 {
		return
	}
	for _, w := range c.path.Stages[c.at].Wants {
		f := &c.facts.Types[w.Type]
		r := f.Acked.Get(w.Name)
		if f.Sub.Covers(w.Name) && (r == nil || !w.Type.Live() && r.Version != w.Version || w.Type.Live() && w.Usable && !r.Usable) {
			t.Fatalf("let through %d of %v without %s", c.at, kinds(c.path), w.Key)
		}
	}
}

func checkEnd(t *rapid.T, c *client) {
	for _, typ := range schema.AllTypes() {
		f := &c.facts.Types[typ]
		if !typ.Live() && !f.Acked.Equal(f.Sub.Select(c.path.Target.Snapshot.Of(typ))) {
			t.Errorf("done without the target's %s", typ)
		}
	}
}

// A second commit in the middle of the way, with whatever is in flight.
func TestWalkReplanned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acked, live, to := drawWalk(t)
		p := NewPath(schema.State{Acked: acked}, to)
		if len(p.Stages) == 0 {
			return
		}
		c := newClient(p, acked, live, []string{"l"})
		c.check(t)
		stop := rapid.IntRange(0, len(p.Stages)-1).Draw(t, "stop")
		for n := 0; c.at < stop; n++ { // all of a stage is answered before the next
			if n > 100 {
				t.Fatalf("stuck at %d of %v: %s", c.at, kinds(p), Step(p, c.at, &c.facts, c.now))
			}
			c.send()
			for _, typ := range schema.AllTypes() {
				if c.facts.Types[typ].InFlight {
					c.receive(typ)
					c.check(t)
					if c.ready(typ) {
						c.ack(typ)
					}
				}
			}
			switch step := Step(p, c.at, &c.facts, c.now); {
			case step.Verdict == schema.Serve:
				c.at, c.facts.StageAt = step.Stage, c.now
			case step.Cause == schema.Draining || step.Cause == schema.Unasked && !step.Until.IsZero():
				c.now = step.Until
			}
		}
		c.send() // of the stage that is open, nothing is answered
		second := *to
		next, more := universe.snapshot(drawText(t, to.Client, "second"))
		second.Snapshot = next
		c.live = c.live.Union(more)
		c.path = NewPath(settled(schema.State{Acked: acked}, p, stop, true), &second)
		c.at, c.facts.StageAt = schema.Before, c.now
		walk(t, c)
	})
}
