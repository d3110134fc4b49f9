package ads

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
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
	t.Parallel()
	f := mesh(t)
	c := f.dialer("n")
	c.ask(cds) // unsubscribes the last
	c.quiet()
	f.set(schema.GRPC, eds("a", "2"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "1", "a"))
	c.quiet()
}

func TestG02ReconnectKeepsTheVersion(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// A client answers once its application took what it was sent before: the ACK is
// late, and not lost. Nothing is sent again for it, and what follows waits.
func TestG04LateAck(t *testing.T) {
	t.Parallel()
	f := mesh(t)
	c := f.dialer("n")
	f.set(schema.GRPC, append(first()[:2], listener("l", "2", "r"), route("r", "2", "a"))...)
	c.expect(lds, "l@2")
	for _, version := range []string{"2", "3", "4"} { // its other watchers are quicker
		f.srv.Live(schema.SnapshotOf(res(edsT, "a", version)))
		c.expect(edsT, "a@"+version)
		c.ask(edsT, "a")
	}
	c.quiet()
	c.ask(lds, "l")
	c.expect(rds, "r@2")
	c.ask(rds, "r")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

// realTable is a real route table, of one host that sends everything to a cluster.
func realTable(cluster string) *schema.Resource {
	r, err := envoy.Resource(&routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{
		Name: "h", Domains: []string{"*"}, Routes: []*routev3.Route{sends(cluster)},
	}}}, "r")
	if err != nil {
		panic(err)
	}
	return r
}

func sends(cluster string) *routev3.Route {
	return &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}
}

// expectTable reads the next response, which is the table, and says where its
// routes lead: "never→c" for one behind a header that no request has.
func (c *client) expectTable(want ...string) {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	if r.TypeUrl != rds.URL() {
		c.t.Fatalf("got %v, want the table", r)
	}
	var rc routev3.RouteConfiguration
	if err := r.Resources[0].UnmarshalTo(&rc); err != nil {
		c.t.Fatal(err)
	}
	var got []string
	for _, route := range rc.VirtualHosts[0].Routes {
		to := route.GetRoute().GetCluster()
		for _, c := range route.GetRoute().GetWeightedClusters().GetClusters() {
			to += c.Name
		}
		if len(route.Match.Headers) > 0 {
			to = "never→" + to
		}
		got = append(got, to)
	}
	if !slices.Equal(got, want) {
		c.t.Fatalf("the table leads to %v, want %v", got, want)
	}
	c.last[rds] = r
}

// tableDialer is dialer for a fleet whose table is real, and leads to a.
func (f *fleet) tableDialer(node string) *client {
	c := f.dial(node)
	c.ask(lds, "l")
	c.expect(lds, "l@1")
	c.ask(lds, "l")
	c.ask(rds, "r")
	c.expectTable("a")
	c.ask(rds, "r")
	c.ask(cds, "a")
	c.expect(cds, "a@1")
	c.ask(cds, "a")
	c.ask(edsT, "a")
	c.expect(edsT, "a@1")
	c.ask(edsT, "a")
	return c
}

// A gRPC client is told of a cluster before any request goes there: it asks for
// clusters only once a route names them, and swaps routes before it is ready.
func TestG09WarmRouteBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(schema.GRPC, eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), realTable("a"))
	c := f.tableDialer("n")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })

	f.set(schema.GRPC, eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), realTable("b"))
	c.expectTable("never→b", "a")
	c.ask(rds, "r")
	c.ask(cds, "a", "b")
	c.expect(cds, "a@1", "b@1")
	c.ask(cds, "a", "b")
	c.quiet() // traffic stays on a until b has endpoints
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.quiet()
	c.ask(edsT, "a", "b")
	c.expectTable("never→a", "b") // and a is kept for calls that are on their way
	c.ask(rds, "r")
	c.expectTable("b")
	c.ask(rds, "r")
	c.ask(cds, "b")
	c.ask(edsT, "b")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

// What kind of client a node is comes from what it says, and not from what it
// does: a client with names of its own may be any.
func TestG10KindFromTheUserAgent(t *testing.T) {
	t.Parallel()
	f := mesh(t)
	for id, agent := range map[string]string{"g": "gRPC Go", "e": "envoy"} {
		c := f.dial(id)
		c.raw(&discoveryv3.DiscoveryRequest{
			TypeUrl: lds.URL(), ResourceNames: []string{"l"},
			Node: &corev3.Node{Id: id, UserAgentName: agent, UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.2.3"}},
		})
		c.expect(lds, "l@1")
		row := f.settled(id, func(*schema.SessionRow) bool { return true })
		grpc := schema.Match{UserAgent: "gRPC*"}
		if row.Node.UserAgent != agent+"/1.2.3" || grpc.Matches(row.Node) != (id == "g") {
			t.Errorf("node %s is %+v", id, row.Node)
		}
	}
}

// grpc-js needs a locality in its bootstrap; one that is empty, or none, is a node
// like any other.
func TestG11Locality(t *testing.T) {
	t.Parallel()
	f := mesh(t)
	for id, where := range map[string]*corev3.Locality{"zone": {Zone: "eu-1a"}, "empty": {}, "none": nil} {
		c := f.dial(id)
		c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: lds.URL(), ResourceNames: []string{"l"}, Node: &corev3.Node{Id: id, Locality: where}})
		c.expect(lds, "l@1")
		if row := f.settled(id, func(*schema.SessionRow) bool { return true }); row.Node.Zone != where.GetZone() {
			t.Errorf("node %s is %+v", id, row.Node)
		}
	}
}
