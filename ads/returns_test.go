package ads

import (
	"runtime"
	"slices"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// What histories in test/sim went wrong by: answers that come late, and clients
// that come back.

// The fix is merged before the refusal of what it mends has arrived.
func TestLateRefusalDoesNotHaltTheFix(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.envoy("n")
	bad := append(first(), eds("b", "bad"), res(edsT, "b", "1"))
	f.set(schema.Envoy, bad...)
	c.expect(cds, "a@1", "b@bad")
	fixed := append(first(), eds("b", "good"), res(edsT, "b", "1"))
	f.set(schema.Envoy, fixed...)
	c.nack(cds, "b is bad")
	c.expect(cds, "a@1", "b@good")
	c.ask(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict != schema.Halt })
}

// A newcomer that has not yet asked for listeners is given the newest.
func TestNewcomerSkipsWhatWasSuperseded(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1")
	f.set(schema.Envoy, eds("a", "1"), res(edsT, "a", "1"), listener("l", "2", "r"), route("r", "1", "a"))
	c.ask(lds)
	c.quiet() // it is a stage like any other by now
	c.ask(cds)
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.expect(lds, "l@2")
}

// come takes a client that went away, and asks again for some types.
func (f *fleet) come(old *client) *client {
	old.close()
	c := f.dial(old.node)
	c.acked = old.acked
	return c
}

// Clusters that changed while a client was away warm until their endpoints come,
// though it reports that it holds them.
func TestO05EndpointsBehindTheClustersOfAReconnect(t *testing.T) {
	f := newFleet(t, first()...)
	old := f.envoy("n")
	c := f.come(old)
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.reask(cds, old.acked[cds])
	c.expect(cds, "a@2")
	c.reask(edsT, old.acked[edsT], "a")
	c.expect(edsT, "a@1")
}

// Envoy does not ask for clusters while some warm. Nothing is routed to others
// before it does.
func TestO03RoutesWaitForClustersThatAreNotAskedFor(t *testing.T) {
	f := newFleet(t, first()...)
	old := f.envoy("n")
	c := f.come(old)
	f.set(schema.Envoy, eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))
	c.reask(edsT, old.acked[edsT], "a")
	c.expect(edsT, "a@1") // whatever it says that it holds
	c.reask(lds, old.acked[lds])
	c.reask(rds, old.acked[rds], "r")
	c.quiet()
	c.ask(edsT, "a")
	c.reask(cds, old.acked[cds])
	c.expect(cds, "a@1", "b@1")
	c.expect(edsT, "a@1") // behind its cluster (rule O4)
	c.quiet()
}

// A gRPC client comes back with tables that nobody has on record: it is taken to
// send to what it names, and what comes next is warm first.
func TestG09StrangeTablesGoByTheClustersThatAreNamed(t *testing.T) {
	f := newFleet(t)
	to := func(cluster string) []*schema.Resource {
		return []*schema.Resource{
			eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"),
			listener("l", "1", "r"), route("r", cluster, cluster),
		}
	}
	f.set(schema.GRPC, to("a")...)
	f.set(schema.GRPC, to("b")...)
	c := f.dial("n")
	c.reask(lds, "strange", "l")
	c.reask(rds, "strange", "r")
	c.quiet() // until it has said which clusters it names
	c.reask(cds, "strange", "a")
	c.expect(cds, "a@1")
	c.quiet() // b is to come first
}

// A gRPC client comes back and waits for some of the clusters that it names: its
// table goes on to name them.
func TestG07ClustersThatAreWaitedForStay(t *testing.T) {
	f := newFleet(t)
	all := []*schema.Resource{
		eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "1", "a", "b"),
	}
	f.set(schema.GRPC, all...)
	f.set(schema.GRPC, eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "2", "a"))
	c := f.dial("n")
	c.reask(lds, string(schema.SetOf(all[4]).Version()), "l")
	c.reask(rds, string(schema.SetOf(all[5]).Version()), "r")
	c.reask(cds, string(schema.SetOf(all[0]).Version()), "a", "b")
	c.expect(cds, "a@1", "b@1")
}

// A gRPC client holds one of the two tables that it asks for, as it was in a release
// before: what it lacks does not hide what it has.
func TestG09ATableBesideOneThatIsWaitedFor(t *testing.T) {
	f := newFleet(t)
	to := func(cluster string) []*schema.Resource {
		return []*schema.Resource{
			eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"),
			listener("l", "1", "r"), listener("m", "1", "s"), route("r", cluster, cluster), route("s", "1", "a"),
		}
	}
	f.set(schema.GRPC, to("a")...)
	f.set(schema.GRPC, to("b")...)
	c := f.dial("n")
	c.reask(lds, string(schema.SetOf(to("a")[4:6]...).Version()), "l", "m")
	c.reask(rds, string(schema.SetOf(route("r", "a", "a")).Version()), "r", "s")
	c.expect(rds, "s@1")
}

// A gRPC client that waited for a table when its stream ended says of the others
// what is true: it is moved on from those, and not from what the group may have.
func TestG09WhatWasWaitedForCastsNoDoubtOnTheRest(t *testing.T) {
	to := func(cluster, content string) []*schema.Resource {
		return []*schema.Resource{
			eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", content, "r"), realTable(cluster),
		}
	}
	f := newFleet(t)
	f.set(schema.GRPC, to("a", "1")...)
	c := f.tableDialer("n")
	c.quiet()
	held := c.acked
	c.close()
	f.settledAway("n")
	f.set(schema.GRPC, to("a", "2")...)
	c = f.dial("n")
	c.reask(lds, held[lds], "l")
	c.reask(cds, held[cds], "a")
	c.expect(lds, "l@2")
	c.ask(lds, "l") // and goes away before it asks for tables
	c.quiet()
	held[lds] = c.acked[lds]
	c.close()
	f.settledAway("n")
	f.set(schema.GRPC, to("b", "2")...)
	c = f.dial("n")
	c.reask(edsT, held[edsT], "a") // with this it may be anywhere
	c.reask(lds, held[lds], "l")
	c.reask(rds, held[rds], "r")
	c.reask(cds, held[cds], "a")
	c.expectTable("never→b", "a")
}

// What was on record when a client came is recognised, also if another target
// comes before it has said all.
func TestS09WhatWasOnRecordWhenItCame(t *testing.T) {
	f := newFleet(t)
	to := func(cluster string) []*schema.Resource {
		return []*schema.Resource{
			eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), realTable(cluster),
		}
	}
	f.set(schema.GRPC, to("a")...)
	f.set(schema.GRPC, to("b")...)
	held := to("a")
	c := f.dial("n")
	c.reask(edsT, string(schema.SetOf(held[2]).Version()), "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	f.give(&schema.Target{Client: schema.GRPC, Snapshot: f.snapshot(to("b")...), Known: []schema.Snapshot{f.snapshot(to("b")...)}})
	c.reask(lds, string(schema.SetOf(held[4]).Version()), "l")
	c.reask(cds, string(schema.SetOf(held[0]).Version()), "a")
	c.reask(rds, string(schema.SetOf(held[5]).Version()), "r")
	c.expectTable("never→b", "a")
}

// Of two generations of a node the newer is the one whose stream is, though its
// request may come first.
func TestTheNewerStreamIsTheNewerGeneration(t *testing.T) {
	f := newFleet(t, first()...)
	begun := func(n uint64) {
		for f.srv.stats.Begun.Load() < n {
			runtime.Gosched()
		}
	}
	older := f.dial("n")
	begun(1)
	newer := f.dial("n")
	begun(2)
	newer.ask(cds)
	newer.expect(cds, "a@1")
	older.ask(lds)
	older.expect(lds, "l@1")
	older.ask(rds, "r")
	older.expect(rds, "r@1")
	f.settled("n", func(*schema.SessionRow) bool { return len(f.srv.View().Sessions()) == 2 })
	all := f.srv.View().Sessions()
	if types := f.srv.View().Types(all[len(all)-1].ID); len(types) != 1 || types[0].Type != cds {
		t.Errorf("the session that counts asked for %v", types)
	}
}

// What a client routes by is on nobody's record: it has not converged before it
// accepted something in its place, though the stage that brings it prunes only.
func TestR06StrangeTablesHaveNotConverged(t *testing.T) {
	f := newFleet(t)
	one := []*schema.Resource{eds("a", "1"), eds("b", "1"), res(edsT, "a", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "1", "a"), route("old", "1", "b")}
	f.set(schema.GRPC, one...)
	f.set(schema.GRPC, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c := f.dial("n")
	c.reask(lds, string(schema.SetOf(one[4]).Version()), "l")
	c.reask(rds, "strange", "r")
	c.reask(cds, "strange", "a")
	c.expect(cds, "a@2")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(cds, "a")
	c.ask(edsT, "a")
	c.expect(rds, "r@1")
	unlisten := func(s *schema.SessionRow) bool { return s.At == 1 }
	if s := f.settled("n", unlisten); s.Stages[1] != schema.Unlisten || s.Converged {
		t.Errorf("the session is %+v", s)
	}
	c.ask(rds, "r")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Converged })
}

// A client names the clusters of its own virtual host alone. Of the tables that it
// may be given, none of which it names in full, it comes to the one that names all
// that it does.
func TestG09StrangeTablesOfOtherVirtualHosts(t *testing.T) {
	f := newFleet(t)
	to := func(content string, clusters ...string) []*schema.Resource {
		rs := []*schema.Resource{listener("l", "1", "r"), route("r", content, clusters...)}
		for _, c := range []string{"a", "b", "c"} {
			rs = append(rs, eds(c, "1"), res(edsT, c, "1"))
		}
		return rs
	}
	now, old := f.snapshot(to("2", "a", "c")...), f.snapshot(to("1", "b", "c")...) // of which the client knows neither
	f.give(&schema.Target{Client: schema.GRPC, Snapshot: now, Known: []schema.Snapshot{now, old}})
	c := f.dial("n")
	c.reask(rds, "strange", "r")
	c.reask(lds, "strange", "l")
	c.reask(cds, "strange", "a")
	c.expect(cds, "a@1")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(cds, "a")
	c.ask(edsT, "a")
	c.expect(lds, "l@1")
	c.ask(lds, "l")
	c.expect(rds, "r@2")
	if s := f.settled("n", func(s *schema.SessionRow) bool { return s.At >= 0 }); slices.Contains(s.Stages, schema.SwitchRoutes) {
		t.Errorf("it is led from another table: %v", s.Stages)
	}
}
