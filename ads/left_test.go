package ads

import (
	"slices"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// What a client was left with when it went away, and what it says of it.

// elsewhere is what the group's releases hold, as far as anybody remembers: nothing
// that the client may report.
func (f *fleet) elsewhere(client schema.Client, rs ...*schema.Resource) *schema.Target {
	return f.give(&schema.Target{
		Client: client, Snapshot: f.snapshot(rs...),
		Known: []schema.Snapshot{f.snapshot(eds("z", "1"), res(edsT, "z", "1"), listener("l", "0", "z"), route("z", "1", "z"))},
	})
}

// A client reports what it accepted last, though no release has it any more.
func TestS09WhatWasLeftIsRecognised(t *testing.T) {
	f := newFleet(t)
	f.elsewhere(schema.GRPC, first()...)
	old := f.dialer("n")
	f.elsewhere(schema.GRPC, eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "a"))
	old.expect(rds, "r@2")
	c := f.come(old) // with that under way
	c.reask(lds, old.acked[lds], "l")
	c.reask(rds, old.last[rds].VersionInfo, "r") // it had come
	c.reask(cds, old.acked[cds], "a")
	c.reask(edsT, old.acked[edsT], "a")
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Converged })
}

// A client that reports the version of what was under way has accepted it, all of
// it, though the server did not hear so.
func TestS09AVersionIsAnAnswer(t *testing.T) {
	f := newFleet(t)
	f.elsewhere(schema.GRPC, append(first(), listener("m", "1", "s"), route("s", "1", "a"))...)
	old := f.dial("n")
	old.ask(lds, "l", "m")
	old.expect(lds, "l@1", "m@1")
	old.ask(lds, "l", "m")
	old.ask(rds, "r", "s")
	old.expect(rds, "r@1", "s@1")
	c := f.come(old)
	c.reask(rds, old.last[rds].VersionInfo, "r", "s")
	c.reask(lds, old.acked[lds], "l", "m")
	c.ask(cds, "a")
	c.expect(cds, "a@1")
	c.ask(cds, "a")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	c.quiet() // the tables are not sent again
}

// A client forgets what it asks for no more, and goes on to report the version: what
// was on its way when it asked again is sent again (grpc-go#7013).
func TestS09NamesThatWereForgotten(t *testing.T) {
	both := []*schema.Resource{eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "1", "a")}
	t.Run("between two streams", func(t *testing.T) {
		f := newFleet(t)
		f.set(schema.GRPC, both...)
		old := f.dialer("n")
		old.ask(edsT, "a", "b")
		old.expect(edsT, "b@1")
		old.ask(edsT, "a", "b")
		old.ask(edsT, "a")
		old.quiet()
		old.ask(edsT, "a", "b")
		old.expect(edsT, "b@1") // and is not answered
		c := f.come(old)
		c.reask(edsT, old.acked[edsT], "a", "b")
		c.expect(edsT, "b@1")
	})
	t.Run("and the server remembers nothing", func(t *testing.T) {
		f := newFleet(t)
		f.set(schema.GRPC, both...)
		c := f.dial("n")
		c.reask(edsT, string(schema.SetOf(both[2], both[3]).Version()), "a", "b")
		c.expect(edsT, "a@1", "b@1")
	})
}

// Tables of two releases can be held together: each is recognised.
func TestS09TablesOfTwoReleases(t *testing.T) {
	f := newFleet(t)
	tables := func(r, s string) []*schema.Resource {
		return []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), listener("m", "1", "s"), route("r", r, "a"), route("s", s, "a")}
	}
	f.set(schema.GRPC, tables("1", "1")...)
	f.set(schema.GRPC, tables("2", "2")...)
	c := f.dial("n")
	mixed := tables("1", "2")
	c.reask(lds, string(schema.SetOf(mixed[2], mixed[3]).Version()), "l", "m")
	c.reask(cds, string(schema.SetOf(mixed[0]).Version()), "a")
	c.reask(rds, string(schema.SetOf(mixed[4], mixed[5]).Version()), "r", "s")
	c.expect(rds, "r@2")
}

// A stage is entered while an older response is in flight, and sends nothing before
// the answer. The next path begins from what was sent.
func TestP03WhatIsInFlightIsWhatMayBeHeld(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.envoy("n")
	with := func(b, to, table string) []*schema.Resource {
		return []*schema.Resource{eds("a", "1"), eds("b", b), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", table, to)}
	}
	f.set(schema.Envoy, with("1", "b", "2")...)
	c.expect(cds, "a@1", "b@1")
	c.ask(cds)
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.expect(rds, "r@2")
	f.set(schema.Envoy, with("1", "a", "1")...) // back, which waits for the answer
	f.settled("n", func(s *schema.SessionRow) bool { return s.Generation == 3 && s.At >= 0 })
	f.set(schema.Envoy, with("2", "a", "1")...)
	row := f.settled("n", func(s *schema.SessionRow) bool { return s.Generation == 4 })
	if !slices.Contains(row.Stages, schema.SwitchRoutes) {
		t.Errorf("the stages are %v: nothing waits for the table that the client comes to with its next answer", row.Stages)
	}
}

// Of a response that is refused, what the words do not name was applied, and is in
// use: a later one goes on to hold it, though the target has it no more.
func TestD09GoodPartsOfARefusalStay(t *testing.T) {
	f := newFleet(t)
	f.set(schema.GRPC, eds("a", "1"), eds("b", "1"), listener("l", "1", "r"), route("r", "1", "a", "b"))
	c := f.dial("n")
	c.ask(lds, "l")
	c.expect(lds, "l@1")
	c.ask(lds, "l")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.ask(cds, "a", "b")
	c.expect(cds, "a@1", "b@1")
	c.nack(cds, "cluster a is bad", "a", "b")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil })
	f.set(schema.GRPC, eds("a", "2"), listener("l", "1", "r"), route("r", "2", "a"))
	c.expect(cds, "a@2", "b@1")
}

// A listener that nobody has on record goes by a response without it.
func TestG05StrangeListenersGo(t *testing.T) {
	f := newFleet(t)
	f.set(schema.GRPC, eds("a", "1"), res(edsT, "a", "1"))
	c := f.dial("n")
	c.reask(lds, "strange", "gone")
	c.reask(rds, "strange", "r")
	c.reask(cds, "strange", "b")
	c.expect(cds)
	c.ask(cds, "b")
	c.expect(lds)
}

// A name that is newly asked for is answered with the whole type. What the client
// holds of the rest stays as it is until its turn.
func TestS07AnAnswerChangesNothingElse(t *testing.T) {
	f := newFleet(t)
	base := []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), listener("m", "1", "r"), route("r", "1", "a"), route("s", "1", "a")}
	old := append(slices.Clone(base), listener("l", "1", "r"))
	open := append(slices.Clone(base), listener("m", "2", "s"))
	f.give(&schema.Target{
		Client: schema.GRPC, Snapshot: f.snapshot(open...), Open: true,
		Known: []schema.Snapshot{f.snapshot(base...), f.snapshot(open...), f.snapshot(old...)},
	})
	c := f.dial("n") // a stranger in the middle of a rollout: its word is not enough
	c.reask(rds, "strange", "r")
	c.reask(cds, "strange", "a")
	c.expect(cds, "a@1")
	c.reask(lds, string(schema.SetOf(base[2]).Version()), "l", "m")
	c.expect(lds, "l@1", "m@1")
}

// After a crash nobody knows whether a client dropped a table and asked for it again:
// one that listeners came to lately is sent again, whatever the client reports.
func TestS06TablesThatListenersComeTo(t *testing.T) {
	tables := []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), route("r", "1", "a"), route("s", "1", "a")}
	l := listener("l", "1", "r")
	for _, c := range []struct {
		name  string
		since *schema.Resource
		again bool
	}{{"moved", listener("l", "2", "s"), true}, {"changed", listener("l", "2", "r"), false}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t, append(slices.Clone(tables), c.since)...)
			f.set(schema.Envoy, append(slices.Clone(tables), l)...)
			n := f.dial("n")
			n.reask(rds, string(schema.SetOf(tables[2]).Version()), "r")
			if c.again {
				n.expect(rds, "r@1")
			}
			n.quiet()
		})
	}
}

// Clusters are recognised by one release and tables by another: what the tables send
// to is there, too.
func TestP02WhatIsRecognisedIsClosed(t *testing.T) {
	f := newFleet(t)
	old := []*schema.Resource{eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "1", "a", "b")}
	now := []*schema.Resource{eds("a", "1"), eds("c", "1"), res(edsT, "a", "1"), res(edsT, "c", "1"), listener("l", "1", "r"), route("r", "2", "c")}
	before, target := f.snapshot(old...), f.snapshot(now...)
	f.give(&schema.Target{Client: schema.GRPC, Snapshot: target, Known: []schema.Snapshot{target, before}})
	c := f.dial("n")
	c.reask(cds, string(schema.SetOf(old[0]).Version()), "a") // of both
	c.reask(lds, string(schema.SetOf(old[4]).Version()), "l")
	c.reask(rds, string(schema.SetOf(old[5]).Version()), "r")
	f.settled("n", func(s *schema.SessionRow) bool { return s.At >= 0 && len(s.Stages) > 0 })
	c.ask(cds, "a", "b")
	c.expect(cds, "a@1", "b@1")
}
