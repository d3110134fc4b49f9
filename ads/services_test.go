package ads

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-xds/sluice/schema"
)

// open opens a stream of any method, over a connection of its own.
func (f *fleet) open(method string, opts ...grpc.DialOption) (grpc.ClientStream, func()) {
	f.t.Helper()
	conn, err := grpc.NewClient(f.addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		f.t.Fatal(err)
	}
	stop := func() { cancel(); conn.Close() }
	f.t.Cleanup(stop)
	return s, stop
}

// apart opens a state-of-the-world stream of one type.
func (f *fleet) apart(node string, t schema.Type, opts ...grpc.DialOption) *client {
	f.t.Helper()
	s, stop := f.open(method(t, false), opts...)
	return &client{
		t: f.t, node: node, stream: &grpc.GenericClientStream[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]{ClientStream: s},
		last: map[schema.Type]*discoveryv3.DiscoveryResponse{}, nonces: map[string]bool{}, acked: map[schema.Type]string{}, close: stop,
	}
}

// deltaApart opens an incremental stream of one type.
func (f *fleet) deltaApart(node string, t schema.Type) *deltaClient {
	f.t.Helper()
	s, stop := f.open(method(t, true))
	return &deltaClient{
		t: f.t, node: node, stream: &grpc.GenericClientStream[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]{ClientStream: s},
		last: map[schema.Type]*discoveryv3.DeltaDiscoveryResponse{}, nonces: map[string]bool{}, holds: map[schema.Type]map[string]string{}, close: stop,
	}
}

// method is the full name of a type's stream.
func method(t schema.Type, incremental bool) string {
	for _, d := range services {
		if d.only == t {
			name := d.stream
			if incremental {
				name = d.delta
			}
			return "/" + d.desc.ServiceName + "/" + name
		}
	}
	panic("no service of " + t.String())
}

func from(host string) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		return d.DialContext(ctx, "tcp", addr)
	})
}

func TestPerTypeStreams(t *testing.T) {
	t.Parallel()
	for _, ty := range schema.AllTypes() {
		f := newFleet(t, res(ty, "a", "1"))
		if ty != schema.VirtualHosts {
			t.Run(ty.Short(), func(t *testing.T) {
				c := f.apart("n", ty)
				c.ask(ty, "a")
				c.expect(ty, "a@1")
				c.ask(ty, "a")
				f.typed("n", ty, func(r *schema.TypeRow) bool { return r.Held == 1 })
				f.set(schema.Envoy, res(ty, "a", "2"))
				c.expect(ty, "a@2")
				c.close()
			})
		}
		f.set(schema.Envoy, res(ty, "a", "3"))
		t.Run("delta "+ty.Short(), func(t *testing.T) {
			c := f.deltaApart("d", ty)
			c.sub(ty, "a")
			c.expect(ty, "a@3")
			c.ack(ty)
			f.typed("d", ty, func(r *schema.TypeRow) bool { return r.Held == 1 })
			f.set(schema.Envoy, res(ty, "a", "4"))
			c.expect(ty, "a@4")
		})
	}
}

// apartEnvoy brings the streams of one node up, one a type.
func (f *fleet) apartEnvoy(node string) map[schema.Type]*client {
	cs := map[schema.Type]*client{}
	for _, x := range []struct {
		t     schema.Type
		names []string
		want  string
	}{{cds, nil, "a@1"}, {edsT, []string{"a"}, "a@1"}, {lds, nil, "l@1"}, {rds, []string{"r"}, "r@1"}} {
		c := f.apart(node, x.t)
		c.ask(x.t, x.names...)
		c.expect(x.t, x.want)
		c.ask(x.t, x.names...)
		f.typed(node, x.t, func(r *schema.TypeRow) bool { return r.Held == 1 && !r.InFlight })
		cs[x.t] = c
	}
	f.settled(node, func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	if n := f.sessions(node); n != 1 {
		f.t.Fatalf("the streams of %s made %d sessions", node, n)
	}
	return cs
}

func (f *fleet) sessions(node string) (n int) {
	for _, s := range f.srv.View().Sessions() {
		if s.Node.ID == node {
			n++
		}
	}
	return n
}

// The stages of a path hold across the separate streams of a session.
func TestO01StagesAcrossStreams(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	cs := f.apartEnvoy("n")
	f.set(schema.Envoy, eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))
	cs[cds].expect(cds, "a@1", "b@1")
	cs[cds].ask(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unasked })
	cs[edsT].ask(edsT, "a", "b")
	cs[edsT].expect(edsT, "b@1")
	f.typed("n", edsT, func(r *schema.TypeRow) bool { return r.InFlight })
	f.typed("n", rds, func(r *schema.TypeRow) bool { return !r.InFlight && r.Served == r.Acked }) // still the old
	cs[edsT].ask(edsT, "a", "b")
	cs[rds].expect(rds, "r@2")
	f.typed("n", cds, func(r *schema.TypeRow) bool { return r.Held == 2 }) // not yet pruned
	cs[rds].ask(rds, "r")
	cs[cds].expect(cds, "b@1")
	cs[cds].ask(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

// A NACK on one stream halts the others.
func TestS15NackHaltsOtherStreams(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	cs := f.apartEnvoy("n")
	f.set(schema.Envoy, eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))
	cs[cds].expect(cds, "a@1", "b@1")
	cs[cds].nack(cds, "no")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Halt && s.Nack.Words == "no" })
	f.typed("n", rds, func(r *schema.TypeRow) bool { return r.Served == r.Acked && !r.InFlight })
}

// A second stream of a type is a new generation: each has its own path, and the
// newest counts.
func TestHotRestart(t *testing.T) {
	t.Parallel()
	t.Run("one stream a type", func(t *testing.T) {
		f := newFleet(t, first()...)
		old := f.apartEnvoy("n")
		fresh := f.apart("n", cds)
		fresh.ask(cds)
		fresh.expect(cds, "a@1")
		f.settled("n", func(s *schema.SessionRow) bool { return f.sessions("n") == 2 && s.Step.Verdict != schema.Done })
		// What the new one refuses does not stop the old one.
		fresh.nack(cds, "no")
		f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil })
		f.srv.Live(schema.SnapshotOf(res(edsT, "a", "2")))
		old[edsT].expect(edsT, "a@2")
		if first := f.srv.View().Sessions()[0]; first.Nack != nil {
			t.Errorf("the first generation has the second's NACK: %+v", first)
		}
		// A type that the new one lacks joins the newest.
		eds := f.apart("n", edsT)
		eds.ask(edsT, "a")
		eds.expect(edsT, "a@2")
		f.typed("n", edsT, func(r *schema.TypeRow) bool { return r.InFlight })
		if n := f.sessions("n"); n != 2 {
			t.Errorf("%d sessions", n)
		}
		for _, c := range old {
			c.close()
		}
		f.settled("n", func(*schema.SessionRow) bool { return f.sessions("n") == 1 })
	})
	t.Run("aggregated", func(t *testing.T) {
		f := newFleet(t, first()...)
		old := f.envoy("n")
		fresh := f.dial("n")
		fresh.ask(cds)
		fresh.expect(cds, "a@1")
		f.settled("n", func(s *schema.SessionRow) bool {
			return f.sessions("n") == 2 && s.At < len(s.Stages) || s.Step.Verdict == schema.Wait
		})
		old.quiet()
		old.close()
		f.settled("n", func(*schema.SessionRow) bool { return f.sessions("n") == 1 })
		fresh.ask(cds)
		fresh.quiet()
	})
}

func TestStreamEndsAndComesBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	cs := f.apartEnvoy("n")
	held := cs[rds].acked[rds]
	cs[rds].close()
	f.settled("n", func(s *schema.SessionRow) bool {
		return !slices.ContainsFunc(f.srv.View().Types(s.ID), func(r *schema.TypeRow) bool { return r.Type == rds && r.Names > 0 })
	})
	f.set(schema.Envoy, eds("a", "1"), res(edsT, "a", "1"), listener("l", "1", "r"), route("r", "2", "a"))
	c := f.apart("n", rds)
	c.reask(rds, held, "r")
	c.expect(rds, "r@2")
	c.ask(rds, "r")
	f.typed("n", rds, func(r *schema.TypeRow) bool { return r.Held == 1 && !r.InFlight })
	if n := f.sessions("n"); n != 1 {
		t.Errorf("%d sessions", n)
	}
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

func TestTypeURLOfATypedStream(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(cds, "a", "1"))
	c := f.apart("n", cds)
	c.raw(&discoveryv3.DiscoveryRequest{}) // empty: the stream's own
	c.expect(cds, "a@1")
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: edsT.URL()})
	c.ends("this stream carries " + cds.URL())
}

// Envoy opens its streams at once: they make one session, whichever is first.
func TestStreamsThatBeginTogether(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	f.pause()
	types := []schema.Type{cds, edsT, lds, rds}
	var cs []*client
	for _, ty := range types {
		c := f.apart("n", ty)
		c.ask(ty, map[schema.Type][]string{edsT: {"a"}, rds: {"r"}}[ty]...)
		cs = append(cs, c)
	}
	f.resume(len(types))
	for i, c := range cs {
		c.expect(types[i], map[schema.Type]string{cds: "a@1", edsT: "a@1", lds: "l@1", rds: "r@1"}[types[i]])
	}
	f.settled("n", func(s *schema.SessionRow) bool { return len(f.srv.View().Types(s.ID)) >= len(types) })
	if n := f.sessions("n"); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if n := f.srv.View().Nodes()[0].Sessions; n != 1 {
		t.Errorf("the node's row counts %d sessions", n)
	}
}

// A target that changes while a session begins reaches it.
func TestTargetChangesWhileASessionBegins(t *testing.T) {
	t.Parallel()
	f := newFleet(t, res(rds, "r", "1"))
	f.pause()
	c := f.dial("n")
	c.ask(rds, "r")
	<-f.arrived // the session has the old target, and is not yet known
	f.set(schema.Envoy, res(rds, "r", "2"))
	f.resume(0)
	c.expect(rds, "r@2")
}

// pause has Admit wait until as many calls as resume says have arrived.
func (f *fleet) pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = make(chan struct{})
	f.arrived = make(chan struct{})
}

func (f *fleet) resume(n int) {
	for range n {
		<-f.arrived
	}
	f.mu.Lock()
	gate := f.gate
	f.gate = nil
	f.mu.Unlock()
	close(gate)
}

func TestV2IsToldWhatToChange(t *testing.T) {
	t.Parallel()
	for _, m := range []string{
		"/envoy.api.v2.ClusterDiscoveryService/StreamClusters",
		"/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources",
		"/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats",
	} {
		f := newFleet(t)
		s, _ := f.open(m)
		if err := s.RecvMsg(&discoveryv3.DiscoveryResponse{}); err == nil || !strings.Contains(err.Error(), "Unimplemented") || !strings.Contains(err.Error(), "transport_api_version to V3") {
			t.Errorf("%s ends with %v", m, err)
		}
	}
	t.Run("type URL", func(t *testing.T) {
		f := newFleet(t)
		c := f.dial("n")
		c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.api.v2.Cluster"})
		c.ends("transport_api_version to V3")
	})
	t.Run("other", func(t *testing.T) {
		f := newFleet(t)
		s, _ := f.open("/acme.Other/Get")
		if err := s.RecvMsg(&discoveryv3.DiscoveryResponse{}); err == nil || !strings.Contains(err.Error(), "is not served here") {
			t.Errorf("ends with %v", err)
		}
	})
}

func TestStreamsOfTwoHostsAreTwoSessions(t *testing.T) {
	t.Parallel()
	f := newFleet(t, first()...)
	a := f.apart("n", cds, from("127.0.0.1"))
	a.ask(cds)
	a.expect(cds, "a@1")
	b := f.apart("n", edsT, from("127.0.0.2"))
	b.ask(edsT, "a")
	b.expect(edsT, "a@1")
	f.settled("n", func(*schema.SessionRow) bool { return f.sessions("n") == 2 })
}

func TestDuplicateNodeID(t *testing.T) {
	t.Parallel()
	log := &logLines{}
	f := newFleetWith(t, setup{limits: Limits{Twins: time.Millisecond}, log: log}, first()...)
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		c := f.apart("n", cds, from(host))
		c.ask(cds)
		c.expect(cds, "a@1")
		f.settled("n", func(*schema.SessionRow) bool { return true })
	}
	deadline := time.After(10 * time.Second)
	for len(f.srv.Twins("n")) < 3 || log.count("duplicate node id") == 0 {
		select {
		case <-f.srv.Changes():
		case <-deadline:
			t.Fatalf("the server knows of %v", f.srv.Twins("n"))
		}
	}
	if n := log.count("duplicate node id"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	// Two sessions from one host are a hot restart.
	for range 2 {
		c := f.apart("m", cds)
		c.ask(cds)
		c.expect(cds, "a@1")
	}
	f.settled("m", func(*schema.SessionRow) bool { return f.sessions("m") == 2 })
	if hosts := f.srv.hosts("m", time.Now().Add(time.Hour)); len(hosts) != 1 {
		t.Errorf("m comes from %v", hosts)
	}
}

// logLines is a log that a test reads.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logLines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), fmt.Sprint(words))
}
