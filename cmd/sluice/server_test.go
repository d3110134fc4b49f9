package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-xds/sluice/schema"
)

// A rollout as its people see it: the plan before, the wait, the refusal with the
// node's words and the line, and a server that stops under an open stream.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	repo, socket := filepath.Join(dir, "repo"), filepath.Join(dir, "s.sock")
	file := filepath.Join(repo, "shop.cue")
	shop, err := os.ReadFile("../../examples/shop/shop.cue")
	must(t, err)
	must(t, os.Mkdir(repo, 0o700))
	must(t, os.WriteFile(file, shop, 0o600))
	must(t, replaceIn(file, `rollout: {waves: [{percent: 10}, {rest: true}], bake: "5m"}`, ""))
	first := commit(t, repo)

	running, stop := start(t, serverConfig{Repo: repo, Store: filepath.Join(dir, "store"), Socket: socket})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v: want one for this user alone", info.Mode(), err)
	}
	cli(t, 0, "status", "--server", socket, "--wait", "--commit", first)
	node := connect(t, running.XDS, "edge-1")
	await(t, `^edge +r-1 +`+first[:7]+` +1/1 +converged +- +1 +1 +1 +0$`, "status", "--server", socket)

	must(t, replaceIn(file, `split: {cart: 90, "cart-v2": 10}, timeout`, `split: {cart: 50, "cart-v2": 50}, timeout`))
	out := cli(t, 0, "plan", "--server", socket, repo)
	wants(t, out, `^`+first[:7]+` → working tree        1 group, 1 node: 1 acked, 0 disconnected$`,
		`^Plan: 0 resources to add, 1 to change, 0 to prune, in 2 stages over 1 node\.$`)
	second := commit(t, repo)
	cli(t, 0, "sync", "--server", socket)
	cli(t, 0, "status", "--server", socket, "--wait", "--commit", second)

	node.refuse(schema.Routes, "virtual host 'shop' is no good")
	must(t, replaceIn(file, `split: {cart: 50, "cart-v2": 50}, timeout`, `split: {cart: 10, "cart-v2": 90}, timeout`))
	third := commit(t, repo)
	cli(t, 0, "sync", "--server", socket)
	out = cli(t, exitRefused, "status", "--server", socket, "--wait", "--commit", third)
	wants(t, out, `^error: group edge halted at commit `+third[:7]+`$`)
	out = cli(t, 0, "status", "--server", socket)
	wants(t, out, `^edge +r-3 +`+second[:7]+` → `+third[:7]+` +1/1 +halted +routes 0/1 +1 +1 +0 +1$`,
		`^halted  edge at `+third[:7]+`: node edge-1, stage routes$`,
		`^    routes \(RDS\) refused, nonce [0-9a-z]+:$`,
		`^      virtual host 'shop' is no good$`,
		`^    → shop.cue:13  route shop  \(`+third[:7]+`\)$`)
	out = cli(t, 0, "plan", "--server", socket, "--to", second, repo)
	wants(t, out, `^Groups   edge is halted at `+third[:7]+`, stage routes: node edge-1: routes refused: virtual host 'shop' is no good$`,
		`^           what its nodes may hold of `+third[:7]+` is reckoned with$`,
		`^Nodes    edge  edge-1 \(at `+third[:7]+`\) is nacked: routes refused: virtual host 'shop' is no good$`)

	stop()
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A server that stops says so while it sends its nodes away, one after another; who
// waits for a commit is told, and waits for its return.
func TestServerStops(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	serve := func(leave time.Duration) (serverRunning, func()) {
		return start(t, serverConfig{Repo: f.repo, Store: f.store, Socket: f.socket, Leave: leave})
	}
	running, stop := serve(4 * time.Second)
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	for i := range 8 { // the last of them is sent away late
		connect(t, running.XDS, fmt.Sprintf("edge-%d", i))
	}
	await(t, `^edge .*converged +- +8 +8 +8 +0$`, "status", "--server", f.socket)
	cli(t, 0, "status", "--server", f.socket, "--wait")
	gone := make(chan struct{})
	go func() { defer close(gone); stop() }()
	await(t, `^server  is stopping: its nodes keep what they have, and come back when it does$`, "status", "--server", f.socket)
	wants(t, cli(t, exitTimedOut, "status", "--server", f.socket, "--wait", "--timeout", "300ms"),
		`^the server is stopping: it is waited for$`, `^error: timed out after 300ms: the server is stopping: it is waited for$`)
	wants(t, cli(t, 0, "status", "--server", f.socket, "--watch", "--timeout", "100ms"), `^[0-9:]{8}  server  is stopping: its nodes keep what they have`)
	err := newAdminClient(f.socket).get(t.Context(), "/readyz", nil)
	if err == nil || err.Error() != "not ready: the server is stopping" {
		t.Errorf("readyz: %v", err)
	}
	waited := make(chan string, 1)
	go func() { waited <- cli(t, 0, "status", "--server", f.socket, "--wait", "--timeout", "20s") }()
	<-gone
	_, stop = serve(0)
	defer stop()
	wants(t, <-waited, `^the server is stopping: it is waited for$`, `^converged: 1 group, `)
}

// A socket that a killed server left is taken over; a file that is none is not.
func TestListenSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	dead, err := net.Listen("unix", path)
	must(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	lis, err := listenSocket(path)
	must(t, err)
	if _, err := listenSocket(path); err == nil || !strings.Contains(err.Error(), "another sluice answers there") {
		t.Errorf("a second server: %v", err)
	}
	lis.Close()
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := listenSocket(path); err == nil || !strings.Contains(err.Error(), "it is there and no socket") {
		t.Errorf("over a file: %v", err)
	}
}

// start runs a server, and returns how to stop it; that must not take long.
func start(t *testing.T, cfg serverConfig) (serverRunning, func()) {
	t.Helper()
	ready, done := make(chan serverRunning, 1), make(chan error, 1)
	cfg.Listen, cfg.Poll, cfg.AckWait = "127.0.0.1:0", time.Hour, time.Minute
	cfg.Ready = func(r serverRunning) { ready <- r }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- runServer(ctx, cfg) }()
	stop := func() {
		t.Helper()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("stopped with %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the server hangs on an open stream")
		}
	}
	select {
	case r := <-ready:
		return r, stop
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	return serverRunning{}, stop
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, dir string) string {
	t.Helper()
	h, err := commitAll(dir)
	must(t, err)
	return h
}

// cli runs a command in this process and returns all that it printed.
func cli(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if got := run(args, &out, &out); got != code {
		t.Fatalf("sluice %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, &out)
	}
	return out.String()
}

func wants(t *testing.T, out string, exprs ...string) {
	t.Helper()
	for _, e := range exprs {
		if !matches(e, out) {
			t.Errorf("no %q in\n%s", e, out)
		}
	}
}

func await(t *testing.T, expr string, args ...string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out := cli(t, 0, args...)
		if matches(expr, out) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in\n%s", expr, out)
		}
	}
}

// fakeNode is an Envoy reduced to its ADS stream: it takes whatever it is sent,
// unless it is told to refuse a type.
type fakeNode struct {
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	names  map[string][]string // subscribed, by type URL
	no     atomic.Pointer[[2]string]
}

func (n *fakeNode) refuse(t schema.Type, words string) { n.no.Store(&[2]string{t.URL(), words}) }

func connect(t *testing.T, addr, id string) *fakeNode {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(context.Background())
	must(t, err)
	n := &fakeNode{stream: stream, names: map[string][]string{}}
	must(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: schema.Clusters.URL(), Node: &corev3.Node{Id: id}}))
	go n.run()
	return n
}

func (n *fakeNode) run() {
	held := map[string]string{}
	for {
		res, err := n.stream.Recv()
		if err != nil {
			return
		}
		req := &discoveryv3.DiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce, ResourceNames: n.names[res.TypeUrl]}
		if no := n.no.Load(); no != nil && no[0] == res.TypeUrl {
			req.ErrorDetail = &statuspb.Status{Code: 3, Message: no[1]}
		} else {
			held[res.TypeUrl] = res.VersionInfo
		}
		req.VersionInfo = held[res.TypeUrl]
		_ = n.stream.Send(req)
		switch res.TypeUrl {
		case schema.Clusters.URL():
			n.subscribe(schema.Endpoints.URL(), clusterNames(res), held)
			n.subscribe(schema.Listeners.URL(), nil, held)
		case schema.Listeners.URL():
			n.subscribe(schema.Routes.URL(), []string{"web"}, held)
		}
	}
}

func (n *fakeNode) subscribe(url string, names []string, held map[string]string) {
	if old, ok := n.names[url]; ok && strings.Join(old, " ") == strings.Join(names, " ") {
		return
	}
	n.names[url] = names
	_ = n.stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: url, ResourceNames: names, VersionInfo: held[url]})
}

func clusterNames(res *discoveryv3.DiscoveryResponse) []string {
	var names []string
	for _, r := range res.Resources {
		var c clusterv3.Cluster
		if r.UnmarshalTo(&c) == nil {
			names = append(names, c.Name)
		}
	}
	return names
}
