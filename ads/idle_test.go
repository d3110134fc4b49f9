package ads

import (
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"github.com/sluice-xds/sluice/schema"
)

// reports is a node's stream of load reports.
type reports struct {
	f *fleet
	s loadv3.LoadReportingService_StreamLoadStatsClient
}

func (f *fleet) reports() *reports { return &reports{f, f.reporter()} }

func (r *reports) send(stats ...*endpointv3.ClusterStats) {
	r.f.t.Helper()
	if err := r.s.Send(&loadv3.LoadStatsRequest{Node: &corev3.Node{Id: "n"}, ClusterStats: stats}); err != nil {
		r.f.t.Fatal(err)
	}
}

// asked expects the clusters of the next request for reports.
func (r *reports) asked(clusters ...string) {
	r.f.t.Helper()
	m, err := r.s.Recv()
	if err != nil || !slices.Equal(m.GetClusters(), clusters) {
		r.f.t.Fatalf("asked for %v, %v; want %v", m.GetClusters(), err, clusters)
	}
}

// leaving moves the routes of a node from a to b, which it has accepted.
func (f *fleet) leaving(c *client, busy bool) *schema.Target {
	to := &schema.Target{Drain: 0, PruneBusy: busy, Snapshot: f.snapshot(eds("b", "1"), res(edsT, "b", "1"), listener("l", "1", "r"), route("r", "2", "b"))}
	f.give(to)
	c.expect(cds, "a@1", "b@1")
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.expect(rds, "r@2")
	c.ask(rds, "r")
	return to
}

// A node whose reports go on to show requests keeps the cluster, and owes no more
// than that: its routes are accepted.
func TestR10ReportsKeepACluster(t *testing.T) {
	t.Parallel()
	f := newFleetWith(t, setup{limits: Limits{LoadEvery: time.Hour}}, first()...)
	r := f.reports()
	r.send()
	r.asked("a")
	c := f.envoy("n")
	f.leaving(c, false)
	waits := func(cause schema.Cause, requests uint64) {
		t.Helper()
		f.settled("n", func(s *schema.SessionRow) bool {
			return s.Converged && s.Step.Cause == cause && s.Step.On.Name == "a" && s.Step.Requests == requests
		})
	}
	waits(schema.Unreported, 0)
	r.send(clusterLoad("a", 1, 0)) // of the time of the change
	r.asked("a", "b")              // still a: it is not in the target, and the node has it
	waits(schema.Unreported, 0)
	for n := range uint64(3) {
		r.send(clusterLoad("a", 10, n), clusterLoad("b", 5, 0))
		waits(schema.Busy, 13+n) // three of them were dropped
	}
	c.quiet()
	row := f.settled("n", func(s *schema.SessionRow) bool { return true })
	if got, want := row.Step.String(), "waits until no requests go to clusters/a: 15 in the last load report"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.set(schema.Envoy, append(first(), eds("b", "1"), res(edsT, "b", "1"))...) // a prune never blocks a commit
	c.expect(rds, "r@1")
	c.ask(rds, "r")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
}

func TestR10PruneAfterACleanReport(t *testing.T) {
	t.Parallel()
	f := newFleetWith(t, setup{limits: Limits{LoadEvery: time.Second}}, first()...)
	r := f.reports()
	r.send()
	r.asked("a")
	c := f.envoy("n")
	f.leaving(c, false)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unreported })
	r.send()
	r.asked("a", "b")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unreported })
	r.send(clusterLoad("b", 1, 0))
	c.expect(cds, "b@1")
	c.ask(cds)
	r.send()
	r.asked("b")
}

// An allowance lets a cluster go that is kept already.
func TestR10AllowedWithRequests(t *testing.T) {
	t.Parallel()
	f := newFleetWith(t, setup{limits: Limits{LoadEvery: time.Hour}}, first()...)
	r := f.reports()
	r.send()
	r.asked("a")
	c := f.envoy("n")
	to := *f.leaving(c, false)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unreported })
	to.PruneBusy = true
	f.give(&to)
	c.expect(cds, "b@1")
}

// A node that comes back is waited for as before, and its streams are not mixed up.
func TestR10ComesBack(t *testing.T) {
	t.Parallel()
	f := newFleetWith(t, setup{limits: Limits{LoadEvery: time.Hour}}, first()...)
	r := f.reports()
	r.send()
	r.asked("a")
	for i := range 2 {
		c := f.envoy("n")
		row := f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
		sess := f.srv.of("n")
		if len(sess) != 1 || sess[0].id != row.ID {
			t.Fatalf("round %d: %d sessions of the node", i, len(sess))
		}
		sess[0].mu.Lock()
		due := sess[0].facts.Load.Until
		sess[0].mu.Unlock()
		if !due.After(time.Now()) {
			t.Errorf("round %d: no report is expected of a node that has a stream of them", i)
		}
		c.close()
		f.ended("n")
	}
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	if n := len(f.srv.nodes); n != 0 {
		t.Errorf("sessions of %d nodes are left", n)
	}
}

func TestRequestsOfTheNewestReports(t *testing.T) {
	l := newLedger()
	now := time.Unix(1e9, 0)
	report := func(node string, at time.Time, ws ...LoadWindow) {
		for i := range ws {
			ws[i].Node, ws[i].To = node, at
		}
		l.loads.add(l, ws)
		txn := l.db.Txn(true)
		l.loads.write(txn, windowsInAll)
		txn.Commit()
	}
	for i, group := range []string{"g", "g", "other", "g"} {
		node := string(rune('a' + i))
		l.update(schema.Node{ID: node}, func(r *schema.NodeRow) { r.Group = group })
	}
	report("a", now, LoadWindow{Cluster: "x", Issued: 100})
	report("a", now.Add(time.Second), LoadWindow{Cluster: "x", Issued: 1, Locality: "l1"}, LoadWindow{Cluster: "x", InProgress: 2, Locality: "l2"}, LoadWindow{Cluster: "z"})
	report("b", now, LoadWindow{Cluster: "x", Dropped: 4}, LoadWindow{Cluster: "y", Succeeded: 5, Failed: 6})
	report("c", now, LoadWindow{Cluster: "x", Issued: 7})
	report("d", now.Add(-time.Minute), LoadWindow{Cluster: "x", Issued: 1000})
	report("stranger", now, LoadWindow{Cluster: "x", Issued: 1000})
	want := []ClusterLoad{{"g", "x", 7, 2}, {"g", "y", 11, 1}, {"other", "x", 7, 1}}
	if got := (View{l.db.Txn(false)}).Requests(now.Add(-time.Second)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
