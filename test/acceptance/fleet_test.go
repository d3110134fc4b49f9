package acceptance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/test/fleet"
)

// edge is a commit's worth of a fleet of proxies: everything goes to the service of
// one generation, and something to each of two that stay.
func edge(generation int) map[string]string {
	return map[string]string{file: fmt.Sprintf(`package mesh

import "github.com/sluice-xds/sluice/schema"

groups: edge: schema.#Group & {client: "envoy", match: id: "edge-*", rollout: drain: "50ms"}
listeners: web: schema.#Listener & {groups: ["edge"], bind: "127.0.0.1:8080"}
routes: shop: schema.#Routes & {
	listeners: ["web"]
	hosts: ["shop.example.com"]
	rules: [
		{match: prefix: "/cart", service: "cart"},
		{match: prefix: "/user", service: "user"},
		{match: prefix: "/", service: "web-%[1]d"},
	]
}
services: {
	"web-%[1]d": schema.#Service & {endpoints: [{address: "10.0.0.%[1]d:8080"}]}
	cart: schema.#Service & {endpoints: [{address: "10.0.1.1:%[2]d"}]}
	user: schema.#Service & {endpoints: [{address: "10.0.2.1:8080"}], connect_timeout: "%[3]ds"}
}
`, generation, 8000+generation, 1+generation/2)}
}

// The real server walks a hundred proxies of both variants, quick and slow, through
// commits, a restart of its own and a storm, and none of them sees a breach.
func TestFleetSeesNoBreach(t *testing.T) {
	skipShort(t)
	r := newRig(t, time.Minute)
	r.serve()
	r.mergeFiles("generation 1", edge(1))
	f, err := fleet.Start(fleet.Config{
		Addr: r.addr, Clients: 100, Delta: 0.5, Prefix: "edge", Restarts: true,
		Mix: []fleet.Share{{Parts: 3}, {Parts: 1, Script: fleet.Script{Delay: 10 * time.Millisecond}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	// seen waits for every node to be at a generation, and to have tidied up.
	seen := func(generation int) {
		t.Helper()
		to, gone := fmt.Sprintf("web-%d", generation), fmt.Sprintf("web-%d", generation-1)
		if err := f.Await(r.ctx, func(n fleet.Node) bool {
			return n.Complete() && n.SendsTo(to) && !n.HasCluster(gone)
		}); err != nil {
			t.Fatal(err)
		}
	}
	seen(1)
	for generation := 2; generation <= 4; generation++ {
		r.mergeFiles(fmt.Sprintf("generation %d", generation), edge(generation))
		if generation == 3 {
			f.Storm()
		}
		seen(generation)
	}
	r.proc.kill()
	r.mergeFiles("generation 5", edge(5))
	r.restart()
	seen(5)
	f.Rest()
	report := f.Stop()
	var text strings.Builder
	report.Write(&text)
	t.Log(text.String())
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}
