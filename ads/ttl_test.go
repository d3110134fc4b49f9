package ads

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/schema"
)

const lifetime = 300 * time.Millisecond

// mortal makes rs the target of a group whose routes and clusters live only so
// long.
func (f *fleet) mortal(ttl time.Duration, rs ...*schema.Resource) {
	to := &schema.Target{Snapshot: f.snapshot(rs...)}
	to.TTL[cds], to.TTL[rds] = ttl, ttl
	f.give(to)
}

// able is a node that says what it can do.
func able(id string, features ...string) *corev3.Node {
	for i := range features {
		features[i] = "xds.config." + features[i]
	}
	return &corev3.Node{Id: id, ClientFeatures: features}
}

// said is how a Resource reads: "name@content" or "name" without a body, behind it
// its time to live.
func (c *client) said(r *discoveryv3.Resource) string {
	s := r.Name
	if r.Resource != nil {
		s = string(r.Resource.Value)
	}
	return fmt.Sprint(s, " ", r.Ttl.AsDuration())
}

// expectWrapped reads the next response, whose resources are wrapped.
func (c *client) expectWrapped(t schema.Type, want ...string) {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("expected %s %q, got %v", t, want, err)
	}
	var got []string
	for _, a := range r.Resources {
		var w discoveryv3.Resource
		if err := a.UnmarshalTo(&w); err != nil {
			c.t.Fatalf("not wrapped: %v", err)
		}
		if w.Version != r.VersionInfo {
			c.t.Errorf("%s has version %s in a response of version %s: Envoy would not take it for a heartbeat", w.Name, w.Version, r.VersionInfo)
		}
		got = append(got, c.said(&w))
	}
	if r.TypeUrl != t.URL() || !slices.Equal(got, want) {
		c.t.Fatalf("got %s %q, want %s %q", r.TypeUrl, got, t, want)
	}
	c.last[t] = r
}

// expectLiving reads the next response, whose resources have a time to live.
func (c *deltaClient) expectLiving(t schema.Type, want ...string) {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("expected %s %q, got %v", t, want, err)
	}
	var got []string
	for _, a := range r.Resources {
		if held, ok := c.holds[t][a.Name]; a.Resource == nil && (!ok || held != a.Version) {
			c.t.Errorf("a heartbeat of %s at %q, but the client holds %q", a.Name, a.Version, held)
		}
		got = append(got, (&client{}).said(a))
	}
	if r.TypeUrl != t.URL() || !slices.Equal(got, want) {
		c.t.Fatalf("got %s %q, want %s %q", r.TypeUrl, got, t, want)
	}
	c.last[t] = r
}

func TestS11OffByDefault(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.dial("n")
	c.raw(&discoveryv3.DiscoveryRequest{Node: able("n", "supports-resource-ttl", "resource-in-sotw"), TypeUrl: rds.URL(), ResourceNames: []string{"r"}})
	c.expect(rds, "r@1") // as it is
}

// A client that does not say that it can is given none.
func TestS11OnlyForClientsThatCan(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.mortal(lifetime, res(rds, "r", "1"))
	for _, node := range []*corev3.Node{able("a"), able("b", "supports-resource-ttl"), able("c", "resource-in-sotw")} {
		c := f.dial(node.Id)
		c.raw(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: rds.URL(), ResourceNames: []string{"r"}})
		c.expect(rds, "r@1")
	}
	d := f.deltaDial("d")
	d.sub(rds, "r")
	d.expectLiving(rds, "r@1 0s")
}

func TestS11HeartbeatsSotW(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.mortal(lifetime, res(rds, "r", "1"), res(cds, "a", "1"))
	c := f.dial("n")
	c.raw(&discoveryv3.DiscoveryRequest{Node: able("n", "supports-resource-ttl", "resource-in-sotw"), TypeUrl: cds.URL()})
	c.expectWrapped(cds, "a@1 300ms")
	// One is in flight: no heartbeat, until it is answered.
	c.ask(rds, "r")
	c.expectWrapped(rds, "r@1 300ms")
	c.ask(rds, "r")
	for range 3 {
		c.expectWrapped(rds, "r 300ms")
		c.ask(rds, "r")
	}
	// What is the whole truth is never sent without bodies: a client could take
	// that for an empty one.
	c.ask(cds)
	for beats := 0; beats < 2; {
		r, err := c.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		ty, _ := schema.TypeOf(r.TypeUrl)
		var w discoveryv3.Resource
		if err := r.Resources[0].UnmarshalTo(&w); err != nil {
			t.Fatal(err)
		}
		if ty == cds {
			beats++
			if got := c.said(&w); got != "a@1 300ms" {
				t.Errorf("the heartbeat of clusters says %q", got)
			}
		}
		c.last[ty] = r
		c.ask(ty, map[schema.Type][]string{rds: {"r"}}[ty]...)
	}
}

func TestS11HeartbeatsDelta(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.mortal(lifetime, res(rds, "r", "1"), res(rds, "s", "1"))
	connect := func() *deltaClient {
		c := f.deltaDial("n")
		c.sent = true
		return c
	}
	hello := &discoveryv3.DeltaDiscoveryRequest{Node: able("n", "supports-resource-ttl"), ResourceNamesSubscribe: []string{"r", "s"}}
	c := connect()
	c.raw(rds, hello)
	c.expectLiving(rds, "r@1 300ms", "s@1 300ms")
	c.ack(rds)
	for range 2 {
		c.expectLiving(rds, "r 300ms", "s 300ms")
		c.ack(rds)
	}
	// A refusal of a change does not let what is held die: since nobody knows
	// which version that is, it goes with its body.
	f.mortal(lifetime, res(rds, "r", "2"), res(rds, "s", "1"))
	for {
		r, err := c.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		c.last[rds] = r
		if r.Resources[0].Resource != nil {
			break
		}
		c.ack(rds)
	}
	c.nack(rds, "no")
	c.expectLiving(rds, "r@1 300ms", "s@1 300ms")
	c.ack(rds)
	// The answer to the heartbeat is no answer to the change.
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil && s.Step.Verdict == schema.Halt })
	c.expectLiving(rds, "r@1 300ms", "s@1 300ms")
	c.ack(rds)
	held := c.holds[rds]
	c.close()

	// A client that comes back holds everything, but perhaps what it refused in
	// the place of r, and its clock runs.
	f.mortal(lifetime, res(rds, "r", "1"), res(rds, "s", "1"))
	c = connect()
	c.holds[rds] = held
	c.raw(rds, &discoveryv3.DeltaDiscoveryRequest{Node: hello.Node, ResourceNamesSubscribe: []string{"r", "s"}, InitialResourceVersions: held})
	c.expectLiving(rds, "r@1 300ms")
	c.ack(rds)
	c.expectLiving(rds, "r 300ms", "s 300ms")
	c.ack(rds)
}

// A commit that changes nothing but the time to live does not begin a rollout: what
// is held is sent again at once, with the new one.
func TestS11TheTimeChangesWithoutARollout(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.mortal(time.Hour, res(rds, "r", "1"))
	c := f.deltaDial("n")
	c.sent = true
	c.raw(rds, &discoveryv3.DeltaDiscoveryRequest{Node: able("n", "supports-resource-ttl"), ResourceNamesSubscribe: []string{"r"}})
	c.expectLiving(rds, "r@1 1h0m0s")
	c.ack(rds)
	f.typed("n", rds, func(r *schema.TypeRow) bool { return r.Held == 1 })
	f.mu.Lock()
	to := *f.target
	to.TTL[rds] = 2 * time.Hour
	f.target = &to
	f.mu.Unlock()
	f.srv.Refresh()
	c.expectLiving(rds, "r@1 2h0m0s")
}

// A time to live that is taken away, or given, takes the resource being sent.
func TestS11ChangeOfTheTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.mortal(time.Hour, res(rds, "r", "1"))
	c := f.deltaDial("n")
	c.sent = true
	c.raw(rds, &discoveryv3.DeltaDiscoveryRequest{Node: able("n", "supports-resource-ttl"), ResourceNamesSubscribe: []string{"r"}})
	c.expectLiving(rds, "r@1 1h0m0s")
	c.ack(rds)
	f.typed("n", rds, func(r *schema.TypeRow) bool { return r.Held == 1 })
	f.mortal(0, res(rds, "r", "1"))
	c.expectLiving(rds, "r@1 0s")
	c.ack(rds)
	f.mortal(1500*time.Millisecond, res(rds, "r", "1"))
	c.expectLiving(rds, "r@1 1.5s")
	c.ack(rds)
	c.expectLiving(rds, "r 1.5s")
}
