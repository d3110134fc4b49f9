package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// Sizes of the switches.
const (
	switchClients = 3
	switchRate    = 300 // requests a second of each client
)

func switchCount() int {
	if long {
		return 20
	}
	return 5
}

// switches moves a route from one fresh service to the next, again and again,
// and tallies what the clients met.
func switches(r *rig, n int) dataplane.Tally {
	r.t.Helper()
	name := func(i int) string { return fmt.Sprintf("svc-%02d", i) }
	addr := make([]string, n+1)
	for i := range addr {
		addr[i] = r.backend(name(i))
	}
	r.merge("everything to "+name(0), to(name(0), addr[0]))
	r.clients(switchClients)
	r.settle()
	r.load(switchRate, name(0))
	r.requests(200)
	for i := 1; i <= n; i++ {
		r.route.Only(name(i-1), name(i))
		r.merge("everything to "+name(i), to(name(i), addr[i]))
		r.settle()
		r.route.Only(name(i))
		during := r.run.Mark()
		after := r.requests(200)
		r.t.Logf("switch %2d  %s  %4.2fs  %5d requests  %d failed", i, short(r.commit), time.Since(r.merged).Seconds(),
			during.Requests+after.Requests, during.Failures+after.Failures)
		if after.ByLabel[name(i)] == 0 {
			r.t.Errorf("nothing reached %s after the switch: %v", name(i), after.ByLabel)
		}
	}
	return r.run.Stop()
}

// Route switches in Git under load do not fail one request.
func TestSwitches(t *testing.T) {
	skipShort(t)
	r := newRig(t, 3*time.Minute)
	r.serve()
	total := switches(r, switchCount())
	t.Logf("%d switches: %d requests, %d failed", switchCount(), total.Requests, total.Failures)
	r.unfailed("switches in order", total)
}

// The same rig sees what a wrong order costs: a test that cannot see failures
// proves nothing.
func TestSwitchesInTheWrongOrder(t *testing.T) {
	skipShort(t)
	r := newRig(t, time.Minute)
	r.servePlan(wrongOrder)
	n := 2
	if long {
		n = 5
	}
	total := switches(r, n)
	t.Logf("%d switches: %d requests, %d failed: %v", n, total.Requests, total.Failures, total.Errors)
	// 200 ms at 900 requests a second are 180 failures a switch.
	if want := 50 * n; total.Failures < want {
		t.Errorf("%d requests failed in the wrong order: the rig must see at least %d", total.Failures, want)
	}
}

// wrongOrder removes what the target lacks, and moves the route 200 ms later.
func wrongOrder(from schema.State, to *schema.Target) *schema.Path {
	if from.Blank {
		return &schema.Path{Target: to}
	}
	holds := from.Acked.Union(from.Maybe)
	first := to.Snapshot
	for _, t := range [...]schema.Type{schema.Listeners, schema.Routes} {
		first = first.Replace(t, holds.Of(t))
	}
	all := [schema.NumTypes]bool{}
	for t := range all {
		all[t] = true
	}
	return &schema.Path{Target: to, Converged: 2, Stages: []schema.Stage{
		{Kind: schema.Prune, Snapshot: first, Moves: all},
		{Kind: schema.SwitchRoutes, Snapshot: to.Snapshot, Moves: all, Drain: 200 * time.Millisecond},
	}}
}
