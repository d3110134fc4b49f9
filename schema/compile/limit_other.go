//go:build !linux

package compile

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// limitMemory is the parent's work here: see watchMemory.
func limitMemory(int64) error { return nil }

// watchMemory calls kill once a process holds more than so many bytes. It ends
// with the context.
func watchMemory(ctx context.Context, pid int, bytes int64, kill func()) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		out, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
		if err != nil {
			continue
		}
		if kb, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64); err == nil && kb<<10 > bytes {
			kill()
			return
		}
	}
}
