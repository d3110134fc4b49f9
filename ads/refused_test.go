package ads

import (
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// What clients refuse, and is given up.

// Endpoints that a client refused, and that the target gives up, are not taken away
// while a cluster has them.
func TestD09RefusedEndpointsStay(t *testing.T) {
	t.Parallel()
	f := newFleet(t, with(eds("b", "1"), res(edsT, "b", "1"))...)
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1", "b@1")
	c.ack(cds)
	c.sub(edsT, "a", "b")
	c.expect(edsT, "a@1", "b@1")
	c.ack(edsT)
	f.srv.Live(schema.SnapshotOf(res(edsT, "b", "2")))
	c.expect(edsT, "b@2")
	c.nack(edsT, "no")
	c.quiet()
	f.set(schema.Envoy, first()...)
	c = f.comeDelta(c)
	c.resume(edsT, c.holds[edsT], "a", "b")
	c.expect(edsT, "a@1", "b@2")
	c.nack(edsT, "no")
	c.quiet()
}

// A client that came back with what nobody knows is sent all that it may have. If
// it refuses that, it has other versions of what no commit wants any more: to send
// it the same again, with each retry and each commit, would end nowhere.
func TestD09WhatAClientRefusesItDoesNotHold(t *testing.T) {
	t.Parallel()
	b := func(content string) []*schema.Resource { return with(eds("b", content), res(edsT, "b", "1")) }
	f := newFleet(t)
	f.give(&schema.Target{Client: schema.Envoy, Snapshot: f.snapshot(first()...), Known: []schema.Snapshot{
		f.snapshot(b("1")...), f.snapshot(b("2")...), f.snapshot(first()...),
	}})
	c := f.dial("n")
	c.reask(cds, "strange")
	c.expect(cds, "a@1", "b@2")
	c.nack(cds, "b is bad")
	c.expect(cds, "a@1", "b@1")
	c.nack(cds, "b is bad") // in no version that is known
	c.expect(cds, "a@1")
	c.ask(cds)
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(lds)
	c.expect(lds, "l@1")
}

// What was refused and given up does not come back with the next ACK.
func TestD09WhatWasGivenUpStaysAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, with(res(cds, "b", "1"))...)
	c.expect(cds, "a@1", "b@1")
	c.ask(cds)
	c.quiet()
	f.set(schema.Envoy, with(res(cds, "b", "2"))...)
	c.expect(cds, "a@1", "b@2")
	c.nack(cds, "b is bad")
	c.quiet()
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "a@2", "b@1")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(cds)
	c.expect(cds, "a@2")
}
