package dataplane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parentEnv makes this test binary a parent for TestParentDies: it starts a
// child for the ADS server at that address and waits to be killed.
const parentEnv = "SLUICE_DATAPLANE_TEST_PARENT"

func TestMain(m *testing.M) {
	Main()
	// Under -race a process waits for a second before it exits, each child too.
	_ = os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	if addr := os.Getenv(parentEnv); addr != "" {
		ctx := context.Background()
		n, err := GRPCGoProcess{}.Start(ctx, Bootstrap{Server: addr, NodeID: "orphan"}, target)
		if err == nil {
			err = n.Ready(ctx)
		}
		fmt.Println(err)
		time.Sleep(time.Minute) // not to outlive a test that forgot it
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// rig is an ADS server and two plain backends, with cluster and label "v1" and
// "v2"; all requests go to v1.
type rig struct {
	*ads
	v1, v2 *Server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{ads: startADS(t)}
	for label, s := range map[string]**Server{"v1": &r.v1, "v2": &r.v2} {
		srv, err := StartPlain(label)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Stop)
		*s = srv
	}
	r.set(clientListener(), routes("v1"), cluster("v1"), endpoints(t, "v1", r.v1.Addr()))
	return r
}

func (r *rig) bootstrap(id string) Bootstrap {
	return Bootstrap{Server: r.addr, NodeID: id, Cluster: "tests", Zone: "a"}
}

// start starts n ready nodes.
func (r *rig) start(t *testing.T, d Driver, n int) []Node {
	t.Helper()
	var nodes []Node
	for i := range n {
		node, err := d.Start(t.Context(), r.bootstrap(fmt.Sprint("n", i)), target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, node) })
		nodes = append(nodes, node)
	}
	for _, node := range nodes {
		if err := node.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// stop stops a node. A child must end by itself, and without a data race.
func stop(t *testing.T, n Node) {
	t.Helper()
	n.Stop()
	if p, ok := n.(*process); ok && !p.cmd.ProcessState.Success() {
		t.Errorf("node %s: %v: %s", n.ID(), p.cmd.ProcessState, p.stderr.String())
	}
}

// move makes before it breaks: the route of n nodes goes from one cluster to
// the other, and each step waits for the ACKs of the one before.
func (r *rig) move(t *testing.T, n int, from, to *Server, warm bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	a, b := from.Label(), to.Label()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r.set(cluster(b), endpoints(t, b, to.Addr()))
	if warm {
		r.set(routes(a, a, b))
		must(r.waitACK(ctx, n, cds, b))
		must(r.waitACK(ctx, n, eds, b))
		r.set(routes(b, a, b))
		must(r.waitACK(ctx, n, rds, routeName))
	}
	r.set(routes(b))
	must(r.waitACK(ctx, n, rds, routeName))
	must(r.waitACK(ctx, n, cds, b))
	must(r.waitACK(ctx, n, eds, b))
}

// prune drops a cluster when nobody asks for it any longer.
func (r *rig) prune(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.waitUnused(ctx, cds, s.Label()); err != nil {
		t.Fatal(err)
	}
	r.drop(cds, s.Label())
	r.drop(eds, s.Label())
}

// skipMissing skips a test whose client is not on this machine.
func skipMissing(t *testing.T, d Driver) {
	t.Helper()
	if i, ok := d.(Installed); ok {
		if why := i.Missing(); why != "" {
			t.Skip(why)
		}
	}
}

func expect(t *testing.T, n Node, want string) {
	t.Helper()
	a, err := n.Send(t.Context(), Request{Path: "/shop.Cart/Checkout"})
	if err != nil {
		t.Fatal(err)
	}
	if a.Label != want {
		t.Fatalf("node %s got %q, want %q", n.ID(), a.Label, want)
	}
}

// expectSoon sends until a backend answers: an ACK of routes is not yet their use.
func expectSoon(t *testing.T, n Node, want string) {
	t.Helper()
	for range 1000 {
		a, err := n.Send(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		if a.Label == want {
			return
		}
	}
	t.Fatalf("node %s never gets %q", n.ID(), want)
}

func TestBootstrapJSON(t *testing.T) {
	b := Bootstrap{Server: "127.0.0.1:1", NodeID: "n1"}
	var got, want any
	if err := json.Unmarshal(b.JSON(), &got); err != nil {
		t.Fatal(err)
	}
	const text = `{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}],
		"server_features":["xds_v3"]}],"node":{"id":"n1","locality":{}},
		"server_listener_resource_name_template":"grpc/server?xds.resource.listening_address=%s"}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRouteMoves(t *testing.T) {
	for _, d := range []Driver{GRPCGo{}, GRPCGoProcess{}, CCore{}, GRPCJS{}} {
		t.Run(d.Name(), func(t *testing.T) {
			skipMissing(t, d)
			r := newRig(t)
			n := r.start(t, d, 1)[0]
			expect(t, n, "v1")
			r.move(t, 1, r.v1, r.v2, true)
			expectSoon(t, n, "v2")
			if (d != CCore{}) { // it asks for a cluster for 15 minutes more
				r.prune(t, r.v1)
			}
			expect(t, n, "v2")
		})
	}
}

func TestProcessView(t *testing.T) {
	r := newRig(t)
	n := r.start(t, GRPCGoProcess{}, 1)[0]
	view := func() map[string]State {
		t.Helper()
		held, err := n.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]State{}
		for _, h := range held {
			short := h.TypeURL[strings.LastIndex(h.TypeURL, ".")+1:]
			got[short+" "+h.Name] = h.State
			if h.State == ACKed && h.Version == "" {
				t.Errorf("%s %s is ACKED without a version", short, h.Name)
			}
		}
		return got
	}
	want := map[string]State{
		"Listener echo.test":             ACKed,
		"RouteConfiguration echo-routes": ACKed,
		"Cluster v1":                     ACKed,
		"ClusterLoadAssignment v1":       ACKed,
	}
	if d := cmp.Diff(want, view()); d != "" {
		t.Error(d)
	}

	// A weighted cluster without weights is refused; the old routes stay.
	bad := routes("v1", "v2")
	for _, w := range warmOf(bad) {
		w.Weight = nil
	}
	r.set(bad)
	if err := r.wait(t.Context(), func() bool {
		for p := range r.peers {
			return len(p.nacks) > 0
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
	want["RouteConfiguration echo-routes"] = NACKed
	if d := cmp.Diff(want, view()); d != "" {
		t.Error(d)
	}
	expect(t, n, "v1")
}

func TestViewInProcess(t *testing.T) {
	r := newRig(t)
	n := r.start(t, GRPCGo{}, 1)[0]
	if _, err := n.View(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("got %v, want ErrUnsupported", err)
	}
}

// TestWarmRouteNeverFires: grpc-go accepts the contradictory match, resolves
// the clusters behind it, and never sends there, whatever the headers.
func TestWarmRouteNeverFires(t *testing.T) {
	r := newRig(t)
	n := r.start(t, GRPCGoProcess{}, 1)[0]
	r.set(cluster("v2"), endpoints(t, "v2", r.v2.Addr()), routes("v1", "v1", "v2"))
	for _, typeURL := range []string{cds, eds} {
		if err := r.waitACK(t.Context(), 1, typeURL, "v2"); err != nil {
			t.Fatal(err)
		}
	}
	headers := []map[string]string{nil, {warmHeader: ""}, {warmHeader: "1"}, {warmHeader + "-bin": "x"}}
	for i := range 400 {
		a, err := n.Send(t.Context(), Request{Header: headers[i%len(headers)]})
		if err != nil {
			t.Fatal(err)
		}
		if a.Label != "v1" {
			t.Fatalf("the warm route fired: %q answered", a.Label)
		}
	}
	held, err := n.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		if h.State != ACKed {
			t.Errorf("%s %s is %s: %s", h.TypeURL, h.Name, h.State, h.Error)
		}
	}
	if !slices.ContainsFunc(held, func(h Held) bool { return h.TypeURL == eds && h.Name == "v2" }) {
		t.Error("the warm cluster is not resolved")
	}
	if got := r.v2.Requests(); got != 0 {
		t.Errorf("%d requests reached v2", got)
	}
}

func TestServer(t *testing.T) {
	r := newRig(t)
	s, err := NewServer(r.bootstrap("s1"), "127.0.0.1:0", "v3")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if serving, _ := s.Serving(); serving {
		t.Fatal("SERVING without a Listener")
	}
	r.set(serverListener(t, s.Addr()))
	if err := s.WaitServing(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A client reaches it.
	r.set(endpoints(t, "v1", s.Addr()))
	n := r.start(t, GRPCGo{}, 1)[0]
	expect(t, n, "v3")
	if got := s.Requests(); got != 1 {
		t.Errorf("it counted %d requests, want 1", got)
	}

	// Again at the same address, now with its Listener there from the start.
	s.Drain(t.Context())
	again, err := StartServer(t.Context(), r.bootstrap("s1"), s.Addr(), "v4")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, n, "v4")
}

func TestServerWithoutListener(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // the wait itself
	defer cancel()
	if _, err := StartServer(ctx, r.bootstrap("s1"), "127.0.0.1:0", "v1"); err == nil {
		t.Fatal("it says SERVING")
	}
}

// TestCCoreServer: a server of another implementation serves when its Listener
// has come, and not before.
func TestCCoreServer(t *testing.T) {
	skipMissing(t, CCore{})
	r := newRig(t)
	addr := freeAddr(t)
	s, err := NewCCoreServer(r.bootstrap("s1"), addr, "v3")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	name := ServerListenerName(addr)
	if err := r.wait(ctx, func() bool {
		for p := range r.peers {
			if slices.Contains(p.subscribed[lds], name) {
				return true
			}
		}
		return false
	}); err != nil {
		t.Fatalf("it does not ask for its Listener: %v: %s", err, s.out.String())
	}
	early, end := context.WithTimeout(t.Context(), 100*time.Millisecond) // the wait itself
	defer end()
	if s.WaitServing(early) == nil {
		t.Fatal("it is serving without a Listener")
	}
	r.set(serverListener(t, addr), endpoints(t, "v1", addr))
	if err := s.WaitServing(ctx); err != nil {
		t.Fatal(err)
	}
	n := r.start(t, GRPCGo{}, 1)[0]
	expect(t, n, "v3")
	s.Stop()
	if !s.cmd.ProcessState.Success() {
		t.Errorf("%v: %s", s.cmd.ProcessState, s.out.String())
	}
}

func TestProcessNeedsMain(t *testing.T) {
	hooked.Store(false)
	defer hooked.Store(true)
	if _, err := (GRPCGoProcess{}).Start(t.Context(), Bootstrap{NodeID: "n"}, target); err == nil {
		t.Fatal("it would run the tests as a child")
	}
}

// TestParentDies: a child ends with its parent, even if that is killed.
func TestParentDies(t *testing.T) {
	r := newRig(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+r.addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if line != "<nil>\n" {
		t.Fatalf("the parent said %q", line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.wait(ctx, func() bool { return len(r.peers) == 0 }); err != nil {
		t.Fatal("the child outlives its parent")
	}
}

// TestNothingIsLeft: after Stop no process and no goroutine remains.
func TestNothingIsLeft(t *testing.T) {
	goroutines := func() int { return pprof.Lookup("goroutine").Count() }
	r := newRig(t)
	before := goroutines()
	var nodes []Node
	for _, d := range []Driver{GRPCGo{}, GRPCGoProcess{}} {
		nodes = append(nodes, r.start(t, d, 2)...)
	}
	s, err := NewServer(r.bootstrap("s1"), "127.0.0.1:0", "v3")
	if err != nil {
		t.Fatal(err)
	}
	l := &Load{Nodes: nodes, Workers: 2}
	run := l.Start(t.Context())
	if err := r.wait(t.Context(), func() bool { return len(r.peers) == 5 }); err != nil {
		t.Fatal(err)
	}
	if got := run.Stop(); got.Failures > 0 {
		t.Errorf("failures: %v", got.Errors)
	}
	s.Stop()
	for _, n := range nodes {
		stop(t, n)
		if p, ok := n.(*process); ok {
			if err := p.cmd.Process.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("process %d: %v", p.PID(), err)
			}
			if _, err := n.Send(t.Context(), Request{}); err == nil {
				t.Error("a stopped node sends")
			}
		}
	}
	if err := r.wait(t.Context(), func() bool { return len(r.peers) == 0 }); err != nil {
		t.Fatal(err)
	}
	// The peers' own goroutines end without a signal, so the count is polled.
	deadline := time.Now().Add(3 * time.Second)
	for goroutines() > before {
		if time.Now().After(deadline) {
			var all strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
			t.Fatalf("%d goroutines, want %d:\n%s", goroutines(), before, all.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}
