package ads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// The tests of this package are conversations with a server over a real gRPC
// connection: the client says one thing, and expects another.

// fleet is a server, its guide and the resources that it serves.
type fleet struct {
	t    *testing.T
	srv  *Server
	addr string

	mu       sync.Mutex
	target   *schema.Target
	gen      uint64
	patience time.Duration
	refuse   error

	gate, arrived chan struct{} // Admit waits for gate, if there is one
}

// setup is what a test may want otherwise of a server.
type setup struct {
	limits Limits
	log    io.Writer
	opts   []grpc.ServerOption
}

func newFleet(t *testing.T, rs ...*schema.Resource) *fleet {
	t.Helper()
	return newFleetWith(t, setup{}, rs...)
}

func newFleetWith(t *testing.T, with setup, rs ...*schema.Resource) *fleet {
	t.Helper()
	if with.log == nil {
		with.log = io.Discard
	}
	f := &fleet{t: t}
	f.srv = New(f, slog.New(slog.NewTextHandler(with.log, nil)))
	f.srv.Limit(with.limits)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(append(ServerOptions(), grpc.WaitForHandlers(true)), with.opts...)...)
	f.srv.Register(g)
	f.srv.RegisterStatus(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) { // before it began
			t.Error(err)
		}
	}()
	t.Cleanup(func() { g.Stop(); <-done; f.srv.Close() })
	f.addr = lis.Addr().String()
	f.set(schema.Envoy, rs...)
	return f
}

// set makes rs the target of the one group; bodies of live types go into the
// overlay.
func (f *fleet) set(client schema.Client, rs ...*schema.Resource) *schema.Target {
	return f.give(&schema.Target{Client: client, Snapshot: f.snapshot(rs...)})
}

func (f *fleet) snapshot(rs ...*schema.Resource) schema.Snapshot {
	for i := range 100 {
		rs = append(rs, res(schema.Runtimes, fmt.Sprintf("ping-%d", i), "1"))
	}
	var keys, live []*schema.Resource
	for _, r := range rs {
		if r.Type.Live() {
			live = append(live, r)
			r = schema.NewLive(r.Key)
		}
		keys = append(keys, r)
	}
	f.srv.Live(schema.SnapshotOf(live...))
	return schema.SnapshotOf(keys...)
}

func (f *fleet) give(to *schema.Target) *schema.Target {
	f.mu.Lock()
	f.gen++
	to.Group, to.Generation, to.Patience = "g", f.gen, cmp.Or(f.patience, time.Minute)
	if to.Known == nil {
		if f.target != nil {
			to.Known = append(to.Known, f.target.Snapshot)
		}
		to.Known = append(to.Known, to.Snapshot)
	}
	f.target = to
	f.mu.Unlock()
	f.srv.Refresh()
	return to
}

func (f *fleet) Admit(schema.Node, *schema.Target) (*schema.Target, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	target := f.target
	if gate := f.gate; gate != nil {
		f.mu.Unlock()
		f.arrived <- struct{}{}
		<-gate
		f.mu.Lock()
	}
	return target, f.refuse
}

func (f *fleet) Path(from schema.State, to *schema.Target) *schema.Path {
	return planner.NewPath(from, to)
}

func (f *fleet) Step(p *schema.Path, at int, facts *schema.Facts, now time.Time) schema.Step {
	return planner.Step(p, at, facts, now)
}

// settled waits for the ledger to say something of a node's newest session.
func (f *fleet) settled(node string, ok func(*schema.SessionRow) bool) *schema.SessionRow {
	f.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		var last *schema.SessionRow
		for _, s := range f.srv.View().Sessions() {
			if s.Node.ID == node {
				last = s
			}
		}
		if last != nil && ok(last) {
			return last
		}
		select {
		case <-f.srv.Changes():
		case <-deadline:
			f.t.Fatalf("node %s is at %+v", node, last)
		}
	}
}

// typed waits for the ledger to say something of one type of a node.
func (f *fleet) typed(node string, t schema.Type, ok func(*schema.TypeRow) bool) {
	f.t.Helper()
	f.settled(node, func(s *schema.SessionRow) bool {
		return slices.ContainsFunc(f.srv.View().Types(s.ID), func(r *schema.TypeRow) bool { return r.Type == t && ok(r) })
	})
}

// res makes a resource whose content is a word.
func res(t schema.Type, name, content string, refs ...schema.Ref) *schema.Resource {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(&anypb.Any{TypeUrl: t.URL(), Value: []byte(name + "@" + content)})
	if err != nil {
		panic(err)
	}
	r := schema.NewResource(schema.Key{Type: t, Name: name}, refs, body)
	r.Usable = t == schema.Endpoints
	return r
}

func ref(t schema.Type, name string, e schema.Edge) schema.Ref {
	return schema.Ref{Key: schema.Key{Type: t, Name: name}, Edge: e}
}

// eds makes an EDS cluster.
func eds(name, content string) *schema.Resource {
	return res(schema.Clusters, name, content, ref(schema.Endpoints, name, schema.Child))
}

// client is one stream of one node.
type client struct {
	t      *testing.T
	node   string
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	sent   bool
	last   map[schema.Type]*discoveryv3.DiscoveryResponse
	nonces map[string]bool
	acked  map[schema.Type]string
	pings  int
	close  func()
}

func (f *fleet) dial(node string) *client {
	f.t.Helper()
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	c := &client{t: f.t, node: node, stream: s, last: map[schema.Type]*discoveryv3.DiscoveryResponse{}, nonces: map[string]bool{}, acked: map[schema.Type]string{}}
	c.close = func() { cancel(); conn.Close() }
	f.t.Cleanup(c.close)
	return c
}

// raw sends a request as it is, with the node on the first.
func (c *client) raw(req *discoveryv3.DiscoveryRequest) {
	c.t.Helper()
	if !c.sent {
		if req.Node == nil {
			req.Node = &corev3.Node{Id: c.node}
		}
		c.sent = true
	}
	if err := c.stream.Send(req); err != nil && !errors.Is(err, io.EOF) { // why it ended, Recv says
		c.t.Fatal(err)
	}
}

// ask subscribes to names, as an ACK of the last response if there is one.
func (c *client) ask(t schema.Type, names ...string) {
	c.t.Helper()
	req := &discoveryv3.DiscoveryRequest{TypeUrl: t.URL(), ResourceNames: names}
	if last := c.last[t]; last != nil {
		req.VersionInfo, req.ResponseNonce = last.VersionInfo, last.Nonce
		c.acked[t] = last.VersionInfo
	}
	c.raw(req)
}

// reask is the first request of a stream by a client that holds a version.
func (c *client) reask(t schema.Type, version string, names ...string) {
	c.t.Helper()
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: t.URL(), ResourceNames: names, VersionInfo: version})
}

// nack refuses the last response of a type.
func (c *client) nack(t schema.Type, words string, names ...string) {
	c.t.Helper()
	c.raw(&discoveryv3.DiscoveryRequest{
		TypeUrl: t.URL(), ResourceNames: names, VersionInfo: c.acked[t], ResponseNonce: c.last[t].Nonce,
		ErrorDetail: &status.Status{Code: 3, Message: words},
	})
}

// expect reads the next response: its type and its resources, "name@content",
// in the order of names.
func (c *client) expect(t schema.Type, want ...string) *discoveryv3.DiscoveryResponse {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("expected %s %v, got %v", t, want, err)
	}
	var got []string
	for _, a := range r.Resources {
		if a.TypeUrl != r.TypeUrl {
			c.t.Errorf("a resource of type %s in a response of %s", a.TypeUrl, r.TypeUrl)
		}
		got = append(got, string(a.Value))
	}
	if r.TypeUrl != t.URL() || !slices.Equal(got, want) {
		c.t.Fatalf("got %s %v, want %s %v", strings.TrimPrefix(r.TypeUrl, "type.googleapis.com/"), got, t, want)
	}
	if c.nonces[r.Nonce] || r.Nonce == "" {
		c.t.Fatalf("nonce %q is empty or was used before", r.Nonce)
	}
	c.nonces[r.Nonce] = true
	c.last[t] = r
	return r
}

// quiet asserts that the server has sent nothing: the answer to a request of
// another type comes next, and responses keep their order.
func (c *client) quiet() {
	c.t.Helper()
	name := fmt.Sprintf("ping-%d", c.pings)
	c.pings++
	c.ask(schema.Runtimes, name)
	c.expect(schema.Runtimes, name+"@1")
	c.ask(schema.Runtimes, name)
}

// ends asserts that the server ended the stream, with words in the reason.
func (c *client) ends(words string) {
	c.t.Helper()
	for {
		_, err := c.stream.Recv()
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), words) {
			c.t.Fatalf("the stream ended with %v, want %q", err, words)
		}
		return
	}
}
