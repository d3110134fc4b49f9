package acceptance

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// Sizes of the table of kills.
const (
	killClients = 2
	killRate    = 300 // requests a second of each client
	killSample  = 400 // requests after each change, to see the share
)

// linger is how long the server is given to answer an ACK before it is killed:
// its answer, if one comes, is lost.
const linger = 20 * time.Millisecond

// slow is how long a row may take before it says where the time went.
const slow = 5 * time.Second

// killer kills the server at an event. A send counts once the message has gone
// on to the node, whose answer is then lost. An ACK counts once the server has
// it, and whatever the server sends next is lost.
type killer struct {
	kill func()
	died chan event // holds one

	mu      sync.Mutex
	at      int // the event to kill at; 0 for none
	events  []event
	pending *event // an ACK after which the server is to die
}

// arm counts from here, and kills at the k-th send or ACK.
func (k *killer) arm(at int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.events, k.pending = at, nil, nil
}

// disarm ends the counting, unless a kill is due, and gives what was counted.
func (k *killer) disarm() ([]event, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pending != nil || len(k.died) > 0 {
		return nil, false
	}
	k.at = 0
	return k.events, true
}

func (k *killer) before(e event) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pending == nil || e.kind != send {
		return true
	}
	k.fire(*k.pending)
	return false
}

func (k *killer) after(e event) {
	if e.kind == ask {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, e)
	if len(k.events) != k.at {
		return
	}
	if e.kind == send {
		k.fire(e)
		return
	}
	k.pending = &e
	time.AfterFunc(linger, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.pending == &e {
			k.fire(e)
		}
	})
}

// fire kills the server while nothing else passes.
func (k *killer) fire(e event) {
	k.pending = nil
	k.kill()
	k.died <- e
}

// change is one of the demo's three.
type change struct {
	name  string
	split [2]int // weights of old and new; -1: the old service is gone
}

var changes = []change{
	{name: "10 % to v2", split: [2]int{90, 10}},
	{name: "100 % to v2", split: [2]int{0, 100}},
	{name: "v1 removed", split: [2]int{-1, 100}},
}

// generation is a service, and the xDS server behind it.
type generation struct {
	name   string
	server *dataplane.Server
}

// killRig is a rig whose nodes reach the server through a proxy.
type killRig struct {
	*rig
	proxy    *proxy
	killer   *killer
	old, new generation
	made     int
	rows     []killRow
}

// killRow is one line of the table.
type killRow struct {
	change   string
	of       int // the event to kill at, 0 for none
	died     *event
	events   []event
	restarts int
	tally    dataplane.Tally
	share    float64 // of the new service, afterwards
	ended    string
	took     time.Duration
	trace    []string
}

// follow keeps what is new of a status.
func (row *killRow) follow(st *reconcile.Status, at time.Duration) {
	var b strings.Builder
	for i := range st.Groups {
		g := &st.Groups[i]
		fmt.Fprintf(&b, "  %s: %s %s→%s connected %d expected %d at target %d done %d", g.Name, g.State, short(g.Base), short(g.Target), g.Connected, g.Expected, g.AtTarget, g.Done)
	}
	for i := range st.Nodes {
		fmt.Fprintf(&b, "  %s: %s %s", st.Nodes[i].ID, st.Nodes[i].Stage, st.Nodes[i].State)
	}
	if n := len(row.trace); n == 0 || row.trace[n-1][9:] != b.String() {
		row.trace = append(row.trace, fmt.Sprintf("%7.2fs ", at.Seconds())+b.String())
	}
}

func newKillRig(t *testing.T, limit time.Duration) *killRig {
	r := &killRig{rig: newRig(t, limit), killer: &killer{died: make(chan event, 1)}}
	r.proxy = startProxy(t, r.addr, r.killer)
	r.dial = r.proxy.addr
	r.serve()
	r.killer.kill = r.proc.kill
	r.old = r.generation()
	r.merge("everything to "+r.old.name, r.config(-1, 100, r.old))
	r.clients(killClients)
	r.settle()
	r.load(killRate, r.old.name)
	r.unfailed("before the first row", r.requests(200))
	return r
}

// generation starts an xDS server for a fresh service.
func (r *killRig) generation() generation {
	r.t.Helper()
	name := fmt.Sprintf("svc-%02d", r.made)
	r.made++
	s, err := dataplane.NewServer(dataplane.Bootstrap{
		Server: r.dial, NodeID: "server-" + name, Cluster: "backend", Zone: "zone-a",
	}, "127.0.0.1:0", name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Stop)
	r.want["backends"]++
	return generation{name, s}
}

// config splits the route between two generations; the old one is gone at -1.
func (r *killRig) config(old, new int, gens ...generation) config {
	c := config{split: map[string]int{}, services: map[string]string{}, servers: map[string]string{}}
	weights := []int{old, new}[2-len(gens):]
	for i, g := range gens {
		if weights[i] < 0 {
			continue
		}
		if weights[i] > 0 {
			c.split[g.name] = weights[i]
		}
		c.services[g.name] = g.server.Addr()
		c.servers["server-"+g.name] = g.server.Addr()
	}
	return c
}

// row merges a change, kills the server at an event of its rollout, starts it
// again on the same store, and waits until the rollout has ended.
func (r *killRig) row(c change, at int) killRow {
	r.t.Helper()
	row := killRow{change: c.name, of: at}
	before := r.commit
	labels := []string{r.old.name, r.new.name}
	r.route.Only(labels...)
	r.killer.arm(at)
	r.run.Mark()
	r.merge(c.name, r.config(c.split[0], c.split[1], r.old, r.new))
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		select {
		case e := <-r.killer.died:
			row.died = &e
			if err := r.crashed(before, e); err != nil {
				r.t.Errorf("%s, killed at event %d, %s: %v", c.name, at, e, err)
			}
			r.restart()
			row.restarts++
		default:
		}
		st, err := r.server.status(ctx)
		if err != nil {
			return false, nil
		}
		r.last = st
		row.follow(st, time.Since(r.merged))
		if !r.settled(st) {
			return false, nil
		}
		events, ok := r.killer.disarm()
		if ok {
			row.events = events
		}
		return ok, nil
	})
	row.took = time.Since(r.merged)
	row.ended = r.ended()
	if err != nil {
		r.rows = append(r.rows, row)
		r.t.Fatalf("%s, killed at event %d (%v): the rollout does not end: %v\n%s\n%s", c.name, at, row.died, err, strings.Join(row.trace, "\n"), r.table())
	}
	if c.split[0] <= 0 {
		labels = labels[1:]
	}
	r.route.Only(labels...)
	row.tally = r.run.Mark()
	after := r.requests(killSample)
	row.tally.Requests += after.Requests
	row.tally.Failures += after.Failures
	row.share = float64(after.ByLabel[r.new.name]) / float64(max(1, after.Requests))
	r.unfailed(fmt.Sprintf("%s, killed at event %d (%v)", c.name, at, row.died), dataplane.Tally{
		Requests: row.tally.Requests, Failures: row.tally.Failures, Errors: merged(row.tally.Errors, after.Errors), ByLabel: after.ByLabel,
	})
	want := float64(c.split[1]) / 100
	if off := row.share - want; off < -0.07 || off > 0.07 || want == 1 && off != 0 {
		r.t.Errorf("%s, killed at event %d (%v): %s has %.1f %% of the requests: want %.0f %%", c.name, at, row.died, r.new.name, 100*row.share, 100*want)
	}
	r.rows = append(r.rows, row)
	if row.took > slow {
		r.t.Logf("row %d took %.2fs:\n%s", len(r.rows), row.took.Seconds(), strings.Join(row.trace, "\n"))
	}
	return row
}

func merged(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	for k, n := range b {
		all[k] += n
	}
	return all
}

// crashed reads the store as the crash has left it: what a node was sent was
// written before.
func (r *killRig) crashed(before string, e event) error {
	st, err := checkStore(r.proc.store(), before, r.commit)
	if err != nil {
		return err
	}
	name := groupOfNode(e.node)
	g := st.Groups[name]
	if g.Target == nil && (g.Base == nil || g.Base.Commit != r.commit) || g.Target != nil && g.Target.Commit != r.commit {
		return fmt.Errorf("the store does not say that group %s is on its way to %s", name, short(r.commit))
	}
	return nil
}

// ended says where the groups are.
func (r *killRig) ended() string {
	var parts []string
	for i := range r.last.Groups {
		g := &r.last.Groups[i]
		at := "target"
		if g.Base != r.commit {
			at = short(g.Base)
		}
		parts = append(parts, fmt.Sprintf("%s %s %d/%d", at, g.State, g.Done, r.want[g.Name]))
	}
	return strings.Join(parts, ", ")
}

// triple merges the three changes from one generation to a fresh one, each with
// its own kill; where is 0 no kill is wanted.
func (r *killRig) triple(at [3]int) [3]killRow {
	r.t.Helper()
	r.new = r.generation()
	r.await("the new xDS server", func(st *reconcile.Status) bool {
		return groupOf(st, "backends").Connected == r.want["backends"]
	})
	var rows [3]killRow
	for i, c := range changes {
		rows[i] = r.row(c, at[i])
	}
	r.old.server.Stop()
	r.want["backends"]--
	r.await("the old xDS server to be gone", func(st *reconcile.Status) bool {
		return groupOf(st, "backends").Connected == r.want["backends"]
	})
	r.old = r.new
	return rows
}

// table prints the rows.
func (r *killRig) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%3s  %-11s  %-28s  %8s  %8s  %6s  %6s  %-40s  %7s\n", "row", "change", "killed after", "restarts", "requests", "failed", "v2", "ended at", "seconds")
	requests, failed := 0, 0
	for i, row := range r.rows {
		where := "-"
		switch {
		case row.died != nil:
			where = fmt.Sprintf("%2d  %s", row.of, row.died)
		case row.of > 0:
			where = fmt.Sprintf("%2d  (there were only %d)", row.of, len(row.events))
		}
		requests += row.tally.Requests
		failed += row.tally.Failures
		fmt.Fprintf(&b, "%3d  %-11s  %-28s  %8d  %8d  %6d  %4.0f %%  %-40s  %7.2f\n", i+1, row.change, where, row.restarts,
			row.tally.Requests, row.tally.Failures, 100*row.share, row.ended, row.took.Seconds())
	}
	fmt.Fprintf(&b, "%d requests, %d failed", requests, failed)
	return b.String()
}

// finish ends the table: the store of the server that is killed for good says
// that everything is done.
func (r *killRig) finish() {
	r.t.Helper()
	r.t.Logf("\n%s", r.table())
	r.unfailed("the whole table", r.run.Stop())
	if n := r.proxy.nacks.Load(); n > 0 {
		r.t.Errorf("%d responses were refused", n)
	}
	r.proc.kill()
	st, err := checkStore(r.proc.store(), r.commit)
	if err != nil {
		r.t.Error(err)
	}
	for name, g := range st.Groups {
		if g.Target != nil {
			r.t.Errorf("the store has a rollout of group %s to %s under way", name, short(g.Target.Commit))
		}
	}
}

// Whenever the server is killed in a rollout, it ends at the target, and no
// request fails.
func TestKill(t *testing.T) {
	skipShort(t)
	limit := time.Minute
	if long {
		limit = 15 * time.Minute
	}
	r := newKillRig(t, limit)
	if !long {
		r.triple([3]int{6, 3, 2})
		r.finish()
		for i, row := range r.rows {
			if row.restarts != 1 {
				t.Errorf("row %d: %d restarts: want 1", i+1, row.restarts)
			}
		}
		return
	}
	// The first triple counts the events, each later one kills at the next.
	counts := [3]int{}
	for i, row := range r.triple([3]int{}) {
		counts[i] = len(row.events)
	}
	for k := range max(counts[0], counts[1], counts[2]) {
		r.triple([3]int{k%counts[0] + 1, k%counts[1] + 1, k%counts[2] + 1})
	}
	r.finish()
}
