//go:build e2e

package acceptance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
)

// Sizes of the measurement.
const (
	pushClients = 100
	pushCommits = 30
	pushRate    = 2                // requests a second of each client
	pushBound   = 10 * time.Second // for one commit: generous, only to end
)

// push is what one commit took, from the merge on.
type push struct {
	total  time.Duration // to the last ACK that was there when the group had converged
	tidied time.Duration // to the ACK of the last removal
	spent  reconcile.Spent
}

// wait is what no part of the work accounts for: the next look at the branch,
// and the store.
func (p push) wait() time.Duration {
	return p.total - p.spent.Fetch - p.spent.Compile - p.spent.Plan - p.spent.Push
}

// How long a route switch takes to reach a hundred clients, and where the time
// goes.
func TestPush(t *testing.T) {
	skipShort(t)
	r := newRig(t, 10*time.Minute)
	r.serve()
	label := func(i int) string { return fmt.Sprintf("v%d", i%2) }
	addr := [2]string{r.backend(label(0)), r.backend(label(1))}
	conf := func(i int) config { return to(fmt.Sprintf("svc-%02d", i), addr[i%2]) }
	r.merge("everything to svc-00", conf(0))
	r.clients(pushClients)
	r.settle()
	r.load(pushRate, label(0))
	r.requests(pushClients)
	var all []push
	for i := 1; i <= pushCommits; i++ {
		r.route.Only(label(i-1), label(i))
		r.merge("everything to svc-"+fmt.Sprintf("%02d", i), conf(i))
		st := r.settle()
		r.route.Only(label(i))
		g := groupOf(st, "frontends")
		p := push{total: g.OpenedAt.Add(g.Spent.Push).Sub(r.merged), spent: g.Spent}
		for _, n := range st.Nodes {
			p.tidied = max(p.tidied, n.AckedAt.Sub(r.merged))
		}
		if p.tidied > pushBound {
			t.Errorf("commit %d took %s: want %s at most", i, p.tidied, pushBound)
		}
		all = append(all, p)
	}
	total := r.run.Stop()
	t.Logf("%d clients, %d commits, %d requests, %d failed: %v\n%s", pushClients, pushCommits, total.Requests, total.Failures, total.Errors, pushTable(all))
	// A hundred clients share this machine with the server: a deadline that is
	// missed says more of it than of the server.
	for text, n := range total.Errors {
		if !strings.Contains(text, "DeadlineExceeded") {
			t.Errorf("%d requests failed: %s", n, text)
		}
	}
}

func pushTable(all []push) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-28s  %9s  %9s  %6s\n", "", "p50", "p99", "share")
	var total time.Duration
	for _, p := range all {
		total += p.total
	}
	line := func(name string, of func(push) time.Duration) {
		var sum time.Duration
		var ds []time.Duration
		for _, p := range all {
			ds = append(ds, of(p))
			sum += of(p)
		}
		slices.Sort(ds)
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		fmt.Fprintf(&b, "%-28s  %6.1f ms  %6.1f ms  %4.0f %%\n", name, ms(ds[len(ds)/2]), ms(ds[len(ds)*99/100]), 100*float64(sum)/float64(total))
	}
	line("merge to converged, last ACK", func(p push) time.Duration { return p.total })
	line("  waiting for the next poll", push.wait)
	line("  fetch", func(p push) time.Duration { return p.spent.Fetch })
	line("  compile", func(p push) time.Duration { return p.spent.Compile })
	line("  plan", func(p push) time.Duration { return p.spent.Plan })
	line("  push", func(p push) time.Duration { return p.spent.Push })
	line("merge to the last removal", func(p push) time.Duration { return p.tidied })
	return strings.TrimRight(b.String(), "\n")
}
