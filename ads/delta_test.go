package ads

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-xds/sluice/schema"
)

// deltaClient is one incremental stream of one node.
type deltaClient struct {
	t      *testing.T
	node   string
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	sent   bool
	last   map[schema.Type]*discoveryv3.DeltaDiscoveryResponse
	nonces map[string]bool
	holds  map[schema.Type]map[string]string
	close  func()
}

func (f *fleet) deltaDial(node string) *deltaClient {
	f.t.Helper()
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	c := &deltaClient{
		t: f.t, node: node, stream: s, last: map[schema.Type]*discoveryv3.DeltaDiscoveryResponse{},
		nonces: map[string]bool{}, holds: map[schema.Type]map[string]string{},
	}
	c.close = func() { cancel(); conn.Close() }
	f.t.Cleanup(c.close)
	return c
}

// raw sends a request as it is, with the node on the first.
func (c *deltaClient) raw(t schema.Type, req *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	req.TypeUrl = t.URL()
	if !c.sent {
		req.Node = &corev3.Node{Id: c.node}
		c.sent = true
	}
	if err := c.stream.Send(req); err != nil && !errors.Is(err, io.EOF) { // why it ended, Recv says
		c.t.Fatal(err)
	}
}

func (c *deltaClient) sub(t schema.Type, names ...string) {
	c.t.Helper()
	c.raw(t, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: names})
}

func (c *deltaClient) unsub(t schema.Type, names ...string) {
	c.t.Helper()
	c.raw(t, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: names})
}

// resume is the first request of a type of a client that holds something.
func (c *deltaClient) resume(t schema.Type, holds map[string]string, names ...string) {
	c.t.Helper()
	c.raw(t, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: holds, ResourceNamesSubscribe: names})
}

func (c *deltaClient) ack(t schema.Type) {
	c.t.Helper()
	c.raw(t, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: c.last[t].Nonce})
	if c.holds[t] == nil {
		c.holds[t] = map[string]string{}
	}
	for _, r := range c.last[t].Resources {
		c.holds[t][r.Name] = r.Version
	}
	for _, n := range c.last[t].RemovedResources {
		delete(c.holds[t], n)
	}
}

func (c *deltaClient) nack(t schema.Type, words string) {
	c.t.Helper()
	c.raw(t, &discoveryv3.DeltaDiscoveryRequest{
		ResponseNonce: c.last[t].Nonce, ErrorDetail: &status.Status{Code: 3, Message: words},
	})
}

// expect reads the next response: its resources, "name@content", and behind them
// what it removes, "-name".
func (c *deltaClient) expect(t schema.Type, want ...string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("expected %s %v, got %v", t, want, err)
	}
	var got []string
	for _, a := range r.Resources {
		got = append(got, string(a.Resource.Value))
		if a.Name == "" || a.Version == "" || a.Resource.TypeUrl != t.URL() {
			c.t.Errorf("a resource without a name, a version or its type: %v", a)
		}
	}
	for _, n := range r.RemovedResources {
		got = append(got, "-"+n)
	}
	if r.TypeUrl != t.URL() || !slices.Equal(got, want) {
		c.t.Fatalf("got %s %v, want %s %v", r.TypeUrl, got, t, want)
	}
	if r.Nonce == "" || c.nonces[r.Nonce] {
		c.t.Fatalf("nonce %q is empty or was used before", r.Nonce)
	}
	c.nonces[r.Nonce] = true
	c.last[t] = r
	return r
}

// quiet asserts that nothing was sent: what is asked now is answered next.
func (c *deltaClient) quiet() {
	c.t.Helper()
	c.sub(schema.Runtimes, "ping-0")
	c.expect(schema.Runtimes, "ping-0@1")
	c.ack(schema.Runtimes)
}

func TestD01InitialVersions(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"), res(cds, "b", "1"), res(cds, "c", "1"))
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1", "b@1", "c@1")
	c.ack(cds)
	c.quiet()
	held := c.holds[cds]
	c.close()

	f.set(schema.Envoy, res(cds, "a", "1"), res(cds, "b", "2"))
	c = f.deltaDial("n")
	c.resume(cds, held)
	c.expect(cds, "b@2") // a is held: skipped
	c.ack(cds)
	c.expect(cds, "-c")
	c.ack(cds)
	// They count on the first request of a type alone.
	c.raw(cds, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{"a": "x"}})
	c.quiet()
}

func TestD01ForeignVersions(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.deltaDial("n")
	// What it holds of r is replaced when the turn of routes comes.
	c.resume(rds, map[string]string{"r": "other", "gone": "1"}, "r", "gone")
	c.expect(rds, "-gone")
	c.ack(rds)
	c.expect(rds, "r@1")
}

// A cluster of which nobody remembers anything is not deleted under the requests
// that may be sent to it: it goes with the prune, and is never sent.
func TestD01ForeignClusterOutlivesTheRoutes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"))
	c := f.deltaDial("n")
	c.resume(cds, map[string]string{"a": "other", "gone": "1"})
	c.expect(cds, "a@1")
	c.ack(cds)
	c.expect(cds, "-gone")
	c.ack(cds)
	c.quiet()
}

func TestD02SpontaneousAndStale(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"), res(rds, "s", "1"), res(rds, "u", "1"))
	c := f.deltaDial("n")
	c.sub(rds, "r")
	c.expect(rds, "r@1")
	c.sub(rds, "s") // no nonce: not an ACK, so the answer waits
	c.quiet()
	c.raw(rds, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "999", ResourceNamesSubscribe: []string{"u"}}) // stale
	c.quiet()
	c.ack(rds)
	c.expect(rds, "s@1", "u@1")
	// An ACK may carry a change of the subscription.
	c.raw(rds, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: c.last[rds].Nonce, ResourceNamesUnsubscribe: []string{"u"}})
	f.set(schema.Envoy, res(rds, "r", "1"), res(rds, "s", "2"), res(rds, "u", "2"))
	c.expect(rds, "s@2")
}

func TestD03SubscribingAgainResends(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.deltaDial("n")
	c.sub(rds, "r")
	c.expect(rds, "r@1")
	c.ack(rds)
	c.quiet()
	c.sub(rds, "r")
	c.expect(rds, "r@1")
}

func TestD04Unsubscribe(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"), res(cds, "b", "1"))
	c := f.deltaDial("n")
	c.unsub(rds, "never")
	c.quiet()
	c.sub(cds, "*", "a", "x")
	c.expect(cds, "a@1", "b@1", "-x")
	c.ack(cds)
	c.unsub(cds, "a") // the wildcard covers it still
	c.expect(cds, "a@1")
	c.ack(cds)
	c.unsub(cds, "x") // and this it does not
	c.expect(cds, "-x")
	c.ack(cds)
	c.unsub(cds, "*")
	c.quiet()
	f.set(schema.Envoy, res(cds, "a", "2"), res(cds, "b", "2"))
	c.quiet()
}

func TestD05LegacyWildcard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"), res(cds, "b", "1"))
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1", "b@1")
	c.ack(cds)
	c.sub(cds, "a") // ends it
	c.expect(cds, "a@1")
	c.ack(cds)
	f.set(schema.Envoy, res(cds, "a", "1"), res(cds, "b", "2"))
	c.quiet()
}

func TestD06MissingIsReportedAndStays(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	c := f.deltaDial("n")
	c.sub(rds, "r", "missing")
	c.expect(rds, "r@1", "-missing")
	c.ack(rds)
	c.quiet()
	f.set(schema.Envoy, res(rds, "r", "1"), res(rds, "missing", "1"))
	c.expect(rds, "missing@1")
}

func TestD07EmptyFirstWildcard(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds)
	c.ack(cds)
	c.quiet()
}

func TestD08SystemVersionIsTheCommit(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.give(&schema.Target{Commit: "3f2a91c", Snapshot: f.snapshot(res(cds, "a", "1"))})
	c := f.deltaDial("n")
	c.sub(cds)
	if r := c.expect(cds, "a@1"); r.SystemVersionInfo != "3f2a91c" {
		t.Errorf("system_version_info is %q", r.SystemVersionInfo)
	}
}

func TestD09NackLeavesTheContentUnknown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"), res(rds, "s", "1"))
	c := f.deltaDial("n")
	c.sub(rds, "r", "s")
	c.expect(rds, "r@1", "s@1")
	c.ack(rds)
	f.set(schema.Envoy, res(rds, "r", "2"), res(rds, "s", "2"))
	c.expect(rds, "r@2", "s@2")
	c.nack(rds, "r is bad")
	c.quiet() // not again
	f.settled("n", func(s *schema.SessionRow) bool {
		return s.Nack != nil && slices.Equal(s.Nack.Names, []string{"r", "s"})
	})
	// s may have been applied: both are sent when the target walks back.
	f.set(schema.Envoy, res(rds, "r", "1"), res(rds, "s", "1"))
	c.expect(rds, "r@1", "s@1")
}

func TestD10Removals(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1")
	c.sub(edsT, "a")
	c.expect(edsT, "a@1")
	c.ack(edsT)
	c.ack(cds)
	f.give(&schema.Target{Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"))})
	c.expect(cds, "b@1") // made first
	c.sub(edsT, "b")
	c.expect(edsT, "b@1")
	c.ack(edsT)
	c.ack(cds)
	c.expect(cds, "-a") // removed last
}

func TestD11EndpointsAfterAClusterChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1")
	c.sub(edsT, "a")
	c.expect(edsT, "a@1")
	c.ack(edsT)
	c.ack(cds)
	c.quiet()
	f.set(schema.Envoy, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.expect(cds, "a@2")
	c.expect(edsT, "a@1") // unasked
}

func TestD14OneInFlight(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"), res(rds, "s", "1"))
	c := f.deltaDial("n")
	c.sub(rds, "r", "s")
	c.expect(rds, "r@1", "s@1")
	f.set(schema.Envoy, res(rds, "r", "2"), res(rds, "s", "1"))
	f.set(schema.Envoy, res(rds, "r", "2"), res(rds, "s", "2"))
	c.quiet()
	c.ack(rds)
	c.expect(rds, "r@2", "s@2")
}

// Two streams of both variants of one node, at once: two sessions, each with
// its own nonces and path.
func TestVariantsOfOneNodeDoNotCollide(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"))
	d := f.deltaDial("n")
	c := f.dial("n")
	d.sub(cds)
	d.expect(cds, "a@1")
	c.ask(cds)
	c.expect(cds, "a@1")
	d.nack(cds, "no")
	d.quiet()
	c.ask(cds)
	c.quiet()
	f.set(schema.Envoy, res(cds, "a", "2"))
	c.expect(cds, "a@2")
	d.expect(cds, "a@2")
}
