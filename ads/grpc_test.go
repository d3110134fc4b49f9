package ads

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/schema"
)

// dialer brings a client up as gRPC does: explicit names, each type after what
// refers to it.
func (f *fleet) dialer(node string) *client {
	c := f.dial(node)
	c.ask(lds, "l")
	c.expect(lds, "l@1")
	c.ask(lds, "l")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.ask(cds, "a")
	c.expect(cds, "a@1")
	c.ask(cds, "a")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.quiet()
	f.settled(node, func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	return c
}

func mesh(t *testing.T) *fleet {
	f := newFleet(t)
	f.set(schema.GRPC, append(first(), eds("z", "1"), res(edsT, "z", "1"))...)
	return f
}

func TestG01EmptyNamesAreNoWildcard(t *testing.T) {
	f := mesh(t)
	c := f.dialer("n")
	c.ask(cds) // unsubscribes the last
	c.quiet()
	f.set(schema.GRPC, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.quiet()
}

func TestG02ReconnectKeepsTheVersion(t *testing.T) {
	f := mesh(t)
	c := f.dialer("n")
	held := c.acked
	c.close()
	c = f.dial("n")
	for _, ty := range []schema.Type{lds, rds, cds, edsT} {
		name := map[schema.Type]string{lds: "l", rds: "r", cds: "a", edsT: "a"}[ty]
		c.reask(ty, held[ty], name)
	}
	c.quiet() // nothing is sent again
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

func TestG03NackThenFix(t *testing.T) {
	f := mesh(t)
	c := f.dialer("n")
	f.set(schema.GRPC, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "a@2")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.nack(cds, "cluster a: unsupported", "a")
	row := f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Halt })
	if row.Nack.Code != 3 || row.Nack.Names[0] != "a" {
		t.Errorf("recorded %+v", row.Nack)
	}
	f.set(schema.GRPC, eds("a", "3"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "a@3")
	c.expect(edsT, "a@1")
	c.ask(cds, "a")
	c.ask(edsT, "a")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

// What a client still asks for is not left out of a response that is the whole
// truth: the prune waits until it asks no more.
func TestG05AbsenceWaitsForTheUnsubscribe(t *testing.T) {
	f := mesh(t)
	c := f.dialer("n")
	c.ask(cds, "a", "z")
	c.expect(cds, "a@1", "z@1")
	c.ask(cds, "a", "z")
	c.quiet()
	f.give(&schema.Target{Client: schema.GRPC, Snapshot: f.snapshot(first()...)}) // without z
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.InUse && s.Step.On.Name == "z" })
	c.quiet()
	c.ask(cds, "a")
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

func TestS09ResumeInTheMiddleOfAPath(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.envoy("n")
	base := f.target.Snapshot
	to := &schema.Target{Open: true, Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))}
	for _, st := range f.Path(schema.State{Acked: base}, to).Stages {
		to.Known = append(to.Known, st.Snapshot)
	}
	to.Known = append([]schema.Snapshot{base}, append(to.Known, to.Snapshot)...)
	f.give(to)
	c.expect(cds, "a@1", "b@1")
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.expect(rds, "r@2")
	c.close() // before the ACK of the routes

	held := c.acked
	c = f.dial("n")
	c.reask(cds, held[cds])
	c.reask(edsT, held[edsT], "a", "b")
	c.reask(lds, held[lds])
	c.reask(rds, held[rds], "r")
	c.expect(rds, "r@2") // and nothing else
	c.ask(rds, "r")
	c.expect(cds, "b@1")
	c.ask(cds)
	c.ask(edsT, "b")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

func TestS09ForeignSessionGetsTheUnionFirst(t *testing.T) {
	f := newFleet(t, first()...)
	to := &schema.Target{Open: true, Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))}
	f.give(to)
	c := f.dial("stranger")
	c.reask(cds, "deadbeefdeadbeef")
	c.expect(cds, "a@1", "b@1")
}

func TestS09NothingIsTrustedAfterANack(t *testing.T) {
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
	c = f.dial("n") // reports the old version, and may hold pieces of the new
	c.reask(cds, held[cds])
	c.expect(cds, "a@1")
}

// MOSN reopens with its old version and nonce, and asks for the next type only
// once it is answered: what it holds is sent again.
func TestS09ClientThatKeepsItsNonce(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.envoy("n")
	held, nonce := c.acked[cds], c.last[cds].Nonce
	c.close()
	c = f.dial("n")
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: cds.URL(), VersionInfo: held, ResponseNonce: nonce})
	c.expect(cds, "a@1")
}
