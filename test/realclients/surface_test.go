//go:build e2e

package realclients

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// The words of the language through real clients: what a rule or a service says
// happens to a request. A client stands beside each word that it knows.

// calls are the kinds of gRPC client.
var calls = []kind{grpcGo, cCore, grpcJS}

// said merges rules and services for a kind of client, and starts one node. What
// no rule takes goes to the service "rest".
func said(t *testing.T, k kind, rules, services string) *rig {
	t.Helper()
	r := newRig(t, k, 30*time.Second, nil)
	r.kind.nodes = 1
	rest := r.backend("rest")
	client, at, host, protocol := `"grpc"`, `target: "echo.mesh"`, "echo.mesh", "grpc"
	if k.client == schema.Envoy {
		client, at, host, protocol = `"envoy"`, fmt.Sprintf("bind: %q", r.bind), "*", "http"
	}
	r.mergeFiles("as it is said", map[string]string{"mesh.cue": fmt.Sprintf(`package mesh

groups: nodes: {client: %s, match: id: "node-*"}
listeners: echo: {groups: ["nodes"], %s}
routes: echo: {listeners: ["echo"], hosts: [%q], rules: [
%s
	{match: prefix: "/", service: "rest"},
]}
services: {
%s
	rest: {protocol: %q, endpoints: [{address: %q, zone: "zone-a"}]}
}
`, client, at, host, rules, services, protocol, rest.addr)})
	r.start()
	return r
}

// grpcBackend answers every call with its label, as it is told.
func grpcBackend(t *testing.T, label string, before func(context.Context) error) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var in emptypb.Empty
		if err := stream.RecvMsg(&in); err != nil {
			return err
		}
		if err := before(stream.Context()); err != nil {
			return err
		}
		return stream.SendMsg(wrapperspb.String(label))
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(lis) }() // ends with Stop
	t.Cleanup(func() { srv.Stop(); <-done })
	return lis.Addr().String()
}

func httpBackend(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

const slowness = 700 * time.Millisecond

// TestTimeout: a rule's timeout ends a request; the same service without one is
// waited for.
func TestTimeout(t *testing.T) {
	rules := `	{match: prefix: "/quick.", service: "slow", timeout: "200ms"},
	{match: prefix: "/slow.", service: "slow", timeout: "20s"},`
	for _, k := range calls {
		t.Run(k.driver.Name(), func(t *testing.T) {
			addr := grpcBackend(t, "slow", func(ctx context.Context) error {
				select {
				case <-time.After(slowness): // the slowness is the subject
				case <-ctx.Done():
				}
				return nil
			})
			r := said(t, k, rules, fmt.Sprintf(`	slow: {protocol: "grpc", endpoints: [{address: %q, zone: "zone-a"}]}`, addr))
			if got := r.ask(schema.Request{Path: "/slow.S/M"}); got != "slow" {
				t.Errorf("without a timeout in the way: %s", got)
			}
			began := time.Now()
			if got := r.ask(schema.Request{Path: "/quick.S/M"}); !strings.Contains(strings.ToLower(got), "deadline") || time.Since(began) > slowness {
				t.Errorf("after %v: %s", time.Since(began), got)
			}
		})
	}
	t.Run("mosn", func(t *testing.T) {
		addr := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(slowness):
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, "slow")
		})
		r := said(t, mosn, rules, fmt.Sprintf(`	slow: endpoints: [{address: %q}]`, addr))
		if got := r.ask(schema.Request{Method: "GET", Path: "/slow.S/M"}); got != "slow" {
			t.Errorf("without a timeout in the way: %s", got)
		}
		if got := r.ask(schema.Request{Method: "GET", Path: "/quick.S/M"}); got != "504" {
			t.Errorf("with one: %s", got)
		}
	})
}

// TestRetry: every second request fails. A rule with retries hides it, one without
// does not.
func TestRetry(t *testing.T) {
	t.Run("grpc-go", func(t *testing.T) {
		var n atomic.Int64
		addr := grpcBackend(t, "flaky", func(context.Context) error {
			if n.Add(1)%2 == 1 {
				return status.Error(codes.Unavailable, "not this time")
			}
			return nil
		})
		r := said(t, grpcGo, `	{match: prefix: "/again.", service: "flaky", retry: {on: ["unavailable"], attempts: 2, backoff: "5ms"}},
	{match: prefix: "/once.", service: "flaky"},`, fmt.Sprintf(`	flaky: {protocol: "grpc", endpoints: [{address: %q, zone: "zone-a"}]}`, addr))
		conn := r.retrying()
		if got := tries(20, func() error { return invoke(r.ctx, conn, "/once.S/M") }); got != 10 {
			t.Errorf("%d of 20 requests failed without retries: want 10", got)
		}
		if got := tries(20, func() error { return invoke(r.ctx, conn, "/again.S/M") }); got != 0 {
			t.Errorf("%d of 20 requests failed with retries", got)
		}
	})
	t.Run("mosn", func(t *testing.T) {
		var n atomic.Int64
		addr := httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1)%2 == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		r := said(t, mosn, `	{match: prefix: "/again", service: "flaky", retry: {on: ["5xx"], attempts: 2}},
	{match: prefix: "/once", service: "flaky"},`, fmt.Sprintf(`	flaky: endpoints: [{address: %q}]`, addr))
		ask := func(path string) func() error {
			return func() error {
				if got := r.ask(schema.Request{Method: "GET", Path: path}); got != "" {
					return fmt.Errorf("status %s", got)
				}
				return nil
			}
		}
		if got := tries(20, ask("/once")); got != 10 {
			t.Errorf("%d of 20 requests failed without retries: want 10", got)
		}
		if got := tries(20, ask("/again")); got != 0 {
			t.Errorf("%d of 20 requests failed with retries", got)
		}
	})
}

// tries counts the failures among n calls.
func tries(n int, do func() error) int {
	failed := 0
	for range n {
		if do() != nil {
			failed++
		}
	}
	return failed
}

// retrying is a channel of grpc-go that obeys retry policies, which those of
// package dataplane do not.
func (r *rig) retrying() *grpc.ClientConn {
	r.t.Helper()
	b := dataplane.Bootstrap{Server: r.wire.addr, NodeID: "node-9", Cluster: "tests", Zone: "zone-a"}
	builder, err := xds.NewXDSResolverWithConfigForTesting(b.JSON())
	if err != nil {
		r.t.Fatal(err)
	}
	conn, err := grpc.NewClient(gRPCTarget, grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func invoke(ctx context.Context, conn *grpc.ClientConn, path string) error {
	var out wrapperspb.StringValue
	return conn.Invoke(ctx, path, &emptypb.Empty{}, &out)
}

// TestHash: with a ring, calls with one value of a header go to one endpoint, and
// many values to all.
func TestHash(t *testing.T) {
	for _, k := range []kind{grpcGo, grpcJS} {
		t.Run(k.driver.Name(), func(t *testing.T) {
			var endpoints []string
			for i := range 3 {
				addr := grpcBackend(t, fmt.Sprintf("e%d", i), func(context.Context) error { return nil })
				endpoints = append(endpoints, fmt.Sprintf(`{address: %q, zone: "zone-a"}`, addr))
			}
			r := said(t, k, `	{match: prefix: "/ring.", service: "ring", hash: [{header: "x-user"}]},`,
				fmt.Sprintf(`	ring: {protocol: "grpc", lb: "ring_hash", lb_settings: min_ring: 100, endpoints: [%s]}`, strings.Join(endpoints, ", ")))
			all := map[string]bool{}
			for user := range 30 {
				q := schema.Request{Path: "/ring.S/M", Headers: map[string]string{"x-user": fmt.Sprint("user-", user)}}
				first := r.ask(q)
				all[first] = true
				for range 5 {
					if got := r.ask(q); got != first {
						t.Fatalf("user %d goes to %s and to %s", user, first, got)
					}
				}
			}
			if len(all) != 3 {
				t.Errorf("30 users go to %v", all)
			}
		})
	}
}

// TestPriorities: endpoints that drain are not used, nor those of a later priority
// while there are others; and a service falls over to another.
func TestPriorities(t *testing.T) {
	for _, k := range calls {
		t.Run(k.driver.Name(), func(t *testing.T) {
			at := map[string]string{}
			for _, label := range []string{"old", "near", "far", "spare"} {
				at[label] = grpcBackend(t, label, func(context.Context) error { return nil })
			}
			r := said(t, k, `	{match: prefix: "/near.", service: "sites"},
	{match: prefix: "/far.", service: "drained"},
	{match: prefix: "/spare.", service: "either"},`, fmt.Sprintf(`
	sites: {protocol: "grpc", endpoints: [{address: %[1]q, zone: "zone-a", health: "draining"}, {address: %[2]q, zone: "zone-a"}, {address: %[3]q, zone: "zone-b", priority: 1}]}
	drained: {protocol: "grpc", endpoints: [{address: %[1]q, zone: "zone-a", health: "draining"}, {address: %[3]q, zone: "zone-b", priority: 1}]}
	none: {protocol: "grpc", endpoints: []}
	spare: {protocol: "grpc", endpoints: [{address: %[4]q, zone: "zone-a"}]}
	either: failover: ["none", "spare"]`, at["old"], at["near"], at["far"], at["spare"]))
			for _, want := range []string{"near", "far", "spare"} {
				for range 10 {
					if got := r.ask(schema.Request{Path: "/" + want + ".S/M"}); got != want {
						t.Fatalf("got %s, want %s", got, want)
					}
				}
			}
		})
	}
}

// TestProxy: what a proxy alone does to a request, and answers by itself.
func TestProxy(t *testing.T) {
	addr := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s%s", r.Host, r.URL)
	})
	r := said(t, mosn, `	{match: prefix: "/shop/", service: "seen", rewrite: prefix: "/v2/"},
	{match: prefix: "/as-it-is", service: "seen"},
	{match: path: "/old", redirect: {host: "new.example.com", path: "/new"}},
	{match: path: "/closed", respond: {status: 503, body: "closed for maintenance"}},`, fmt.Sprintf(`	seen: endpoints: [{address: %q}]`, addr))
	for path, want := range map[string]string{"/shop/cart?x=1": "a.example.com/v2/cart?x=1", "/as-it-is": "a.example.com/as-it-is"} {
		if got := r.ask(schema.Request{Method: "GET", Host: "a.example.com", Path: path}); got != want {
			t.Errorf("%s: the service sees %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{"/old": "301 http://new.example.com/new ", "/closed": "503  closed for maintenance"} {
		req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, "http://"+r.bind+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body) // compared below
		_ = res.Body.Close()
		if got := fmt.Sprintf("%d %s %s", res.StatusCode, res.Header.Get("Location"), body); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestBreaker: calls over the limit of a service fail at once.
func TestBreaker(t *testing.T) {
	held := make(chan struct{})
	entered := make(chan struct{}, 2)
	addr := grpcBackend(t, "busy", func(ctx context.Context) error {
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("x-hold")) == 0 {
			return nil
		}
		entered <- struct{}{}
		select {
		case <-held:
		case <-ctx.Done():
		}
		return nil
	})
	r := said(t, grpcGo, `	{match: prefix: "/busy.", service: "busy"},`,
		fmt.Sprintf(`	busy: {protocol: "grpc", breakers: requests: 2, endpoints: [{address: %q, zone: "zone-a"}]}`, addr))
	done := make(chan string, 2)
	for range 2 {
		go func() { done <- r.ask(schema.Request{Path: "/busy.S/M", Headers: map[string]string{"x-hold": "1"}}) }()
	}
	for range 2 {
		select {
		case <-entered:
		case <-r.ctx.Done():
			t.Fatal("the calls do not arrive")
		}
	}
	if got := r.ask(schema.Request{Path: "/busy.S/M"}); !strings.Contains(got, "Unavailable") {
		t.Errorf("a third call: %s", got)
	}
	close(held)
	for range 2 {
		if got := <-done; got != "busy" {
			t.Errorf("a call within the limit: %s", got)
		}
	}
}
