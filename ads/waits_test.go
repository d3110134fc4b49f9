package ads

import (
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// Clients that come back while something of theirs waits: a listener for its table, a
// cluster for its endpoints.

// A listener that warms waits for its table, also if the client lists others and
// the path comes to it later.
func TestO07ATableThatAListenerWaitsForIsServed(t *testing.T) {
	t.Parallel()
	base := []*schema.Resource{
		eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"),
	}
	mid := []*schema.Resource{
		eds("a", "1"), res(edsT, "a", "1"), listener("l", "2", "s"), route("s", "1", "a"), route("r", "1", "a"),
	}
	next := []*schema.Resource{
		eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "2", "s"), route("s", "2", "b"), route("r", "1", "a"),
	}
	f := newFleet(t)
	f.give(&schema.Target{Client: schema.Envoy, Snapshot: f.snapshot(next...), Known: []schema.Snapshot{f.snapshot(base...), f.snapshot(mid...), f.snapshot(next...)}})
	version := func(r *schema.Resource) map[string]string { return map[string]string{r.Name: string(r.Version)} }
	t.Run("sotw", func(t *testing.T) {
		c := f.dial("n")
		c.reask(cds, string(schema.SetOf(base[0]).Version()))
		c.expect(cds, "a@1", "b@1")
		c.reask(lds, string(schema.SetOf(mid[2]).Version()))
		c.reask(rds, string(schema.SetOf(base[3]).Version()), "r", "s")
		c.expect(rds, "r@1", "s@1") // the one that it left as well (rule S6)
	})
	t.Run("delta", func(t *testing.T) {
		c := f.deltaDial("m")
		c.resume(cds, version(base[0]))
		c.expect(cds, "b@1")
		c.resume(lds, version(mid[2]))
		c.resume(rds, version(base[3]), "r", "s")
		c.expect(rds, "r@1", "s@1") // the one that it left as well (rule S6)
	})
}

// So does one that refused clusters, and that is not taken at its word for those.
func TestO07ATableThatARefusingClientWaitsForIsServed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "a@2")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.nack(cds, "no")
	c.quiet()
	held := c.acked
	c.close()
	f.settledAway("n")
	next := []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), listener("l", "2", "s"), route("s", "1", "a"), route("r", "1", "a")}
	f.give(&schema.Target{Client: schema.Envoy, Snapshot: f.snapshot(next...), Known: []schema.Snapshot{f.snapshot(first()...), f.snapshot(next...)}})
	c = f.dial("n")
	c.reask(cds, held[cds])
	c.expect(cds, "a@1")
	c.nack(cds, "no")
	c.reask(edsT, held[edsT], "a")
	c.expect(edsT, "a@1")
	c.reask(lds, string(schema.SetOf(next[2]).Version()))
	c.reask(rds, held[rds], "r", "s")
	c.expect(rds, "s@1")
}

// A table that it waits for leads to nothing that is not there yet.
func TestO07ATableThatAListenerWaitsForLeadsToWhatIsHeld(t *testing.T) {
	t.Parallel()
	base := first()
	next := []*schema.Resource{
		eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "2", "s"), route("s", "2", "b"), route("r", "1", "a"),
	}
	f := newFleet(t)
	f.give(&schema.Target{Client: schema.Envoy, Snapshot: f.snapshot(next...), Known: []schema.Snapshot{f.snapshot(base...), f.snapshot(next...)}})
	version := func(r *schema.Resource) map[string]string { return map[string]string{r.Name: string(r.Version)} }
	c := f.deltaDial("m")
	c.resume(cds, version(base[0]))
	c.expect(cds, "b@1")
	c.resume(edsT, version(base[1]), "a", "b")
	c.expect(edsT, "b@1")
	c.resume(lds, version(base[2]))
	c.resume(rds, version(base[3]), "r", "s")
	c.expect(rds, "r@1") // which it left as well (rule S6)
	c.ack(rds)
	c.quiet()
	c.ack(edsT)
	c.ack(cds)
	c.expect(lds, "l@2")
}

// A client whose stream ends between a cluster's change and its endpoints reports
// those that it had before, and waits.
func TestO05EndpointsThatWereNotHeardOfAreSentAgain(t *testing.T) {
	t.Parallel()
	changed := []*schema.Resource{eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a")}
	t.Run("by the server that sent them", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.deltaEnvoy("n")
		f.set(schema.Envoy, changed...)
		c.expect(cds, "a@2")
		c.ack(cds)
		c.expect(edsT, "a@1")
		c.quiet()
		c = f.comeDelta(c)
		c.resume(edsT, c.holds[edsT], "a")
		c.expect(edsT, "a@1")
	})
	t.Run("and whose answer was not heard", func(t *testing.T) {
		f := newFleet(t, first()...)
		c := f.deltaEnvoy("n")
		f.set(schema.Envoy, changed...)
		c.expect(cds, "a@2")
		c.ack(cds)
		c.expect(edsT, "a@1")
		for range 2 { // what it reports it had before, too
			c = f.comeDelta(c)
			c.resume(edsT, c.holds[edsT], "a")
			c.expect(edsT, "a@1")
		}
		f.srv.Live(schema.SnapshotOf(res(edsT, "a", "2")))
		c = f.comeDelta(c)
		c.resume(edsT, c.holds[edsT], "a")
		c.expect(edsT, "a@2")
		c.holds[edsT] = map[string]string{"a": string(res(edsT, "a", "2").Version)}
		c = f.comeDelta(c)
		c.resume(edsT, c.holds[edsT], "a") // this is the answer
		c.quiet()
	})
	t.Run("of a cluster that came", func(t *testing.T) {
		f := newFleet(t, with(eds("b", "1"), res(edsT, "b", "1"))...)
		c := f.dial("n")
		c.ask(cds)
		c.expect(cds, "a@1", "b@1")
		c.ask(cds)
		c.ask(edsT, "a", "b")
		all := c.expect(edsT, "a@1", "b@1").VersionInfo
		c.ask(edsT, "a", "b")
		c.quiet()
		c.ask(edsT, "a") // b is gone, and comes again
		c.quiet()
		f.set(schema.Envoy, with(eds("b", "2"), res(edsT, "b", "1"))...)
		c.expect(cds, "a@1", "b@2")
		c.ask(cds)
		c.quiet()
		c.close()
		f.settledAway("n")
		c = f.come(c)
		c.reask(cds, c.acked[cds])
		c.reask(edsT, all, "a", "b")
		c.expect(edsT, "b@1")
	})
	t.Run("by one that started since", func(t *testing.T) {
		f := newFleet(t, first()...)
		f.set(schema.Envoy, changed...)
		c := f.deltaDial("n")
		c.resume(cds, map[string]string{"a": string(changed[0].Version)})
		c.resume(edsT, map[string]string{"a": string(changed[1].Version)}, "a")
		c.expect(edsT, "a@1")
		c.ack(edsT)
		c.quiet()
	})
}
