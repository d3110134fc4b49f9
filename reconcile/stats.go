package reconcile

import (
	"sync/atomic"

	"github.com/sluice-xds/sluice/ads"
)

// Stats counts what a loop did since it started. It may be read at any time.
type Stats struct {
	Polls      ads.Histogram // looks at the branch, good or bad
	PollErrors atomic.Uint64
	Compiles   ads.Histogram // of commits, good or bad
	Rejected   atomic.Uint64 // commits that do not compile
	Rollouts   ads.Histogram // from the opening of a group's rollout to its convergence
	Halts      atomic.Uint64
}

// Stats are the loop's counters.
func (l *Loop) Stats() *Stats { return &l.stats }
