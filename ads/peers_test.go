package ads

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/sluice-xds/sluice/schema"
)

// What other servers are known to do wrong, each as a conversation.

// A refusal is answered with the same again, some 20,000 times a second
// (go-control-plane#962).
func TestPeer01NoAnswerToARefusal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"), res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1")
	for range 100 { // one refusal, said again and again
		c.nack(cds, "no")
	}
	c.quiet()
	d := f.deltaDial("d")
	d.sub(cds)
	d.expect(cds, "a@1")
	for range 100 {
		d.nack(cds, "no")
	}
	d.quiet()
}

// A cluster that changes in place is followed by endpoints, although they have
// the version that the client asks with.
func TestPeer02EndpointsOfAChangedCluster(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, append(first()[1:], eds("a", "2"))...)
	c.expect(cds, "a@2")
	c.ask(edsT, "a") // the client asks again, while it warms
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

// What mends a cluster is sent although the last response was not acknowledged:
// once it was refused; and it is merged with what waits meanwhile.
func TestPeer03TheFixIsSent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.envoy("n")
	f.set(schema.Envoy, append(first()[1:], eds("a", "bad"))...)
	c.expect(cds, "a@bad")
	c.expect(edsT, "a@1")
	f.set(schema.Envoy, append(first()[1:], eds("a", "fixed"))...)
	c.quiet() // one is in flight
	c.nack(cds, "a is bad")
	c.expect(cds, "a@fixed")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done && s.Nack == nil })
}

// A client that asks for some of what there is, is answered, and hears of changes.
func TestPeer04PartOfASnapshot(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(edsT, "a", "1"), res(edsT, "b", "1"), res(cds, "a", "1"), res(cds, "b", "1"))
	c := f.dial("n")
	c.ask(cds, "a")
	c.expect(cds, "a@1")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	c.ask(cds, "a")
	f.srv.Live(schema.SnapshotOf(res(edsT, "a", "2"), res(edsT, "b", "2")))
	c.expect(edsT, "a@2")
}

// Of a delta subscription to what exists and what does not, both are answered.
func TestPeer05MissingIsReported(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(edsT, "a", "1"))
	c := f.deltaDial("n")
	c.sub(edsT, "a", "missing")
	c.expect(edsT, "a@1", "-missing")
}

// A delta client that subscribes again is answered again.
func TestPeer06SubscribingAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(edsT, "a", "1"), res(cds, "c", "1"))
	c := f.deltaDial("n")
	c.sub(edsT, "a")
	c.expect(edsT, "a@1")
	c.ack(edsT)
	c.unsub(edsT, "a")
	c.sub(edsT, "a")
	c.expect(edsT, "a@1")
	c.ack(edsT)
	c.sub(cds, "*")
	c.expect(cds, "c@1")
	c.ack(cds)
	c.sub(cds, "c")
	c.expect(cds, "c@1")
}

// What a delta client refused it does not hold: neither in the ledger, nor when
// the same content is given up and something else takes its place.
func TestPeer07RefusedIsNotHeld(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.deltaDial("n")
	c.sub(rds, "r")
	c.expect(rds, "r@1")
	c.ack(rds)
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "2"))
	c.expect(rds, "r@2")
	c.nack(rds, "no")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil })
	f.sets("n", rds, []*schema.Resource{res(rds, "r", "1")}, []*schema.Resource{res(rds, "r", "2")})
	f.set(schema.Envoy, res(rds, "r", "1"))
	c.expect(rds, "r@1")
}

// Streams of both variants of one node are told apart, whatever number each has:
// an answer on one is none on the other.
func TestPeer08VariantsAreToldApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"))
	c, d := f.dial("n"), f.deltaDial("n")
	c.ask(cds)
	first := c.expect(cds, "a@1")
	d.sub(cds)
	second := d.expect(cds, "a@1")
	if first.Nonce != second.Nonce {
		t.Fatalf("nonces %s and %s: this test is about equal ones", first.Nonce, second.Nonce)
	}
	d.nack(cds, "no")
	d.quiet()
	c.ask(cds)
	c.quiet()
	f.settled("n", func(*schema.SessionRow) bool { return f.refusing("n") == 1 && f.sessions("n") == 2 })
}

// refusing counts a node's sessions that have refused something.
func (f *fleet) refusing(node string) (n int) {
	for _, s := range f.srv.View().Sessions() {
		if s.Node.ID == node && s.Nack != nil {
			n++
		}
	}
	return n
}

// A refusal with a nonce that is no longer the newest is none (cilium#43519).
func TestPeer09StaleRefusalDoesNotCount(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.ask(rds, "r")
	old := c.expect(rds, "r@1")
	c.ask(rds, "r")
	f.set(schema.Envoy, res(rds, "r", "2"))
	c.expect(rds, "r@2")
	newest := c.last[rds]
	c.last[rds] = old
	c.nack(rds, "late", "r")
	c.quiet()
	c.last[rds] = newest
	c.ask(rds, "r")
	row := f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	if row.Nack != nil {
		t.Errorf("a stale refusal is recorded: %+v", row.Nack)
	}

	d := f.deltaDial("d")
	d.sub(rds, "r")
	first := d.expect(rds, "r@2")
	d.ack(rds)
	f.set(schema.Envoy, res(rds, "r", "3"))
	d.expect(rds, "r@3")
	late := &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: first.Nonce, ErrorDetail: &status.Status{Code: 3, Message: "late"}}
	d.raw(rds, late)
	d.ack(rds)
	row = f.settled("d", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	if row.Nack != nil {
		t.Errorf("a stale refusal is recorded: %+v", row.Nack)
	}
}
