//go:build e2e

package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-xds/sluice/schema"
)

// crowd connects many nodes, some hundred on a connection.
func crowd(t *testing.T, addr string, n int) {
	t.Helper()
	var conn *grpc.ClientConn
	for i := range n {
		if i%500 == 0 {
			var err error
			conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			must(t, err)
			t.Cleanup(func() { conn.Close() })
		}
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(context.Background())
		must(t, err)
		node := &fakeNode{stream: stream, names: map[string][]string{}}
		must(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: schema.Clusters.URL(), Node: &corev3.Node{Id: fmt.Sprintf("edge-%05d", i)}}))
		go node.run()
	}
}

// meter counts what goes to the terminal.
type meter struct {
	mu     sync.Mutex
	bytes  int
	writes int
}

func (m *meter) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += len(b)
	m.writes++
	return len(b), nil
}

// timed wraps the model, and notes how long it takes to draw and what was drawn
// last.
type timed struct {
	*topModel
	views *[]time.Duration
	drawn chan string // one
}

func (m timed) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	_, cmd := m.topModel.Update(msg)
	return m, cmd
}

func (m timed) View() tea.View {
	began := time.Now()
	v := m.topModel.View()
	*m.views = append(*m.views, time.Since(began))
	select {
	case <-m.drawn:
	default:
	}
	m.drawn <- v.Content
	return v
}

// shows waits until texts are drawn together.
func (m timed) shows(t *testing.T, texts ...string) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case screen := <-m.drawn:
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) }) {
				return
			}
		case <-limit.C:
			t.Fatalf("%q are never drawn", texts)
		}
	}
}

// eventually looks again and again until something is true.
func eventually(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	end, again := time.NewTimer(limit), time.NewTicker(50*time.Millisecond)
	defer end.Stop()
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-end.C:
			t.Fatalf("waited %v in vain for %s", limit, what)
		}
	}
}

// 10,000 nodes take a rollout while the UI is open on each screen: it draws in well
// under a frame, and sends a terminal no more than a slow line carries.
func TestTopTenThousandNodes(t *testing.T) {
	const nodes = 10000
	f := newShop(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	began := time.Now()
	crowd(t, running.XDS, nodes)
	c := newAdminClient(f.socket)
	settled := func() bool {
		st, err := c.statusOf(t.Context(), "none")
		must(t, err)
		return st.Groups[0].AtTarget == nodes && st.Groups[0].Target == ""
	}
	eventually(t, "all of them to come", 2*time.Minute, settled)
	t.Logf("%d nodes are connected after %v", nodes, time.Since(began).Round(time.Millisecond))
	for name, ask := range map[string]func() error{
		"status without nodes": func() error { _, err := c.statusOf(t.Context(), "none"); return err },
		"status":               func() error { _, err := c.status(t.Context()); return err },
		"500 nodes": func() error {
			_, err := c.nodes(t.Context(), url.Values{"group": {"edge"}, "sort": {"trouble"}, "limit": {"500"}})
			return err
		},
		"a node": func() error { _, err := c.node(t.Context(), "edge-00042"); return err },
	} {
		at := time.Now()
		must(t, ask())
		t.Logf("%s: %v", name, time.Since(at).Round(10*time.Microsecond))
	}
	// A heading and a row of each, in the order in which they open: there is nothing
	// to enter before there are rows.
	screens := [][]string{{"GROUP", "edge"}, {"NODE", "edge-0"}, {"TYPE", "clusters"}}
	for i := range screens {
		out, views := &meter{}, []time.Duration{}
		m := timed{newTopModel(c), &views, make(chan string, 1)}
		p := tea.NewProgram(m, tea.WithOutput(out), tea.WithInput(nil), tea.WithWindowSize(200, 60), tea.WithFPS(30), tea.WithoutSignals())
		ctx, cancel := context.WithCancel(t.Context())
		fed := make(chan struct{})
		go func() { defer close(fed); (&feed{client: c, send: p.Send}).run(ctx) }()
		done := make(chan error, 1)
		go func() { _, err := p.Run(); done <- err }()
		for j, texts := range screens[:i+1] {
			if j > 0 {
				p.Send(tea.KeyPressMsg{Code: tea.KeyEnter})
			}
			m.shows(t, texts...)
		}
		out.mu.Lock()
		before := out.bytes
		out.mu.Unlock()
		at := time.Now()
		f.shift(50-i, 50+i)
		eventually(t, "the rollout", 2*time.Minute, func() bool { return time.Since(at) > 500*time.Millisecond && settled() })
		took := time.Since(at)
		p.Quit()
		must(t, <-done)
		cancel()
		<-fed
		slices.Sort(views)
		worst := views[len(views)-1]
		t.Logf("screen %d: rollout of %v; %d views, p50 %v, p99 %v, worst %v; %.1f kB/s to the terminal", i, took.Round(time.Millisecond), len(views),
			views[len(views)/2], views[len(views)*99/100], worst, float64(out.bytes-before)/took.Seconds()/1000)
		if views[len(views)/2] > 30*time.Millisecond {
			t.Errorf("screen %d lags: half of all views took more than %v", i, views[len(views)/2])
		}
	}
}
