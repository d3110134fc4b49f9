package ads

import (
	"fmt"
	"maps"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/schema"
)

// More sessions of one node than one: generations of a process, connections that
// are dead and of which the server has not noticed it, streams of one type each.

// comesTo waits until a node has so many sessions.
func (f *fleet) comesTo(node string, n int) {
	f.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		for _, r := range f.srv.View().Nodes() {
			if r.ID == node && r.Sessions == n {
				return
			}
		}
		select {
		case <-f.srv.Changes():
		case <-deadline:
			f.t.Fatalf("node %s does not come to have %d sessions", node, n)
		}
	}
}

// A stream that ends before it asks for anything takes nothing over: what an older
// session did not hear is kept in mind when that one ends.
func TestD09AStreamThatAsksForNothingTakesNothingOver(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.deltaEnvoy("n")
	mute := f.dial("n")
	mute.raw(&discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/unknown"})
	f.comesTo("n", 2)
	mute.close()
	f.comesTo("n", 1)
	f.set(schema.Envoy, with(res(cds, "good", "1"), res(cds, "bad", "1"))...)
	c.expect(cds, "bad@1", "good@1")
	c.close()
	f.comesTo("n", 0)
	f.set(schema.Envoy, first()...)
	c = f.comeDelta(c)
	c.expect(cds, "-bad", "-good")
}

// A client comes back before the server notices that its connection is dead: what
// was under way on that may have been applied in part.
func TestD09WhatIsUnderWayOnADeadConnection(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	dead := f.deltaEnvoy("n")
	f.set(schema.Envoy, with(res(cds, "good", "1"), res(cds, "bad", "1"))...)
	dead.expect(cds, "bad@1", "good@1")
	f.set(schema.Envoy, first()...)
	c := f.deltaDial("n")
	c.resume(cds, dead.holds[cds])
	c.expect(cds, "-bad", "-good")
}

// What counts is what the client was heard to say last, and not which of its
// connections was noticed last to be dead.
func TestS09WhatWasHeardLastIsWhatWasLeft(t *testing.T) {
	t.Parallel()
	to := func(table string) []*schema.Resource {
		return []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", table, "a")}
	}
	again := func(c *client, held map[schema.Type]string) {
		c.reask(lds, held[lds], "l")
		c.reask(rds, held[rds], "r")
		c.reask(cds, held[cds], "a")
		c.reask(edsT, held[edsT], "a")
		c.quiet()
	}
	for _, noticed := range []bool{true, false} {
		t.Run(map[bool]string{true: "noticed", false: "not noticed"}[noticed], func(t *testing.T) {
			f := newFleet(t)
			f.elsewhere(schema.GRPC, to("1")...)
			dead := f.dialer("n")
			held := maps.Clone(dead.acked)
			c := f.dial("n")
			again(c, held)
			for _, table := range []string{"2", "3"} { // of which the dead one was sent the first
				f.elsewhere(schema.GRPC, to(table)...)
				c.expect(rds, "r@"+table)
				c.ask(rds, "r")
				c.quiet()
			}
			held[rds] = c.acked[rds]
			c.close()
			f.comesTo("n", 1)
			if noticed {
				dead.close()
				f.comesTo("n", 0)
			}
			again(f.dial("n"), held) // which no release has on record
		})
	}
}

// Streams of one type each end one by one. What each of them left is what it was
// sent last, and not what it was in an earlier life.
func TestS09StreamsOfOneTypeLeaveWhatTheyWereSentLast(t *testing.T) {
	t.Parallel()
	base := with(res(cds, "b", "1"), res(cds, "c", "1"))
	more := append(with(res(cds, "b", "1"), res(cds, "c", "1")), res(cds, "x", "1"), res(cds, "y", "1"))
	f := newFleet(t, first()...)
	held := func(typ schema.Type) { f.typed("n", typ, func(r *schema.TypeRow) bool { return r.Held > 0 }) }
	ends := func(typ schema.Type, c *client) {
		c.close()
		f.typed("n", typ, func(r *schema.TypeRow) bool { return r.Held == 0 })
	}
	clusters, listeners := f.apart("n", cds), f.apart("n", lds)
	clusters.ask(cds)
	clusters.expect(cds, "a@1")
	clusters.ask(cds)
	listeners.ask(lds)
	listeners.expect(lds, "l@1")
	listeners.ask(lds)
	held(cds)
	held(lds)
	f.set(schema.Envoy, base...)
	version := clusters.expect(cds, "a@1", "b@1", "c@1").VersionInfo
	ends(lds, listeners)
	clusters.close()
	f.comesTo("n", 0)

	clusters, listeners = f.apart("n", cds), f.apart("n", lds)
	clusters.reask(cds, version) // it had come
	f.settled("n", func(s *schema.SessionRow) bool { return s.Planned })
	listeners.ask(lds)
	listeners.expect(lds, "l@1")
	listeners.ask(lds)
	held(lds)
	f.set(schema.Envoy, more...)
	clusters.expect(cds, "a@1", "b@1", "c@1", "x@1", "y@1")
	ends(cds, clusters)
	listeners.close()
	f.comesTo("n", 0)

	f.set(schema.Envoy, base...)
	clusters = f.apart("n", cds)
	clusters.reask(cds, version) // with x or y, of which this says nothing
	clusters.expect(cds, "a@1", "b@1", "c@1")
}

// A session that lives long keeps nothing of what came and went.
func TestASessionDoesNotGrow(t *testing.T) {
	t.Parallel()
	t.Run("by clusters, of a client that asks for no endpoints", func(t *testing.T) {
		f := newFleet(t, res(cds, "c0", "1"))
		c := f.dial("n")
		c.ask(cds)
		c.expect(cds, "c0@1")
		c.ask(cds)
		for i := range 9 {
			old, now := fmt.Sprintf("c%d", i), fmt.Sprintf("c%d", i+1)
			f.set(schema.Envoy, res(cds, now, "1"))
			c.expect(cds, old+"@1", now+"@1")
			c.ask(cds)
			c.expect(cds, now+"@1")
			c.ask(cds)
			c.quiet()
		}
		s := f.srv.all()[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.early.Len(); n > 1 {
			t.Errorf("%d clusters wait for endpoints to be asked for", n)
		}
	})
	t.Run("by endpoints that its earlier lives waited for", func(t *testing.T) {
		f := newFleet(t)
		for i := range 9 {
			name := fmt.Sprintf("c%d", i)
			f.set(schema.Envoy, eds(name, "1"), res(edsT, name, "1"))
			f.srv.Retain(func(k schema.Key) bool { return k.Name == name })
			c := f.dial("n")
			c.ask(cds)
			c.expect(cds, name+"@1")
			c.ask(cds) // and for no endpoints
			c.quiet()
			c.close()
			f.comesTo("n", 0)
		}
		if n := f.srv.memory.meet("n").waits.Len(); n > 1 {
			t.Errorf("the node may wait for %d endpoints", n)
		}
	})
	t.Run("by what the client refused", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.envoy("n")
		s := f.srv.all()[0]
		s.mu.Lock()
		s.connected = s.connected.Add(-pondering) // until then more is remembered
		s.mu.Unlock()
		for i := range 9 {
			to := func(v string) []*schema.Resource {
				return []*schema.Resource{eds("a", v), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a")}
			}
			f.set(schema.Envoy, to(fmt.Sprintf("bad%d", i))...)
			c.expect(cds, fmt.Sprintf("a@bad%d", i))
			c.expect(edsT, "a@1")
			c.ask(edsT, "a")
			c.nack(cds, "no")
			c.quiet()
			f.set(schema.Envoy, to(fmt.Sprintf("good%d", i))...)
			c.expect(cds, fmt.Sprintf("a@good%d", i))
			c.expect(edsT, "a@1")
			c.ask(edsT, "a")
			c.ask(cds)
			c.quiet()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for typ := range s.types {
			for name, vs := range s.types[typ].never {
				if len(vs) > 2 {
					t.Errorf("of %s %s, %d versions are kept that were refused", schema.Type(typ), name, len(vs))
				}
			}
		}
	})
}
