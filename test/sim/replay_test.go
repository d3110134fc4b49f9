//go:build e2e

package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/test/dataplane"
)

var replays = flag.Int("replays", 10, "how many seeds to replay on each real client")

// tries is how often a race is played until it is seen: its window is shorter
// than the time between two requests.
const tries = 40

// The model and the client agree, seed by seed, on whether requests fail.
func TestReplay(t *testing.T) {
	for _, k := range []struct {
		driver  dataplane.Driver
		client  schema.Client
		backend func(string) (*dataplane.Server, error)
	}{
		{dataplane.GRPCGo{}, schema.GRPC, dataplane.StartPlain},
		{dataplane.MOSN{}, schema.Envoy, dataplane.StartHTTP},
	} {
		t.Run(k.driver.Name(), func(t *testing.T) {
			if i, ok := k.driver.(dataplane.Installed); ok && i.Missing() != "" {
				t.Skip(i.Missing())
			}
			s := newStage(t, k.driver, k.client, k.backend)
			var table strings.Builder
			w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "seed\tchange\torder\tmodel\tfailed\trequests\ttries\t")
			t.Cleanup(func() {
				_ = w.Flush()
				fmt.Fprintf(os.Stdout, "%s\n%s", k.driver.Name(), &table)
			})
			sums := map[string]int{}
			for n := range uint64(*replays) {
				s.compare(*first+n, w, sums)
			}
			t.Logf("%s: %d seeds: %v", k.driver.Name(), *replays, sums)
			if *replays >= 10 && sums["failed"] == 0 {
				t.Error("no wrong order is seen to fail: the client is not under load")
			}
		})
	}
}

// compare plays one seed to the model and to the client.
func (s *stage) compare(seed uint64, w *tabwriter.Writer, sums map[string]int) {
	s.t.Helper()
	r := draw(seed, fmt.Sprintf("s%d", seed))
	model, why := modelled(s.t, r, s.team.client)
	most := 1
	if model == raced {
		most = tries
	}
	var got dataplane.Tally
	n := 0
	for n < most && got.Failures == 0 {
		n++
		r = draw(seed, fmt.Sprintf("s%d-%d", seed, n))
		var way dataplane.Tally
		way, got = s.play(r)
		switch {
		case way.Failures > 0 && s.unlisted: // an aftermath, that docs/simulation.md tells of
			sums["requests failed after a listener came back"] += way.Failures
			s.t.Logf("seed %d: after a listener came back %d of %d requests fail on the way to it: %v", seed, way.Failures, way.Requests, way.Errors)
		case way.Failures > 0:
			s.t.Errorf("seed %d: %d of %d requests fail on the way to it, in order: %v", seed, way.Failures, way.Requests, way.Errors)
		}
		s.unlisted = r.order.name == noListener
	}
	fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", seed, r.words, r.order.name, model, got.Failures, got.Requests, n, why)
	sums[fmt.Sprintf("model %s, client %t", model, got.Failures > 0)]++
	if got.Failures > 0 {
		sums["failed"]++
	}
	if r.order.plan == nil {
		sums["proved"]++
	}
	if (got.Failures > 0) != (model != unharmed) {
		s.t.Errorf("seed %d: %s, %s: the model says %s (%s), and of %d requests %d failed: %v",
			seed, r.words, r.order.name, model, why, got.Requests, got.Failures, got.Errors)
	}
}
