package ads

import (
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// Clients that come back with what they hold, after the server's target moved on
// or they refused something.

// second sends everything to b, where first sends it to a.
func second() []*schema.Resource {
	return []*schema.Resource{eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b")}
}

// The clusters are answered before the client says that it holds endpoints: what
// it holds is what the cluster had before it changed.
func TestO05EndpointsThatAreAskedForAfterTheirCluster(t *testing.T) {
	changed := func() []*schema.Resource {
		return []*schema.Resource{eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a")}
	}
	t.Run("sotw", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.envoy("n")
		c.close()
		f.set(schema.Envoy, changed()...)
		held := c.acked
		c = f.dial("n")
		c.reask(cds, held[cds])
		c.expect(cds, "a@2")
		c.reask(edsT, held[edsT], "a")
		c.expect(edsT, "a@1")
		c.ask(edsT, "a")
		c.quiet()
	})
	t.Run("delta", func(t *testing.T) {
		f := newFleet(t, first()...)
		f.set(schema.Envoy, changed()...)
		old := first()
		c := f.deltaDial("n")
		c.resume(cds, map[string]string{"a": string(old[0].Version)})
		c.expect(cds, "a@2")
		c.resume(edsT, map[string]string{"a": string(old[1].Version)}, "a")
		c.expect(edsT, "a@1")
		c.ack(edsT)
		c.quiet()
	})
}

// What a client may have held before it came back stays, though it refused the
// response that repeated it: a full-state response without it would delete it.
func TestS09RefusalOfWhatMayBeHeldAlready(t *testing.T) {
	t.Run("of a version that is not known", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.dial("n")
		c.reask(cds, "deadbeefdeadbeef")
		c.expect(cds, "a@1")
		c.nack(cds, "no")
		c.quiet()
		f.set(schema.Envoy, second()...)
		c.expect(cds, "a@1", "b@1")
	})
	t.Run("of a version that a refusal made doubtful", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.envoy("n")
		f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
		c.expect(cds, "a@2")
		c.expect(edsT, "a@1")
		c.nack(cds, "no")
		held := c.acked
		c.quiet()
		f.set(schema.Envoy, first()...)
		c.expect(cds, "a@1")
		c.close()
		c = f.dial("n")
		c.reask(cds, held[cds])
		c.expect(cds, "a@1")
		c.nack(cds, "no")
		c.quiet()
		f.set(schema.Envoy, second()...)
		c.expect(cds, "a@1", "b@1")
	})
}

// An ACK ends the doubt that a refusal left, whatever the client held when it
// came back.
func TestS09AnAckClearsTheRecord(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "a@2")
	c.expect(edsT, "a@1")
	c.nack(cds, "no")
	c.quiet()
	c.close()
	c = f.dial("n") // with nothing
	c.ask(cds)
	c.expect(cds, "a@2")
	c.ask(cds)
	c.quiet()
	held := c.acked
	c.close()
	c = f.dial("n")
	c.reask(cds, held[cds])
	c.quiet()
}

// A session of an unknown version was sent all that it might hold: that version
// is known when it comes back.
func TestS09TheUnionIsRecognised(t *testing.T) {
	f := newFleet(t, first()...)
	f.set(schema.Envoy, second()...)
	c := f.dial("n")
	c.reask(cds, "deadbeefdeadbeef")
	c.expect(cds, "a@1", "b@1")
	c.ask(cds)
	c.quiet()
	held := c.acked
	c.close()
	c = f.dial("n")
	c.reask(cds, held[cds])
	c.quiet()
}

// Endpoints that were refused are mended without any rollout.
func TestS15MendedEndpointsAreSent(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "2")))
	c.expect(edsT, "a@2")
	c.nack(edsT, "no", "a")
	c.quiet()
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "3")))
	c.expect(edsT, "a@3")
}

// A client that asked for no table keeps the version of the last one that it had,
// and reports it when a listener brings that table back.
func TestS09ATableThatWasDroppedIsSentAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	old := f.envoy("n")
	tcp := []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), res(lds, "l", "tcp", ref(cds, "a", schema.Traffic)), route("r", "1", "a")}
	f.set(schema.Envoy, tcp...)
	old.expect(lds, "l@tcp")
	old.ask(lds)
	old.reask(rds, old.acked[rds]) // none
	old.quiet()
	f.set(schema.Envoy, first()...)
	old.expect(lds, "l@1")
	old.ask(lds)
	old.quiet()
	old.close()
	f.settledAway("n")
	c := f.come(old)
	c.reask(cds, old.acked[cds])
	c.reask(edsT, old.acked[edsT], "a")
	c.reask(lds, old.acked[lds])
	c.reask(rds, old.acked[rds], "r")
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.quiet()
	f.set(schema.Envoy, tcp...)
	c.expect(lds, "l@tcp")
	c.ask(lds)
	c.reask(rds, c.acked[rds])
	c.quiet()
	c.close()
	f.settledAway("n")
	c = f.come(c) // and does not come to ask for tables
	c.reask(cds, c.acked[cds])
	c.reask(edsT, c.acked[edsT], "a")
	c.reask(lds, c.acked[lds])
	c.quiet()
	f.set(schema.Envoy, first()...)
	c.expect(lds, "l@1")
	c.ask(lds)
	c.quiet()
	c.close()
	f.settledAway("n")
	c = f.come(c)
	c.reask(cds, c.acked[cds])
	c.reask(lds, c.acked[lds])
	c.reask(rds, c.acked[rds], "r")
	c.expect(rds, "r@1")
}
