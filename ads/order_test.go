package ads

import (
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// route makes a route table that sends to clusters. Its content is a word, so
// package planner finds no virtual hosts in it and makes no warm routes.
func route(name, content string, clusters ...string) *schema.Resource {
	var refs []schema.Ref
	for _, c := range clusters {
		refs = append(refs, ref(schema.Clusters, c, schema.Traffic))
	}
	return res(schema.Routes, name, content, refs...)
}

func listener(name, content, table string) *schema.Resource {
	return res(schema.Listeners, name, content, ref(schema.Routes, table, schema.Child))
}

// envoy brings a client up as Envoy does: clusters, endpoints, listeners, routes.
func (f *fleet) envoy(node string) *client {
	c := f.dial(node)
	c.ask(cds)
	c.expect(cds, "a@1")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(cds)
	c.ask(lds)
	c.expect(lds, "l@1")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.ask(lds)
	c.quiet()
	f.settled(node, func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	return c
}

func first() []*schema.Resource {
	return []*schema.Resource{eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a")}
}

func TestO02EndpointsDoNotWaitForClusters(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))
	c.expect(cds, "a@1", "b@1")
	// The client withholds its ACK while b warms, and asks for b's endpoints.
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.quiet() // routes wait for both
	c.ask(edsT, "a", "b")
	c.quiet()
	c.ask(cds)
	c.expect(rds, "r@2")
}

func TestO03AnswersByNameWithoutClusters(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.dial("n") // a reconnect in the middle of warming: endpoints come first
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
}

func TestO04EndpointsWithTheFirstClusters(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.dial("n")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(cds)
	c.expect(cds, "a@1")
	c.expect(edsT, "a@1") // again, behind its cluster
}

func TestO05EndpointsAfterAClusterChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "a@2")
	c.expect(edsT, "a@1") // unchanged and unasked
	c.ask(cds)
	c.ask(edsT, "a")
	c.quiet()
}

// Endpoints that were in flight before the cluster changed do not count.
func TestO05InFlightEndpointsDoNotCount(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "2")))
	c.expect(edsT, "a@2")
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "2"), listener("l", "1", "r"), route("r", "2", "a"))
	c.expect(cds, "a@2")
	c.ask(cds)
	c.quiet()
	c.ask(edsT, "a") // the ACK of what was sent before the cluster
	c.expect(edsT, "a@2")
	c.quiet() // routes wait for the second
	c.ask(edsT, "a")
	c.expect(rds, "r@2")
}

// A cluster that may have changed in a refused response changes when it goes back.
func TestO05EndpointsOfAClusterThatWalksBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, append(first()[1:], eds("a", "2"), res(cds, "bad", "1"))...)
	c.expect(cds, "a@2", "bad@1")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.nack(cds, "bad is bad") // and a@2 was applied
	c.quiet()
	f.set(schema.Envoy, first()...)
	c.expect(cds, "a@1")
	c.expect(edsT, "a@1")
}

func TestO06ClustersGoBeforeTheirEndpoints(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	// Both at once: the new endpoints are not pushed before the cluster is.
	f.set(schema.Envoy, eds("a", "1"), res(edsT, "a", "1"), eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))
	c.expect(cds, "a@1", "b@1")
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
}

func TestO07RoutesWhileAListenerIsPending(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, append(first(), listener("m", "1", "s"), route("s", "1", "a"))...)
	c.expect(lds, "l@1", "m@1")
	// The client's ACK of the listener waits for its route table.
	c.ask(rds, "r", "s")
	c.expect(rds, "s@1")
	c.ask(rds, "r", "s")
	c.ask(lds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

func TestO10PruneWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	drain := 300 * time.Millisecond
	f.give(&schema.Target{Drain: drain, Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))})
	c.expect(cds, "a@1", "b@1") // the union first
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.expect(rds, "r@2")
	c.quiet()
	c.ask(rds, "r")
	acked := time.Now()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Converged && s.Step.Cause == schema.Draining })
	c.quiet()
	c.expect(cds, "b@1")
	if d := time.Since(acked); d < drain-50*time.Millisecond {
		t.Errorf("pruned %s after the routes' ACK, before the drain of %s", d, drain)
	}
}

func TestO14OpenStageTakesNoNewerResponse(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, append(first(), eds("b", "1"), res(edsT, "b", "1"))...)
	c.expect(cds, "a@1", "b@1")
	// A second commit, and endpoint churn, while the first is unanswered.
	f.set(schema.Envoy, append(first(), eds("c", "1"), res(edsT, "c", "1"))...)
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "2")))
	c.expect(edsT, "a@2") // live types go on
	c.ask(edsT, "a")
	c.quiet()
	c.ask(cds)
	// What may have been applied is kept: b stays until the prune.
	c.expect(cds, "a@1", "b@1", "c@1")
}

func TestO15GatesOnlyWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.dial("n")
	c.ask(cds) // a node that takes clusters and nothing else
	c.expect(cds, "a@1")
	c.ask(cds)
	c.quiet()
	f.give(&schema.Target{Snapshot: f.snapshot(res(cds, "s", "1"), listener("l", "2", "r"), route("r", "2", "s"))})
	c.expect(cds, "a@1", "s@1")
	c.ask(cds)
	c.expect(cds, "s@1") // no listener and no route gates the prune
	c.ask(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

func TestO15AnEDSClusterImpliesItsSubscription(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, eds("a", "1"), res(edsT, "a", "1"), eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))
	c.expect(cds, "a@1", "b@1")
	c.ask(cds) // the ACK comes before the client asks for b's endpoints
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unasked && s.Step.On.Name == "b" })
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.quiet()
	c.ask(edsT, "a", "b")
	c.expect(rds, "r@2")
}

// tcp makes a listener that sends to a cluster by itself.
func tcp(name, content, cluster string) *schema.Resource {
	return res(schema.Listeners, name, content, ref(schema.Clusters, cluster, schema.Traffic))
}

func TestO16NoDeleteAndAddOfOneName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	// The target lacks a, and the next has it again before a was pruned: it is
	// never taken away.
	f.give(&schema.Target{Drain: time.Hour, Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))})
	c.expect(cds, "a@1", "b@1")
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.expect(rds, "r@2")
	c.ask(rds, "r")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Draining })
	f.give(&schema.Target{Drain: time.Hour, Snapshot: f.snapshot(first()...)})
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Draining && s.Step.On.Name == "b" })
}

func TestHoldStopsStagesAndNotEndpoints(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	to := &schema.Target{Snapshot: f.snapshot(eds("a", "1"), res(edsT, "a", "1"), listener("l", "2", "r"), route("r", "2", "a"))}
	f.give(to)
	c.expect(lds, "l@2")
	held := *to
	held.Hold = true
	f.give(&held)
	c.ask(lds)
	c.quiet()
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "2")))
	c.expect(edsT, "a@2")
	c.ask(edsT, "a")
	again := *to
	f.give(&again)
	c.expect(rds, "r@2")
}

// An answer that comes after the session was halted for silence opens nothing
// more: the group is held by then, or about to be.
func TestLateAnswerAfterTheHalt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.mu.Lock()
	f.patience = 50 * time.Millisecond
	f.mu.Unlock()
	f.give(&schema.Target{Snapshot: f.snapshot(eds("a", "1"), res(edsT, "a", "1"), listener("l", "2", "r"), route("r", "2", "a"))})
	c.expect(lds, "l@2")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Halt && s.Step.Cause == schema.Silent })
	c.ask(lds)
	c.quiet()
}

const (
	sds  = schema.Secrets
	ecds = schema.Extensions
	srds = schema.ScopedRoutes
)

// Secrets and extensions go with or before what refers to them, and extensions are
// taken away after it.
func TestO13ChildrenOfListeners(t *testing.T) {
	t.Parallel()
	with := func(version string) []*schema.Resource {
		l := res(lds, "l", version, ref(ecds, "x"+version, schema.Child), ref(sds, "s"+version, schema.Child))
		return []*schema.Resource{l, res(ecds, "x"+version, "1"), res(sds, "s"+version, "1")}
	}
	f := newFleet(t, with("1")...)
	c := f.deltaDial("n")
	c.sub(lds)
	c.expect(lds, "l@1")
	c.sub(ecds, "x1")
	c.expect(ecds, "x1@1")
	c.ack(ecds)
	c.sub(sds, "s1")
	c.expect(sds, "s1@1")
	c.ack(sds)
	c.ack(lds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	f.give(&schema.Target{Snapshot: f.snapshot(with("2")...)})
	c.expect(lds, "l@2")
	c.sub(ecds, "x2") // a listener warms: they are there before its ACK
	c.expect(ecds, "x2@1")
	c.ack(ecds)
	c.sub(sds, "s2")
	c.expect(sds, "s2@1")
	c.ack(sds)
	c.quiet() // the old extension stays while the old listener may use it
	c.ack(lds)
	c.unsub(ecds, "x1")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })

	// In place, an extension goes before the listener that changes with it.
	f.give(&schema.Target{Snapshot: f.snapshot(res(lds, "l", "3", ref(ecds, "x2", schema.Child)), res(ecds, "x2", "3"))})
	c.expect(ecds, "x2@3")
	c.quiet()
	c.ack(ecds)
	c.expect(lds, "l@3")
	c.ack(lds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })

	// And it is taken away last, although the client asks for it still.
	f.give(&schema.Target{Snapshot: f.snapshot(res(lds, "l", "4"))})
	c.expect(lds, "l@4")
	c.quiet()
	c.ack(lds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.InUse && s.Step.On.Name == "x2" })
	c.unsub(ecds, "x2")
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

// Tables of scoped routes need their clusters first.
func TestO13ScopedRoutes(t *testing.T) {
	t.Parallel()
	scope := func(version, table string) *schema.Resource {
		return res(srds, "s", version, ref(rds, table, schema.Child))
	}
	f := newFleet(t, append(first(), scope("1", "r"))...)
	c := f.envoy("n")
	c.ask(srds)
	c.expect(srds, "s@1")
	c.ask(srds)
	c.quiet()
	f.set(schema.Envoy, append(first(), eds("b", "1"), res(edsT, "b", "1"), scope("2", "q"), route("q", "1", "b"))...)
	c.expect(cds, "a@1", "b@1")
	c.ask(rds, "r", "q") // even if the client knows of the table: its turn comes later
	c.quiet()
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.expect(rds, "q@1")
	c.ask(rds, "r", "q")
	c.expect(srds, "s@2")
}
