package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

// plan makes the path from one snapshot in the words of the DSL to another.
func plan(client schema.Client, from, to string) (*schema.Path, schema.Snapshot) {
	acked, live := universe.snapshot(from)
	next, more := universe.snapshot(to)
	return NewPath(schema.State{Acked: acked}, &schema.Target{
		Client: client, Snapshot: next, Drain: -1, Patience: 30 * time.Second,
	}), live.Union(more)
}

const (
	before = "cluster a\nroute r: x.com / -> a\nlistener l -> r\n"
	canary = "cluster a\ncluster b\nroute r: x.com / -> a 90, b 10\nlistener l -> r\n"
	after  = "cluster b\nroute r: x.com / -> b\nlistener l -> r\n"
)

// started is a session at the first stage of a path, with everything sent.
func started(t *testing.T, client schema.Client, from, to string) *session {
	t.Helper()
	p, live := plan(client, from, to)
	acked, _ := universe.snapshot(from)
	c := &session{newClient(p, acked, live, []string{"l"}), t}
	c.step(schema.Step{Verdict: schema.Serve, Stage: 0, Settled: true})
	c.at = 0
	c.send()
	return c
}

type session struct {
	*client
	t *testing.T
}

func (c *session) step(want schema.Step) {
	c.t.Helper()
	if diff := cmp.Diff(want, Step(c.path, c.at, &c.facts, c.now)); diff != "" {
		c.t.Fatalf("at %d of %v (-want +got):\n%s", c.at, kinds(c.path), diff)
	}
}

// answer acknowledges the responses in flight of some types, and sends what is
// owed after.
func (c *session) answer(types ...schema.Type) {
	c.t.Helper()
	for _, typ := range types {
		c.send()
		c.receive(typ)
		if !c.ready(typ) {
			c.send()
			c.receive(schema.Endpoints)
			c.ack(schema.Endpoints)
		}
		if !c.ready(typ) {
			c.t.Fatalf("no response of %s to answer", typ)
		}
		c.ack(typ)
	}
	c.send()
}

func (c *session) serve(stage int) {
	c.t.Helper()
	c.step(schema.Step{Verdict: schema.Serve, Stage: stage, Settled: true})
	c.at, c.facts.StageAt = stage, c.now
	c.send()
}

func waits(c *session, cause schema.Cause, t schema.Type, name string) schema.Step {
	return schema.Step{
		Verdict: schema.Wait, Cause: cause, On: schema.Key{Type: t, Name: name},
		Until: c.facts.StageAt.Add(c.path.Target.Patience),
	}
}

func TestR04NackHalts(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	c.facts.Types[schema.Clusters].Nack = &schema.Nack{Type: schema.Clusters, Names: []string{"b"}}
	c.step(schema.Step{Verdict: schema.Halt, Cause: schema.Refused, On: schema.Key{Type: schema.Clusters, Name: "b"}})
	// Of several names none is to blame.
	c.facts.Types[schema.Clusters].Nack.Names = []string{"b", "c"}
	c.step(schema.Step{Verdict: schema.Halt, Cause: schema.Refused, On: schema.Key{Type: schema.Clusters}})
}

// What is still to be sent of an open stage is waited for like what is in flight;
// of a type that the stage does not move, neither is.
func TestO15OnlyWhatTheStageMoves(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	c.answer(schema.Clusters)
	c.facts.Types[schema.Clusters].Behind = true
	c.step(waits(c, schema.Unacked, schema.Clusters, ""))
	c.facts.Types[schema.Clusters].Behind = false
	c.facts.Types[schema.Listeners].Behind = true
	c.facts.Types[schema.Routes].InFlight = true
	c.serve(1)
}

// A path may change clusters alone while an older one's routes are under way: the
// session has converged once it accepted those.
func TestR06ConvergedOnceRoutesAreAccepted(t *testing.T) {
	c := started(t, schema.GRPC, before, "cluster a@2\nroute r: x.com / -> a\nlistener l -> r\n")
	if c.path.Converged != 1 || len(c.path.Stages) != 1 {
		t.Fatalf("the path is %v, and converges after %d", kinds(c.path), c.path.Converged)
	}
	c.answer(schema.Clusters)
	c.facts.Types[schema.Routes].InFlight = true
	c.step(waits(c, schema.Unacked, schema.Routes, ""))
	c.facts.Types[schema.Routes].InFlight = false
	c.serve(1)
}

// By a listener that is in flight from an older path, a gRPC client comes to
// tables that are to be warm too.
func TestP06WarmWaitsForListeners(t *testing.T) {
	c := started(t, schema.GRPC, before, after)
	c.serve(1)
	c.answer(schema.Routes, schema.Clusters, schema.Endpoints)
	c.facts.Types[schema.Listeners].InFlight = true
	c.step(waits(c, schema.Unacked, schema.Listeners, ""))
	c.facts.Types[schema.Listeners].InFlight = false
	c.serve(2)
	c.facts.Types[schema.Listeners].InFlight = true
	c.answer(schema.Routes)
	c.facts.Types[schema.Listeners].InFlight = false
	c.serve(3)
}

func TestR05SilenceIsBounded(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	c.step(waits(c, schema.Unacked, schema.Clusters, ""))
	c.now = c.now.Add(30*time.Second - 1)
	c.step(waits(c, schema.Unacked, schema.Clusters, ""))
	c.now = c.now.Add(1)
	c.step(schema.Step{Verdict: schema.Halt, Cause: schema.Silent, On: schema.Key{Type: schema.Clusters}})
	// Without patience a session is waited for, for ever.
	c.path.Target.Patience = 0
	c.step(schema.Step{Verdict: schema.Wait, Cause: schema.Unacked, On: schema.Key{Type: schema.Clusters}})
}

func TestHoldOpensNoStage(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	c.answer(schema.Clusters)
	c.facts.Hold = true
	held := schema.Step{Verdict: schema.Wait, Stage: 1, Cause: schema.Held, Settled: true}
	c.step(held)
	c.facts.Hold = false
	c.serve(1)
	// Nor the first, nor the target of a path without stages.
	p, _ := plan(schema.Envoy, before, before)
	held.Stage = 0
	for _, path := range []*schema.Path{c.path, p} {
		if diff := cmp.Diff(held, Step(path, schema.Before, &schema.Facts{Hold: true}, c.now)); diff != "" {
			t.Error(diff)
		}
	}
}

// What stages already served is waited for even in a hold, and a session at the
// end of its path is done.
func TestHoldAtTheEnd(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	c.answer(schema.Clusters)
	c.serve(1)
	c.facts.Hold = true
	c.step(waits(c, schema.Unacked, schema.Routes, ""))
	c.answer(schema.Routes)
	c.serve(2)
	c.step(schema.Step{Verdict: schema.Done, Settled: true})
}

func TestO10DrainBeginsWithTheAck(t *testing.T) {
	c := started(t, schema.Envoy, "cluster a\ncluster b\nroute r: x.com / -> a\nlistener l -> r\n", after)
	c.answer()
	c.serve(1)
	c.now = c.now.Add(20 * time.Second) // the ACK is slow
	c.answer(schema.Routes)
	acked := c.now
	drains := schema.Step{
		Verdict: schema.Wait, Stage: 2, Cause: schema.Draining, On: schema.Key{Type: schema.Clusters, Name: "a"},
		Until: acked.Add(drainRoute), Settled: true,
	}
	c.step(drains)
	c.now = acked.Add(drainRoute - 1)
	c.step(drains)
	c.now = acked.Add(drainRoute)
	c.serve(2)
}

// A removal waits for whatever is un-ACKed, whichever stage sent it.
func TestO10RemovalWaitsForWhatIsInFlight(t *testing.T) {
	p, _ := plan(schema.Envoy, canary, before)
	p.Stages = p.Stages[len(p.Stages)-1:]
	var f schema.Facts
	f.Types[schema.Listeners] = schema.TypeFacts{Sub: &schema.Subscription{Wildcard: true}, InFlight: true}
	now := time.Unix(1e9, 0)
	want := schema.Step{Verdict: schema.Wait, Cause: schema.Unacked, On: schema.Key{Type: schema.Listeners}, Settled: true}
	if diff := cmp.Diff(want, Step(p, schema.Before, &f, now)); diff != "" {
		t.Error(diff)
	}
	f.Types[schema.Listeners].InFlight = false
	f.Types[schema.Endpoints] = schema.TypeFacts{Sub: &schema.Subscription{}, InFlight: true} // live: no matter
	if got := Step(p, schema.Before, &f, now); got.Verdict != schema.Serve {
		t.Errorf("got %v", got)
	}
}

func TestG05PruneWaitsUntilUnused(t *testing.T) {
	c := started(t, schema.GRPC, before, after)
	c.answer()
	c.serve(1)
	c.answer(schema.Routes, schema.Clusters, schema.Endpoints)
	c.serve(2)
	c.answer(schema.Routes)
	c.serve(3)
	sub := *c.facts.Types[schema.Clusters].Sub
	c.answer(schema.Routes)
	c.facts.Types[schema.Clusters].Sub = &sub // the client is slow to let go
	c.step(schema.Step{
		Verdict: schema.Wait, Stage: 4, Cause: schema.InUse, On: schema.Key{Type: schema.Clusters, Name: "a"}, Settled: true,
	})
	c.ask()
	c.serve(4)
}

// A client that came back has not yet asked for all that it uses.
func TestS09RemovalsSettleFirst(t *testing.T) {
	p, _ := plan(schema.GRPC, canary, before)
	f := schema.Facts{Returned: time.Unix(1e9, 0)}
	last := len(p.Stages) - 1
	p.Stages[last].Drain = 0
	got := Step(p, last-1, &f, f.Returned.Add(settle-1))
	want := schema.Step{
		Verdict: schema.Wait, Stage: last, Cause: schema.Draining, On: schema.Key{Type: schema.Clusters, Name: "b"},
		Until: f.Returned.Add(settle), Settled: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := Step(p, last-1, &f, f.Returned.Add(settle)); got.Verdict != schema.Serve {
		t.Errorf("got %v", got)
	}
}

// A session that asks for nothing, or for some types alone, is gated by nothing
// else.
func TestP07NotAskedFor(t *testing.T) {
	for _, client := range []schema.Client{schema.Envoy, schema.GRPC} {
		p, _ := plan(client, before, after+"cluster c\nlistener m -> r\n")
		now := time.Unix(1e9, 0)
		var f schema.Facts
		for at := schema.Before; at < len(p.Stages); at++ {
			got := Step(p, at, &f, now)
			if got.Cause == schema.Draining {
				now = got.Until
				got = Step(p, at, &f, now)
			}
			if got.Verdict != schema.Serve {
				t.Fatalf("at %d of %v: %v", at, kinds(p), got)
			}
		}
	}
}

// A cluster in the make stage gates no gRPC client that was told of no route to
// it; in the warm stage, one that has the table is waited for.
func TestP07GRPCAsksWhenARouteNamesIt(t *testing.T) {
	c := started(t, schema.GRPC, before, after)
	c.serve(1)
	c.step(waits(c, schema.Unacked, schema.Routes, ""))
	c.receive(schema.Routes)
	c.facts.Types[schema.Clusters].Sub = &schema.Subscription{Names: []string{"a"}} // not yet
	c.ack(schema.Routes)
	c.step(schema.Step{
		Verdict: schema.Wait, Cause: schema.Unasked, On: schema.Key{Type: schema.Clusters, Name: "b"}, Until: c.now.Add(settle),
	})
	c.ask()
	c.send()
	c.step(waits(c, schema.Unacked, schema.Clusters, ""))
	c.answer(schema.Clusters, schema.Endpoints)
	c.serve(2)
}

// Of a table's clusters a client asks only for those of its own virtual host: the
// others are waited for no longer than a client takes to ask.
func TestP07OtherVirtualHost(t *testing.T) {
	shared := before + "cluster b\nroute r: other.com / -> b\n"
	c := started(t, schema.GRPC, shared, strings.ReplaceAll(shared, "cluster b", "cluster b@2"))
	c.facts.Types[schema.Routes].AckedAt = c.now
	c.step(schema.Step{
		Verdict: schema.Wait, Cause: schema.Unasked, On: schema.Key{Type: schema.Clusters, Name: "b"}, Until: c.now.Add(settle),
	})
	c.now = c.now.Add(settle)
	c.serve(1)
}

// An EDS cluster that was sent implies a subscription, however late.
func TestO15EndpointsWillBeAskedFor(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	c.receive(schema.Clusters)
	c.facts.Types[schema.Endpoints].Sub = &schema.Subscription{Names: []string{"a"}} // not yet
	c.ack(schema.Clusters)
	c.step(waits(c, schema.Unasked, schema.Endpoints, "b"))
	c.now = c.now.Add(time.Minute)
	c.step(schema.Step{Verdict: schema.Halt, Cause: schema.Unasked, On: schema.Key{Type: schema.Endpoints, Name: "b"}})
}

// Sessions on one path go as fast as each answers.
func TestP13GatesArePerSession(t *testing.T) {
	quick := started(t, schema.Envoy, before, canary)
	slow := started(t, schema.Envoy, before, canary)
	slow.path = quick.path
	quick.answer(schema.Clusters)
	quick.serve(1)
	slow.step(waits(slow, schema.Unacked, schema.Clusters, ""))
}

// The gate sees what the plan could not: endpoints that are empty by now.
func TestP14GateNeedsUsableEndpoints(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	_, empty := universe.snapshot("endpoints b empty")
	full := c.live
	c.live = c.live.Union(empty)
	c.answer(schema.Clusters)
	c.step(waits(c, schema.Unusable, schema.Endpoints, "b"))
	c.live = full
	c.answer(schema.Endpoints)
	c.serve(1)
}

// Endpoints that were acknowledged before their cluster changed, or are on their
// way, do not count.
func TestO05GateNeedsFreshEndpoints(t *testing.T) {
	c := started(t, schema.Envoy, before, strings.ReplaceAll(before, "cluster a", "cluster a@2"))
	c.answer(schema.Clusters)
	f := &c.facts.Types[schema.Endpoints]
	f.Resend = c.live.Of(schema.Endpoints)
	c.step(waits(c, schema.Unacked, schema.Endpoints, "a"))
	f.Flight, f.Resend = f.Resend, schema.Set{}
	c.step(waits(c, schema.Unacked, schema.Endpoints, "a"))
	f.Flight = schema.Set{}
	c.serve(1)
}

// A type that the client answers without watching it gates nothing.
func TestS14IgnoredGatesNothing(t *testing.T) {
	c := started(t, schema.Envoy, before, canary)
	c.answer(schema.Clusters)
	c.serve(1)
	f := &c.facts.Types[schema.Routes]
	f.InFlight, f.Flight, f.Ignored = false, schema.Set{}, true
	c.step(schema.Step{Verdict: schema.Serve, Stage: 2, Settled: true})
}
