package ads

import (
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-xds/sluice/schema"
)

func (f *fleet) reporter() loadv3.LoadReportingService_StreamLoadStatsClient {
	f.t.Helper()
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	s, err := loadv3.NewLoadReportingServiceClient(conn).StreamLoadStats(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func clusterLoad(name string, ok, failed uint64) *endpointv3.ClusterStats {
	return &endpointv3.ClusterStats{
		ClusterName: name, LoadReportInterval: durationpb.New(5 * time.Second), TotalDroppedRequests: 3,
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality: &corev3.Locality{Region: "eu", Zone: "a"}, TotalSuccessfulRequests: ok, TotalErrorRequests: failed, TotalIssuedRequests: ok + failed,
		}},
	}
}

func TestLRSAsksForTheGroupsClusters(t *testing.T) {
	f := newFleetWith(t, setup{limits: Limits{LoadEvery: 7 * time.Second}}, first()...)
	s := f.reporter()
	node := &corev3.Node{Id: "n"}
	send := func(stats ...*endpointv3.ClusterStats) {
		t.Helper()
		if err := s.Send(&loadv3.LoadStatsRequest{Node: node, ClusterStats: stats}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(clusters ...string) {
		t.Helper()
		r, err := s.Recv()
		if err != nil || fmt.Sprint(r.Clusters) != fmt.Sprint(clusters) || r.SendAllClusters || r.LoadReportingInterval.AsDuration() != 7*time.Second {
			t.Fatalf("got %v, %v; want %v", r, err, clusters)
		}
	}
	send()
	expect("a")
	send(clusterLoad("a", 10, 2))
	deadline := time.After(10 * time.Second)
	for len(f.srv.View().Loads("", "")) < 2 {
		select {
		case <-f.srv.Changes():
		case <-deadline:
			t.Fatalf("the ledger has %v", f.srv.View().Loads("", ""))
		}
	}
	got := f.srv.View().Loads("n", "a")
	if w := got[1]; w.Locality != "eu/a" || w.Succeeded != 10 || w.Failed != 2 || w.Issued != 12 || w.To.Sub(w.From) != 5*time.Second {
		t.Errorf("got %+v", w)
	}
	if w := got[0]; w.Dropped != 3 || w.Locality != "" {
		t.Errorf("got %+v", w)
	}
	if n := len(f.srv.View().Loads("n", "other")) + len(f.srv.View().Loads("m", "")); n != 0 {
		t.Errorf("%d windows of nobody", n)
	}
	f.set(schema.Envoy, append(first(), eds("b", "1"), res(edsT, "b", "1"))...)
	send(clusterLoad("a", 1, 0))
	expect("a", "b") // the group's clusters have changed
}

func TestLRSSendAllClusters(t *testing.T) {
	f := newFleet(t, first()...)
	s := f.reporter()
	if err := s.Send(&loadv3.LoadStatsRequest{Node: &corev3.Node{Id: "n", ClientFeatures: []string{sendAll}}}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || !r.SendAllClusters || len(r.Clusters) != 0 {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestLRSNeedsANode(t *testing.T) {
	f := newFleet(t)
	s := f.reporter()
	if err := s.Send(&loadv3.LoadStatsRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err == nil {
		t.Error("a report of nobody is taken")
	}
}

// The ring forgets the oldest: of a node that reports often, and of all.
func TestLRSRing(t *testing.T) {
	l := newLedger()
	now := time.Unix(1e9, 0)
	report := func(node string, n int) {
		l.loads.add(l, []LoadWindow{{Node: node, Cluster: "a", Issued: uint64(n), To: now.Add(time.Duration(n) * time.Second)}})
		txn := l.db.Txn(true)
		l.loads.write(txn, 2*reportsPerNode)
		txn.Commit()
	}
	for i := range 20 {
		report("busy", i)
	}
	if got := (View{l.db.Txn(false)}).Loads("busy", ""); len(got) != reportsPerNode || got[0].Issued != 20-reportsPerNode {
		t.Errorf("of the busy node: %v", got)
	}
	before := View{l.db.Txn(false)}
	for i := range 20 {
		report(fmt.Sprint("n", i), 100+i)
	}
	all := (View{l.db.Txn(false)}).Loads("", "")
	if len(all) != 2*reportsPerNode || len(l.loads.order) != len(all) || l.loads.windows != len(all) {
		t.Errorf("%d windows, %d in order, %d counted", len(all), len(l.loads.order), l.loads.windows)
	}
	for _, w := range all {
		if w.Node == "busy" {
			t.Errorf("kept the oldest: %+v", w)
		}
	}
	if len(before.Loads("busy", "")) != reportsPerNode {
		t.Error("an old view has changed")
	}
}
