package ads

import (
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// An endpoint set without a host that could answer does not open the gate of a
// route that gains weight on it.
func TestP14GateNeedsUsableEndpoints(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	empty := res(edsT, "b", "1")
	empty.Usable = false
	f.set(schema.Envoy, eds("a", "1"), res(edsT, "a", "1"), eds("b", "1"), empty, listener("l", "1", "r"),
		tcp("l2", "1", "b"), route("r", "1", "a"))
	c.expect(cds, "a@1", "b@1")
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unusable })
	f.srv.Live(schema.SnapshotOf(res(edsT, "b", "2")))
	c.expect(edsT, "b@2")
	c.ask(edsT, "a", "b")
	c.expect(lds, "l@1", "l2@1")
}

// An ACK of listeners proves that they are valid, and not that they listen: what
// the old one used outlives it, so that the way back is open.
func TestO08AnAckIsNotListening(t *testing.T) {
	t.Parallel()
	old := []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a")}
	f := newFleet(t, old...)
	c := f.envoy("n")
	f.give(&schema.Target{Drain: time.Hour, Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"), listener("m", "1", "s"), route("s", "1", "b"))})
	c.expect(cds, "a@1", "b@1")
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.expect(lds, "l@1", "m@1") // the old one is not taken away for the new
	c.ask(rds, "r", "s")
	c.expect(rds, "s@1")
	c.ask(rds, "r", "s")
	c.quiet()
	c.ask(lds)
	c.expect(lds, "m@1")
	c.ask(rds, "s")
	c.ask(lds)
	f.settled("n", func(s *schema.SessionRow) bool {
		return s.Converged && s.Step.Cause == schema.Draining && s.Step.On.Name == "a"
	})
	f.give(&schema.Target{Drain: time.Hour, Snapshot: f.snapshot(old...)}) // m does not listen
	c.expect(lds, "l@1", "m@1")                                            // at once: its cluster never went
}

// Routes do not warm: none is sent before the clusters that it names are ready,
// and no listener with routes of its own.
func TestO09RoutesComeAfterTheirClusters(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, append(first()[:2], eds("b", "1"), res(edsT, "b", "1"), tcp("t", "1", "b"), listener("l", "1", "r"), route("r", "2", "b"))...)
	c.expect(cds, "a@1", "b@1")
	c.quiet() // neither is sent: their cluster is not there
	c.ask(cds)
	c.quiet() // it is, and its endpoints are not
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.quiet()
	c.ask(edsT, "a", "b")
	c.expect(lds, "l@1", "t@1")
	c.ask(lds)
	c.expect(rds, "r@2")
}

// Endpoints come and go while a rollout waits for a client that does not answer,
// and for as long.
func TestO11EndpointsNeverWaitForARollout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, append(first(), eds("b", "1"), res(edsT, "b", "1"), route("s", "1", "b"))...)
	c.expect(cds, "a@1", "b@1") // and no ACK
	for i := range 20 {
		version := string(rune('A' + i))
		f.srv.Live(schema.SnapshotOf(res(edsT, "a", version)))
		c.expect(edsT, "a@"+version)
		c.ask(edsT, "a")
	}
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool {
		return s.At == 0 && s.Step.Cause == schema.Unacked && s.Step.On.Type == cds
	})
}

// A gate is bounded in time, and is the session's own: it holds up nobody else.
func TestO11GatesAreBoundedAndApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	silent, other := f.envoy("silent"), f.envoy("other")
	f.mu.Lock()
	f.patience = 300 * time.Millisecond
	f.mu.Unlock()
	f.give(&schema.Target{Snapshot: f.snapshot(append(first()[:3], eds("b", "1"), res(edsT, "b", "1"), route("r", "2", "b"))...)})
	silent.expect(cds, "a@1", "b@1")
	other.expect(cds, "a@1", "b@1")
	other.ask(edsT, "a", "b")
	other.expect(edsT, "b@1")
	other.ask(edsT, "a", "b")
	other.ask(cds)
	other.expect(rds, "r@2") // while the silent one has not answered
	f.settled("silent", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Halt && s.Step.Cause == schema.Silent })
	silent.quiet() // and it gets no route to what it may lack
}

// A client that waits for what it never gets gives up by itself after its fetch
// timeout, and answers then: the gate has waited.
func TestO12TheGateOutlivesTheFetchTimeout(t *testing.T) {
	t.Parallel()
	const fetch = 200 * time.Millisecond
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.mu.Lock()
	f.patience = 20 * fetch
	f.mu.Unlock()
	f.set(schema.Envoy, append(first()[:3], res(cds, "b", "1"), route("r", "2", "b"))...)
	c.expect(cds, "a@1", "b@1")
	sent := time.Now()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unacked })
	<-time.After(fetch - time.Since(sent)) // the client's own clock
	c.ask(cds)
	c.expect(rds, "r@2")
}
