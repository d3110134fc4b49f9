package dataplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// warmOf gives the clusters of the warm route.
func warmOf(r named) []*routepb.WeightedCluster_ClusterWeight {
	vh := r.body.(*routepb.RouteConfiguration).VirtualHosts[0]
	return vh.Routes[0].GetRoute().GetWeightedClusters().Clusters
}

// fake answers from memory.
type fake struct {
	Node
	send func(n int64) (Answer, error)
	sent atomic.Int64
}

func (f *fake) Send(context.Context, Request) (Answer, error) {
	return f.send(f.sent.Add(1))
}

func TestTally(t *testing.T) {
	enough := make(chan struct{})
	f := &fake{send: func(n int64) (Answer, error) {
		switch {
		case n == 1000:
			close(enough)
		case n > 1000:
			return Answer{Label: "late"}, nil
		case n%10 == 0:
			return Answer{}, fmt.Errorf("text %d", n)
		case n%10 == 1:
			return Answer{}, errors.New("often")
		case n%10 == 2:
			return Answer{Label: "old"}, nil
		}
		return Answer{Label: "new"}, nil
	}}
	l := &Load{Nodes: []Node{f}, Workers: 3, Allow: func(label string, sent, done time.Time) bool {
		return label != "old" && !done.Before(sent)
	}}
	run := l.Start(t.Context())
	<-enough
	got := run.Stop()
	answers, failures := 0, 0
	for _, n := range got.ByLabel {
		answers += n
	}
	for _, n := range got.Errors {
		failures += n
	}
	if got.Requests != int(f.sent.Load()) || got.Failures != 299 || failures != got.Failures ||
		answers != got.Requests-199 || len(got.Errors) != MaxErrors+1 ||
		got.Errors["often"] != 100 || got.Errors[`"old" answered when it must not`] != 100 {
		t.Errorf("got %+v after %d requests", got, f.sent.Load())
	}
	if m := run.Mark(); m.Requests != got.Requests {
		t.Errorf("the first mark has %d requests, want %d", m.Requests, got.Requests)
	}
	if m := run.Mark(); m.Requests != 0 || len(m.ByLabel) != 0 || len(m.Errors) != 0 || m.P99 != 0 {
		t.Errorf("the second mark has %+v", m)
	}
}

func TestBuckets(t *testing.T) {
	for d := time.Microsecond; d < 20*time.Minute; d += d/7 + time.Microsecond {
		i := bucket(d)
		low, high := bound(i-1), bound(i)
		if us := d.Truncate(time.Microsecond); us < low || us >= high || i >= buckets {
			t.Fatalf("%v is in bucket %d, from %v to %v", d, i, low, high)
		}
	}
}

// TestRate: wall time is the subject.
func TestRate(t *testing.T) {
	f := &fake{send: func(int64) (Answer, error) { return Answer{}, nil }}
	m := &milestones{reached: make(chan struct{}, 1)}
	begin := time.Now()
	run := (&Load{Nodes: []Node{f}, Rate: 1000, Workers: 4, Requests: m.request}).Start(t.Context())
	defer run.Stop()
	m.after(t, 300)
	if took := time.Since(begin); took < 200*time.Millisecond || took > time.Second {
		t.Errorf("300 requests at 1000/s took %v", took)
	}
}

// milestones lets a test wait until a load has started more requests.
type milestones struct {
	started atomic.Int64
	next    atomic.Int64 // 0 for none
	reached chan struct{}
}

func (m *milestones) request(int) Request {
	n := m.started.Add(1)
	if next := m.next.Load(); next > 0 && n >= next && m.next.CompareAndSwap(next, 0) {
		m.reached <- struct{}{}
	}
	return Request{}
}

func (m *milestones) after(t *testing.T, n int64) {
	t.Helper()
	m.next.Store(m.started.Load() + n)
	select {
	case <-m.reached:
	case <-time.After(5 * time.Second):
		t.Fatal("the load stands still")
	}
}

// TestMakeBeforeBreak holds the warm route to no failure at all. Without it
// grpc-go itself loses some requests; how many is only recorded.
func TestMakeBeforeBreak(t *testing.T) {
	const nodes, moves, between = 3, 20, 500
	for _, warm := range []bool{false, true} {
		t.Run(fmt.Sprint("warm=", warm), func(t *testing.T) {
			r := newRig(t)
			m := &milestones{reached: make(chan struct{}, 1)}
			l := &Load{Nodes: r.start(t, GRPCGo{}, nodes), Workers: 2, Requests: m.request}
			run := l.Start(t.Context())
			defer run.Stop()
			from, to := r.v1, r.v2
			for range moves {
				m.after(t, between)
				r.move(t, nodes, from, to, warm)
				r.prune(t, from)
				from, to = to, from
			}
			got := run.Stop()
			t.Logf("%d failures of %d requests in %d moves: %v", got.Failures, got.Requests, moves, got.Errors)
			if warm && got.Failures > 0 {
				t.Errorf("%d failures: %v", got.Failures, got.Errors)
			}
			if got.ByLabel["v1"] == 0 || got.ByLabel["v2"] == 0 {
				t.Errorf("not both answered: %v", got.ByLabel)
			}
		})
	}
}

// TestBreakBeforeMake: the rig sees the wrong order, in which some requests are
// made while their cluster is gone.
func TestBreakBeforeMake(t *testing.T) {
	for _, d := range []Driver{GRPCGo{}, GRPCGoProcess{}} {
		t.Run(d.Name(), func(t *testing.T) {
			const enough = 20
			r := newRig(t)
			moved := make(chan struct{}, 1)
			m := &milestones{reached: make(chan struct{}, 1)}
			l := &Load{Nodes: r.start(t, d, 1), Requests: m.request, Allow: func(label string, _, _ time.Time) bool {
				if label == "v2" {
					select {
					case moved <- struct{}{}:
					default:
					}
				}
				return true
			}}
			run := l.Start(t.Context())
			defer run.Stop()
			r.set(cluster("v2"), endpoints(t, "v2", r.v2.Addr()))
			if before := run.Mark(); before.Failures > 0 {
				t.Fatalf("failures already before: %v", before.Errors)
			}
			r.drop(cds, "v1")
			failures, errors := 0, map[string]int{}
			for limit := time.Now().Add(10 * time.Second); failures < enough; {
				if time.Now().After(limit) {
					t.Fatalf("the rig saw %d failures", failures)
				}
				m.after(t, enough)
				mark := run.Mark()
				failures += mark.Failures
				maps.Copy(errors, mark.Errors)
			}
			r.set(routes("v2"))
			select {
			case <-moved:
			case <-time.After(5 * time.Second):
				t.Fatal("v2 never answers")
			}
			t.Logf("%d failures before the move: %v", failures, errors)
		})
	}
}

// TestThroughput records what a load costs. Wall time is the subject.
func TestThroughput(t *testing.T) {
	for _, d := range []Driver{GRPCGo{}, GRPCGoProcess{}} {
		t.Run(d.Name(), func(t *testing.T) {
			r := newRig(t)
			m := &milestones{reached: make(chan struct{}, 1)}
			l := &Load{Nodes: r.start(t, d, 3), Workers: 8, Requests: m.request}
			begin := time.Now()
			run := l.Start(t.Context())
			defer run.Stop()
			m.after(t, 2000)
			got := run.Stop()
			rate := float64(got.Requests) / time.Since(begin).Seconds()
			t.Logf("%.0f RPC/s with 3 nodes of 8 workers, p50 %v, p99 %v", rate, got.P50, got.P99)
			if got.Failures > 0 {
				t.Errorf("failures: %v", got.Errors)
			}
			if rate < 350 { // 20,000 in a minute
				t.Errorf("%.0f RPC/s is too few", rate)
			}
		})
	}
}
