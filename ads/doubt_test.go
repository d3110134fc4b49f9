package ads

import (
	"maps"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// Clients that hold what they do not say: parts of responses that they refused.

// deltaEnvoy brings a client up that holds first().
func (f *fleet) deltaEnvoy(node string) *deltaClient {
	c := f.deltaDial(node)
	c.sub(cds)
	c.expect(cds, "a@1")
	c.ack(cds)
	c.sub(edsT, "a")
	c.expect(edsT, "a@1")
	c.ack(edsT)
	c.sub(lds)
	c.expect(lds, "l@1")
	c.ack(lds)
	c.sub(rds, "r")
	c.expect(rds, "r@1")
	c.ack(rds)
	c.quiet()
	return c
}

// comeDelta takes a client that went away, and asks again for clusters.
func (f *fleet) comeDelta(old *deltaClient) *deltaClient {
	old.close()
	f.settledAway(old.node)
	c := f.deltaDial(old.node)
	maps.Copy(c.holds, old.holds)
	c.resume(cds, old.holds[cds])
	return c
}

// settledAway waits until a node has no session.
func (f *fleet) settledAway(node string) {
	f.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		for _, n := range f.srv.View().Nodes() {
			if n.ID == node && n.Sessions == 0 {
				return
			}
		}
		select {
		case <-f.srv.Changes():
		case <-deadline:
			f.t.Fatalf("node %s does not go away", node)
		}
	}
}

// with is first() and other things.
func with(rs ...*schema.Resource) []*schema.Resource { return append(first(), rs...) }

// What was good of a refused response is there although the client does not list
// it, and is told to go when it is of no use.
func TestD09WhatWasGoodOfARefusalIsRemoved(t *testing.T) {
	t.Parallel()
	bad := with(res(cds, "good", "1"), res(cds, "bad", "1"))
	t.Run("refused", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.deltaEnvoy("n")
		f.set(schema.Envoy, bad...)
		c.expect(cds, "bad@1", "good@1")
		c.nack(cds, "bad is bad")
		c.quiet()
		c = f.comeDelta(c)
		c.expect(cds, "bad@1", "good@1")
		c.nack(cds, "bad is bad")
		c.quiet()
		f.set(schema.Envoy, first()...)
		c.expect(cds, "-bad", "-good")
		c.ack(cds)
		c.quiet()
		c = f.comeDelta(c)
		c.quiet()
	})
	t.Run("refused before it came back", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.deltaEnvoy("n")
		f.set(schema.Envoy, bad...)
		c.expect(cds, "bad@1", "good@1")
		c.nack(cds, "bad is bad")
		c.quiet()
		c.close()
		f.settledAway("n")
		f.set(schema.Envoy, first()...)
		c = f.comeDelta(c)
		c.expect(cds, "-bad", "-good")
		c.ack(cds)
		c.quiet()
	})
	t.Run("not heard", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.deltaEnvoy("n")
		f.set(schema.Envoy, bad...)
		c.expect(cds, "bad@1", "good@1")
		c.close()
		f.settledAway("n")
		f.set(schema.Envoy, first()...)
		c = f.comeDelta(c)
		c.expect(cds, "-bad", "-good")
		f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
		c.ack(cds)
		c.expect(cds, "a@2") // and nothing of what cannot be sent
	})
	t.Run("forgotten in a crash", func(t *testing.T) {
		f := newFleet(t)
		f.give(&schema.Target{
			Client: schema.Envoy, Snapshot: f.snapshot(first()...), Open: true,
			Known: []schema.Snapshot{f.snapshot(bad...), f.snapshot(first()...)},
		})
		c := f.deltaDial("n")
		c.resume(cds, map[string]string{"a": string(first()[0].Version)})
		c.expect(cds, "-bad", "-good")
	})
	t.Run("by a process that lists nothing", func(t *testing.T) {
		f := newFleet(t, bad...)
		c := f.deltaDial("n")
		c.sub(cds)
		c.expect(cds, "a@1", "bad@1", "good@1")
		c.close()
		f.settledAway("n")
		f.set(schema.Envoy, first()...)
		c = f.deltaDial("n")
		c.sub(cds)
		c.expect(cds, "a@1") // which may be new
		c.ack(cds)
		c.expect(cds, "-bad", "-good")
	})
}

// Whether a client refused its first listeners, or was not heard to answer: it may
// have some of them though it names none, and what they send to does not go first.
func TestD09ListenersThatAreInNoVersion(t *testing.T) {
	t.Parallel()
	to := func(listener string) *schema.Resource {
		return res(lds, listener, "tcp", ref(cds, "a", schema.Traffic))
	}
	next := []*schema.Resource{eds("b", "1"), res(edsT, "b", "1"), res(edsT, "a", "1")}
	for _, refuses := range []bool{true, false} {
		name := map[bool]string{true: "refused", false: "not heard"}[refuses]
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, eds("a", "1"), res(edsT, "a", "1"), to("l"), to("m"))
			c := f.dial("n")
			c.ask(cds)
			c.expect(cds, "a@1")
			c.ask(cds)
			c.ask(edsT, "a")
			c.expect(edsT, "a@1")
			c.ask(edsT, "a")
			c.ask(lds)
			c.expect(lds, "l@tcp", "m@tcp")
			if refuses {
				c.nack(lds, "m is bad")
				c.quiet()
			}
			held := c.acked
			c.close()
			f.settledAway("n")
			f.set(schema.Envoy, next...)
			c = f.dial("n")
			c.reask(cds, held[cds])
			c.reask(edsT, held[edsT], "a")
			c.ask(lds)
			c.expect(cds, "a@1", "b@1")
			c.expect(edsT, "a@1")
			c.expect(lds, "l@tcp", "m@tcp") // in doubt, it is given what it may have
		})
		t.Run(name+", delta", func(t *testing.T) {
			f := newFleet(t, eds("a", "1"), res(edsT, "a", "1"), to("l"), to("m"))
			c := f.deltaDial("n")
			c.sub(cds)
			c.expect(cds, "a@1")
			c.ack(cds)
			c.sub(edsT, "a")
			c.expect(edsT, "a@1")
			c.ack(edsT)
			c.sub(lds)
			c.expect(lds, "l@tcp", "m@tcp")
			if refuses {
				c.nack(lds, "m is bad")
				c.quiet()
			}
			endpoints := c.holds[edsT]
			c.close()
			f.settledAway("n")
			f.set(schema.Envoy, next...)
			c = f.comeDelta(c)
			c.resume(edsT, endpoints, "a")
			c.sub(lds)
			c.expect(cds, "b@1")
			c.expect(lds, "l@tcp", "m@tcp")
		})
	}
}

// A newcomer is served in spite of a refusal. What its routes lead to outlives them.
func TestD09WhatWasGoodOfARefusalIsKeptForItsRoutes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, eds("a", "1"), res(cds, "bad", "1"), res(cds, "good", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "good"))
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1", "bad@1", "good@1")
	c.nack(cds, "bad is bad")
	c.sub(edsT, "a")
	c.expect(edsT, "a@1")
	c.ack(edsT)
	c.sub(lds)
	c.expect(lds, "l@1")
	c.ack(lds)
	c.sub(rds, "r")
	c.expect(rds, "r@1")
	c.ack(rds)
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "2", "a"))
	c.expect(cds, "a@2")
	c.expect(edsT, "a@1")
	c.ack(cds)
	c.ack(edsT)
	c.expect(rds, "r@2")
	c.ack(rds)
	c.expect(cds, "-bad", "-good")
}

// unlisted brings a client up that lists no cluster, and has the endpoints of one that
// the target wants no more.
func (f *fleet) unlisted() *deltaClient {
	old := with(eds("b", "1"), res(edsT, "b", "1"))
	f.give(&schema.Target{
		Client: schema.Envoy, Snapshot: f.snapshot(first()...), Known: []schema.Snapshot{f.snapshot(old...), f.snapshot(first()...)},
	})
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "1"), res(edsT, "b", "1")))
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1")
	c.resume(edsT, map[string]string{"b": string(res(edsT, "b", "1").Version)}, "a", "b")
	c.expect(edsT, "a@1")
	return c
}

// A client that begins with clusters as if it held nothing, for it accepted none
// of those that it was sent, holds some if it has endpoints.
func TestS09EndpointsTellThatAClientIsNotNew(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := f.unlisted()
	c.ack(cds)
	c.expect(cds, "b@1") // in doubt, it is given all that it may have
	c.ack(cds)
	c.ack(edsT)
	c.expect(edsT, "b@1")
	c.ack(edsT)
	c.expect(cds, "-b")
}

// The same one refuses its clusters: what it may hold all the same goes in the end.
func TestS09WhatMayBeHeldOutlastsARefusal(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := f.unlisted()
	c.ack(edsT)
	c.nack(cds, "no")
	c.quiet()
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "b@1")
	c.expect(edsT, "b@1")
	c.ack(edsT)
	c.ack(cds)
	c.expect(cds, "a@2")
	c.expect(edsT, "a@1")
	c.ack(edsT)
	c.ack(cds)
	c.expect(cds, "-b")
}

// A client asks for the endpoints of a cluster that it does not list: it has it all
// the same, as part of something that it refused.
func TestD09EndpointsTellOfClusters(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	old := with(eds("b", "1"), res(edsT, "b", "1"))
	f.give(&schema.Target{
		Client: schema.Envoy, Snapshot: f.snapshot(first()...), Known: []schema.Snapshot{f.snapshot(first()...), f.snapshot(old...)},
	})
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "1"), res(edsT, "b", "1")))
	held := func(r *schema.Resource) map[string]string { return map[string]string{r.Name: string(r.Version)} }
	endpoints := map[string]string{"a": string(first()[1].Version), "b": string(res(edsT, "b", "1").Version)}
	t.Run("clusters first", func(t *testing.T) {
		c := f.deltaDial("n")
		c.resume(cds, held(first()[0]))
		c.resume(edsT, endpoints, "a", "b")
		c.expect(cds, "-b")
	})
	t.Run("endpoints first", func(t *testing.T) {
		c := f.deltaDial("m")
		c.resume(edsT, endpoints, "a", "b")
		c.expect(edsT, "a@1", "b@1")
		c.ack(edsT)
		c.resume(cds, held(first()[0]))
		c.expect(cds, "b@1") // in doubt, it is given all that it may have
		c.expect(edsT, "b@1")
		c.ack(edsT)
		c.ack(cds)
		c.expect(cds, "-b")
	})
}

// What a client holds of a type in a version that nobody knows is sent, whatever
// else it is recognised by.
func TestS09AnUnknownVersionIsSentThoughNothingElseChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	held := f.envoy("n").acked
	c := f.dial("m")
	c.reask(cds, held[cds])
	c.reask(lds, "strange")
	c.reask(rds, "strange too", "r")
	c.expect(lds, "l@1")
	c.ask(lds)
	c.expect(rds, "r@1")
}

// What a path carries to its prune as a name alone is never sent, whichever session
// of the node it comes from.
func TestD09NamesAloneAreNoNews(t *testing.T) {
	t.Parallel()
	sub := &subscription{}
	sub.Wildcard = true
	a, b := listener("a", "1", "r"), listener("b", "1", "r")
	want := schema.SetOf(a, b).Union(unsent(schema.SetOf(listener("gone", "1", "r"))))
	for _, c := range []struct{ acked, news schema.Set }{
		{schema.Set{}, schema.SetOf(a, b)},
		{schema.SetOf(a), schema.SetOf(b)},
	} {
		if got := sub.news(c.acked, want); !got.Equal(c.news) {
			t.Errorf("%d resources are sent, want %d", got.Len(), c.news.Len())
		}
	}
}
