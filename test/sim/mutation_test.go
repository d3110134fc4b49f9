package sim

import (
	"strings"
	"testing"
)

// within is how many histories a fault may take to be found.
const within = 400

// Each fault is found, in a history that goes well without it.
func TestFaultsAreFound(t *testing.T) {
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			for n := uint64(1); n <= within; n++ {
				err := run(t, n, f)
				if err == nil || err.holes == 0 && !strings.Contains(err.what, "turn") || run(t, n, fault{}) != nil {
					continue
				}
				t.Logf("| %s | %d | %s |", f.name, n, err.what)
				return
			}
			t.Errorf("%d histories do not find it", within)
		})
	}
}
