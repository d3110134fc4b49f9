package main

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A plan against a server says of what it removes that nodes report requests to
// it, if it is no route that sends them.
func TestPlanTellsOfLoad(t *testing.T) {
	f := newShop(t)
	const raw = "\nresources: clusters: %s: {groups: [\"edge\"], type: \"STATIC\", connect_timeout: \"1s\"}\n"
	spare := fmt.Sprintf(raw, "spare")
	quiet := fmt.Sprintf(raw, "quiet")
	must(t, replaceIn(f.file(), "\ntests: {", spare+quiet+"\ntests: {"))
	first := commit(t, f.repo)
	running, stop := f.serve()
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	connect(t, running.XDS, "edge-1")
	await(t, `^edge .*converged +- +1 +1 +1 +0$`, "status", "--server", f.socket)

	conn, err := grpc.NewClient(running.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	s, err := loadv3.NewLoadReportingServiceClient(conn).StreamLoadStats(t.Context())
	must(t, err)
	report := func(stats ...*endpointv3.ClusterStats) {
		must(t, s.Send(&loadv3.LoadStatsRequest{Node: &corev3.Node{Id: "edge-1"}, ClusterStats: stats}))
	}
	load := func(cluster string, n uint64) *endpointv3.ClusterStats {
		return &endpointv3.ClusterStats{
			ClusterName:           cluster,
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{Locality: &corev3.Locality{}, TotalIssuedRequests: n, TotalSuccessfulRequests: n}},
		}
	}
	report()
	report(load("spare", 12), load("cart-v2", 40))
	must(t, replaceIn(f.file(), spare, ""))
	must(t, replaceIn(f.file(), quiet, ""))
	must(t, replaceIn(f.file(), f.split, `service: "cart", timeout`))
	must(t, replaceIn(f.file(), `expect: split: {cart: 90, "cart-v2": 10}`, `expect: service: "cart"`))
	await(t, `nodes report 12 requests to it`, "plan", "--server", f.socket, f.repo)
	f.call(readOpenAPI(t), 200, "GET", "/v1/loads", "/v1/loads", "")
	out := cli(t, 0, "plan", "--server", f.socket, f.repo)
	if n := strings.Count(out, "prune-with-traffic"); n != 1 {
		t.Errorf("%d clusters are said to be removed with traffic:\n%s", n, out)
	}
}
