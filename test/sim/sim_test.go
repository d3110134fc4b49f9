package sim

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
)

var (
	seed      = flag.Uint64("seed", 0, "live through the history of this seed alone, and print it")
	histories = flag.Int("histories", 200, "how many histories to live through")
	stop      = flag.Int("stop", 1, "after how many that go wrong to stop")
	first     = flag.Uint64("first", 1, "the first seed")
	strict    = flag.Bool("strict", false, "a halt that nothing mends is wrong, too")
)

// No request is black-holed, whatever happens.
func TestHistories(t *testing.T) {
	if *seed > 0 {
		err := run(t, *seed, fault{})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var next atomic.Uint64
	var wrong atomic.Int64
	next.Store(*first)
	t.Cleanup(func() {
		t.Logf("%d histories, %d of them end in a halt that does not mend: %d", *histories, len(halts.seeds), halts.seeds)
	})
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for s := next.Add(1) - 1; s < *first+uint64(*histories) && wrong.Load() < int64(*stop); s = next.Add(1) - 1 {
				if err := run(t, s, fault{}); err != nil {
					wrong.Add(1)
					t.Error(err)
				}
			}
		})
	}
}
