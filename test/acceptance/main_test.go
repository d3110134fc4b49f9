package acceptance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
)

// binary is the sluice that the tests run.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if testing.Short() {
		return m.Run() // every test skips itself
	}
	dir, err := os.MkdirTemp("", "sluice-acceptance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", "build", "-o", binary, "github.com/sluice-xds/sluice/cmd/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build sluice: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if left := leftovers(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left behind:\n%s\n", strings.Join(left, "\n"))
		return 1
	}
	return code
}

// skipShort leaves a test out of `make check`.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: it runs the real server, and is left out with -short")
	}
}

// children are the processes that were started and not yet waited for.
var children = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// leftovers lists what the tests have not stopped: processes, and goroutines of
// this module. grpc-go winds its own down soon after a Close.
func leftovers() []string {
	var left []string
	children.Lock()
	for pid := range children.pids {
		if syscall.Kill(pid, 0) == nil {
			left = append(left, fmt.Sprintf("process %d", pid))
		}
	}
	children.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var ours []string
	_ = poll(ctx, func() (bool, error) {
		ours = goroutines()
		return len(ours) == 0, nil
	})
	return append(left, ours...)
}

// goroutines gives the stacks that run code of this module, but for this one.
func goroutines() []string {
	buf := make([]byte, 4<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	var ours []string
	for _, g := range all[1:] { // the first is the caller's
		if strings.Contains(g, "sluice-xds/sluice/") {
			ours = append(ours, g)
		}
	}
	return ours
}

// poll asks again and again until cond holds, fails, or ctx ends.
func poll(ctx context.Context, cond func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := cond(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// groupOf finds a group in a status.
func groupOf(st *reconcile.Status, name string) *reconcile.GroupStatus {
	for i := range st.Groups {
		if st.Groups[i].Name == name {
			return &st.Groups[i]
		}
	}
	return &reconcile.GroupStatus{Name: name}
}
