package ads

import (
	"errors"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/schema"
)

const (
	cds  = schema.Clusters
	edsT = schema.Endpoints
	lds  = schema.Listeners
	rds  = schema.Routes
)

func TestS01NackByErrorDetailAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	r := c.expect(rds, "r@1")
	// A NACK may carry the version that was just sent: it is one all the same.
	c.acked[rds] = r.VersionInfo
	c.nack(rds, "no", "r")
	row := f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil })
	if row.Nack.Words != "no" || string(row.Nack.Version) != r.VersionInfo || row.Nack.Nonce != r.Nonce {
		t.Errorf("recorded %+v", row.Nack)
	}
}

func TestS02FirstNonceIsIgnored(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), ResourceNames: []string{"r"}, ResponseNonce: "7", VersionInfo: "old"})
	c.expect(rds, "r@1")
}

func TestS03NodeOnTheFirstRequest(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		f := newFleet(t)
		c := f.dial("n")
		c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: cds.URL(), Node: &corev3.Node{}})
		c.ends("InvalidArgument")
	})
	t.Run("changed", func(t *testing.T) {
		f := newFleet(t, res(cds, "a", "1"))
		c := f.dial("n")
		c.ask(cds)
		c.expect(cds, "a@1")
		c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: cds.URL(), Node: &corev3.Node{Id: "m"}})
		c.ends("InvalidArgument")
	})
	t.Run("bound", func(t *testing.T) {
		f := newFleet(t, res(cds, "a", "1"), res(lds, "l", "1"))
		c := f.dial("n")
		c.ask(cds)
		c.expect(cds, "a@1")
		c.ask(lds) // without a node
		c.expect(lds, "l@1")
		f.settled("n", func(s *schema.SessionRow) bool { return s.Planned })
	})
}

func TestS03RefusedNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.refuse = errors.New("no group matches node \"n\"")
	c := f.dial("n")
	c.ask(cds)
	c.ends("no group matches node")
	if nodes := f.srv.View().Nodes(); len(nodes) != 1 || nodes[0].Refusal == "" {
		t.Errorf("the ledger says %+v", nodes)
	}
}

func TestS04StaleNonce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"), res(rds, "s", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	first := c.expect(rds, "r@1")
	c.ask(rds, "r")
	f.set(schema.Envoy, res(rds, "r", "2"), res(rds, "s", "1"))
	c.expect(rds, "r@2")
	// An answer to the first response comes late, and names another resource:
	// it is neither ACK nor NACK, but the name counts.
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), ResourceNames: []string{"r", "s"}, VersionInfo: first.VersionInfo, ResponseNonce: first.Nonce})
	c.quiet()
	c.ask(rds, "r", "s")
	c.expect(rds, "s@1")
}

func TestS04NonceOfAnotherType(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"), res(lds, "l", "1"))
	c := f.dial("n")
	c.ask(lds, "l")
	l := c.expect(lds, "l@1")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), ResourceNames: []string{"r"}, VersionInfo: "x", ResponseNonce: l.Nonce})
	c.quiet()
	f.typed("n", rds, func(r *schema.TypeRow) bool { return r.InFlight && r.Held == 0 })
}

func TestS05Wildcard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "A", "1"), res(cds, "B", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "A@1", "B@1")
	c.ask(cds, "*", "A")
	c.expect(cds, "A@1", "B@1") // A was added: it is sent, and a response is the whole state
	c.ask(cds, "A")
	c.quiet() // less is asked for, and nothing is new
	c.ask(cds)
	c.quiet() // after a name, empty means nothing
	f.set(schema.Envoy, res(cds, "A", "2"), res(cds, "B", "2"))
	c.quiet()
}

func TestS05EmptyListenersAfterANameUnsubscribe(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(lds, "a", "1"), res(lds, "b", "1"))
	c := f.dial("n")
	c.ask(lds, "a")
	c.expect(lds, "a@1")
	c.ask(lds)
	c.quiet()
	f.set(schema.GRPC, res(lds, "a", "2"), res(lds, "b", "2"))
	c.quiet()
}

func TestS06NamesReplaceTheLast(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"), res(rds, "s", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(rds, "s") // ACK of r, and another subscription
	c.expect(rds, "s@1")
	f.set(schema.Envoy, res(rds, "r", "2"), res(rds, "s", "1"))
	c.ask(rds, "s")
	c.quiet()
	c.ask(rds, "r", "s") // dropped and added again
	c.expect(rds, "r@2")
	c.ask(rds, "s")
	c.ask(rds, "r", "s") // again, although nothing changed
	c.expect(rds, "r@2")
}

func TestS07FullStateAndPartial(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"), res(cds, "b", "1"), res(rds, "r", "1"), res(rds, "s", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1", "b@1")
	c.ask(cds)
	c.ask(rds, "r", "s", "r") // twice asked, once sent
	c.expect(rds, "r@1", "s@1")
	c.ask(rds, "r", "s")
	c.quiet()
	f.set(schema.Envoy, res(cds, "a", "2"), res(cds, "b", "1"), res(rds, "r", "2"), res(rds, "s", "1"))
	c.expect(cds, "a@2", "b@1") // everything
	c.ask(cds)
	c.expect(rds, "r@2") // what changed
}

func TestS08MissingName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(rds, "r", "missing")
	c.expect(rds, "r@1") // what exists is not withheld
	c.ask(rds, "r", "missing")
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "1"), res(rds, "missing", "1"))
	c.expect(rds, "missing@1")
}

func TestS10AnswersOnlyNews(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.quiet()
	c.ask(rds, "r")
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "1"))
	c.quiet()
}

// After a NACK the content is unknown: walking back sends what was acknowledged
// before, although nothing else was acknowledged since.
func TestS10WalkingBackAfterANack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "2"))
	c.expect(rds, "r@2")
	c.nack(rds, "no", "r")
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "1"))
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack == nil && s.Step.Verdict == schema.Done })
}

func TestS12AckedSet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"), res(cds, "b", "1"), res(rds, "r", "1"), res(rds, "s", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1", "b@1")
	c.ask(cds)
	c.ask(rds, "r", "s")
	c.expect(rds, "r@1", "s@1")
	c.ask(rds, "r") // ACK, and s is dropped
	c.quiet()
	f.typed("n", cds, func(r *schema.TypeRow) bool { return r.Held == 2 })
	f.typed("n", rds, func(r *schema.TypeRow) bool { return r.Held == 1 }) // the one still subscribed
}

func TestS13AckIsNotActive(t *testing.T) {
	t.Parallel()
	// An ACK of routes opens what follows it, and proves no more: the level of
	// such a gate is "acked". Clusters of Envoy are "warm" (TestProofLevels of
	// package planner). Here: the gate does not open before the ACK.
	f := newFleet(t, res(cds, "a", "1"), res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1")
	c.ask(cds)
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	c.quiet()
	f.give(&schema.Target{Snapshot: f.snapshot(res(cds, "b", "1"), res(rds, "r", "2"))})
	c.expect(cds, "a@1", "b@1")
	c.quiet()
	c.ask(cds)
	c.expect(rds, "r@2")
	c.quiet() // nothing is pruned before that is acknowledged
	c.ask(rds, "r")
	c.expect(cds, "b@1")
}

func TestS14CollapsedRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1")
	// One is in flight: newer content waits, and is merged.
	f.set(schema.Envoy, res(cds, "a", "2"))
	f.set(schema.Envoy, res(cds, "a", "3"))
	c.quiet()
	c.ask(cds)
	c.expect(cds, "a@3")
}

func TestS14Ignored(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	r := c.expect(rds, "r@1")
	// The newest nonce with an old version and no error: not watched.
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), ResourceNames: []string{"r"}, ResponseNonce: r.Nonce})
	c.quiet() // and not sent again
	f.typed("n", rds, func(r *schema.TypeRow) bool { return r.Ignored && r.Held == 0 })
}

func TestS15NackedContentIsNotSentAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"), res(cds, "a", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	c.expect(rds, "r@1")
	c.ask(cds)
	c.expect(cds, "a@1")
	c.nack(rds, "no", "r")
	c.nack(cds, "no")
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "1"), res(rds, "s", "1"), res(cds, "a", "1")) // the same again
	c.quiet()
	// An operator tries again: the same content, and a new generation.
	f.set(schema.Envoy, res(rds, "r", "1"), res(rds, "s", "1"), res(cds, "a", "1"))
	c.expect(cds, "a@1")
	c.nack(cds, "still no")
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "2"), res(cds, "a", "2"))
	c.expect(cds, "a@2")
	c.ask(cds)
	c.expect(rds, "r@2")

	again := f.dial("n") // a reconnect may try again
	again.ask(rds, "r")
	again.expect(rds, "r@2")
}

func TestS09ResumeInTheMiddleOfAPath(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	f := newFleet(t, first()...)
	to := &schema.Target{Open: true, Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))}
	f.give(to)
	c := f.dial("stranger")
	c.reask(cds, "deadbeefdeadbeef")
	c.expect(cds, "a@1", "b@1")
}

func TestS09NothingIsTrustedAfterANack(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	held, nonce := c.acked[cds], c.last[cds].Nonce
	c.close()
	c = f.dial("n")
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: cds.URL(), VersionInfo: held, ResponseNonce: nonce})
	c.expect(cds, "a@1")
}

// A refusal that comes after the target has changed halts only what has the same
// content still.
func TestS15RefusalOfWhatWasSuperseded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	bad := append(first()[1:], eds("a", "bad"))
	f.set(schema.Envoy, bad...)
	c.expect(cds, "a@bad")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	f.set(schema.Envoy, append(bad, eds("b", "1"), res(edsT, "b", "1"))...)
	c.nack(cds, "a is bad")
	c.expect(cds, "a@bad", "b@1") // another response: b may be its cure
	c.expect(edsT, "a@1")
	c.nack(cds, "a is bad")
	c.ask(edsT, "a")
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Halt && s.Nack != nil })

	f.set(schema.Envoy, append(first()[:3], route("r", "bad", "a"))...)
	c.expect(cds, "a@1", "b@1") // b was refused with it, and may be there: it goes with the prune
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(cds)
	c.expect(rds, "r@bad")
	f.set(schema.Envoy, append(first()[:2], listener("l", "2", "r"), route("r", "bad", "a"))...)
	c.nack(rds, "r is bad", "r")
	c.expect(lds, "l@2")
	c.ask(lds)
	c.quiet() // of a partial response the refused part alone is the same: not again
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Halt && s.Nack.Type == rds })
}
