//go:build e2e

package realclients

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// Sizes.
const (
	switches    = 20
	loadRate    = 500 // requests a second of each node
	loadBetween = 200 // requests between two switches
)

// kind is one implementation of a client.
type kind struct {
	driver  dataplane.Driver
	client  schema.Client
	nodes   int
	backend func(label string) (*dataplane.Server, error)
	target  func(*rig) string
}

func gRPC(d dataplane.Driver, nodes int) kind {
	return kind{d, schema.GRPC, nodes, dataplane.StartPlain, func(*rig) string { return gRPCTarget }}
}

var (
	grpcGo = gRPC(dataplane.GRPCGo{}, 2)
	cCore  = gRPC(dataplane.CCore{}, 2)
	grpcJS = gRPC(dataplane.GRPCJS{}, 2)
	// One proxy: a second could not listen on the same port.
	mosn = kind{dataplane.MOSN{}, schema.Envoy, 1, dataplane.StartHTTP, func(r *rig) string { return "http://" + r.bind }}

	kinds = []kind{grpcGo, cCore, grpcJS, mosn}
)

// table is what the tests have found, client by client.
var table struct {
	sync.Mutex
	rows []row
}

type row struct {
	client, what     string
	requests, failed int
	errors           string
}

func record(k kind, what string, t dataplane.Tally) {
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, row{k.driver.Name(), what, t.Requests, t.Failures, errorsOf(t)})
}

// TestMain prints the table after all tests.
func TestMain(m *testing.M) {
	code := m.Run()
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "client\tcase\trequests\tfailed\t")
	for _, r := range table.rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", r.client, r.what, r.requests, r.failed, r.errors)
	}
	_ = w.Flush()
	os.Exit(code)
}

// TestSwitches: whoever the client is, a route that moves in Git costs nothing.
func TestSwitches(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.driver.Name(), func(t *testing.T) {
			r := newRig(t, k, 2*time.Minute, nil)
			total := r.switches(switches)
			record(k, fmt.Sprintf("%d switches in order", switches), total)
			if total.Failures > 0 {
				t.Errorf("%d of %d requests failed: %v", total.Failures, total.Requests, total.Errors)
			}
			r.checkConversation()
			g := r.loop.Status().Groups[0]
			t.Logf("%d of %d nodes owe no prune", g.Done, g.Connected)
		})
	}
}

// TestSplit: weights are relative, whatever their sum. The C core of gRPC refuses
// those that are not 100 in all, unless they come with their sum.
func TestSplit(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.driver.Name(), func(t *testing.T) {
			r := newRig(t, k, time.Minute, nil)
			one, two := r.backend("svc-00"), r.backend("svc-01")
			r.merge(one)
			r.start()
			r.await()
			r.load()
			r.arrives(one)
			r.mergeConfig(config{services: []service{one, two}, split: true})
			r.await()
			r.arrives(two)
			r.run.Mark()
			r.requests(3000)
			got := r.run.Mark()
			total := r.run.Stop()
			record(k, "a split of 1 : 2", total)
			if total.Failures > 0 {
				t.Errorf("%d of %d requests failed: %v", total.Failures, total.Requests, total.Errors)
			}
			share := float64(got.ByLabel[two.name]) / float64(got.Requests)
			if share < 0.6 || share > 0.73 {
				t.Errorf("%s answers %.1f %% of %d requests: want two thirds", two.name, 100*share, got.Requests)
			}
		})
	}
}

// switches moves the route from one fresh service to the next under load.
func (r *rig) switches(n int) dataplane.Tally {
	r.t.Helper()
	first := r.backend("svc-00")
	r.merge(first)
	r.start()
	r.await()
	r.load()
	r.arrives(first)
	for i := range n {
		s := r.backend(fmt.Sprintf("svc-%02d", i+1))
		r.merge(s)
		r.await()
		r.arrives(s)
	}
	return r.run.Stop()
}

// TestWrongOrder: what each wrong order costs each client. least is what the rig
// must see; 0 is for a client that may come through the case unharmed, and -1 for
// one that it is not put to: MOSN removes nothing, and grpc-js 1.14 never takes up
// again a listener that was removed and comes back the same.
func TestWrongOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		plan  plan
		moves int
		least map[string]int
	}{
		{"cluster dropped 0.2 s before the route moves", clusterFirst, 1, map[string]int{"grpc-go": 20, "c-core": 20, "grpc-js": 20, "mosn": -1}},
		{"route moves 1 s before its cluster", routeFirst, 1, map[string]int{"mosn": 100}},
		{"listener removed for 0.2 s", listenerGone, 1, map[string]int{"grpc-go": 20, "c-core": 20, "grpc-js": -1, "mosn": -1}},
		{"one unordered push, 20 times", unordered, switches, map[string]int{"grpc-go": 1, "mosn": 1}},
	} {
		for _, k := range kinds {
			least := c.least[k.driver.Name()]
			if least < 0 {
				continue
			}
			t.Run(k.driver.Name()+"/"+c.name, func(t *testing.T) {
				r := newRig(t, k, time.Minute, c.plan)
				total := r.switches(c.moves)
				record(k, c.name, total)
				if total.Failures < least {
					t.Errorf("%d of %d requests failed: the rig must see %d", total.Failures, total.Requests, least)
				}
			})
		}
	}
}

// TestEndpointsLate: a route to a service whose endpoints come 1 s later. The
// engine itself would not move it.
func TestEndpointsLate(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.driver.Name(), func(t *testing.T) {
			r := newRig(t, k, time.Minute, unordered)
			first, second := r.backend("svc-00"), r.backend("svc-01")
			r.merge(first)
			r.start()
			r.await()
			r.load()
			r.arrives(first)
			r.merge(service{name: second.name})
			r.await()
			time.Sleep(time.Second) // the outage is the subject
			r.merge(second)
			r.arrives(second)
			total := r.run.Stop()
			record(k, "endpoints empty for 1 s after the move", total)
			if total.Failures < 100 {
				t.Errorf("%d of %d requests failed: the rig must see 100", total.Failures, total.Requests)
			}
		})
	}
}
