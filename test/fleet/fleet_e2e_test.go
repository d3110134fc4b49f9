//go:build e2e

package fleet

import (
	"testing"
	"time"
)

// The same with a thousand clients.
func TestFleetOfAThousand(t *testing.T) { rollouts(t, 1000, 8, 2*time.Minute) }
