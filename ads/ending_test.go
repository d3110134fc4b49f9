package ads

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-xds/sluice/schema"
)

func TestDrain(t *testing.T) {
	f := newFleet(t, res(cds, "a", "1"))
	var cs []*client
	for i := range 20 {
		c := f.dial(fmt.Sprint("n", i))
		c.ask(cds)
		c.expect(cds, "a@1")
		cs = append(cs, c)
	}
	d := f.deltaDial("d")
	d.sub(cds)
	d.expect(cds, "a@1")
	op, err := f.operator().StreamClientStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Send(&statusv3.ClientStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := op.Recv(); err != nil {
		t.Fatal(err)
	}
	const over = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), over*5/4)
	defer cancel()
	start := time.Now()
	ends := make(chan time.Duration, len(cs))
	for _, c := range cs {
		go func() {
			c.ends("Unavailable desc = the server is going away")
			ends <- time.Since(start)
		}()
	}
	if err := f.srv.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	var first, last time.Duration
	for i := range cs {
		at := <-ends
		if i == 0 {
			first = at
		}
		last = max(last, at)
	}
	if last-first < over/2 {
		t.Errorf("all ended within %s", last-first)
	}
	if _, err := d.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the delta stream ended with %v", err)
	}
	if _, err := op.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the operator's stream ended with %v", err)
	}
	if n := len(f.srv.View().Sessions()); n != 0 {
		t.Errorf("%d sessions left", n)
	}
	// It is refused before it asks for anything.
	f.dial("late").ends("Unavailable desc = the server is going away")
	if err := f.srv.Drain(t.Context()); err != nil { // nothing is left
		t.Error(err)
	}
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	f := newFleet(t, res(cds, "a", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.srv.Drain(ctx); err == nil {
		t.Error("drained without time")
	}
}

// No goroutine of a stream is left when it has ended: of streams that ended well,
// of one whose client does not read, and of the server itself.
func TestNoGoroutineIsLeft(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		big := strings.Repeat("x", 1<<20)
		f := newFleet(t, append(first(), res(cds, "big", big))...)
		var cs []*client
		for i := range 10 {
			c := f.dial(fmt.Sprint("n", i))
			c.ask(cds) // and reads nothing
			c.ask(edsT, "a")
			cs = append(cs, c)
		}
		for i := range cs {
			f.typed(fmt.Sprint("n", i), cds, func(r *schema.TypeRow) bool { return r.InFlight })
		}
		f.srv.Live(schema.SnapshotOf(res(edsT, "a", big)))
		d := f.deltaDial("d")
		d.sub(rds, "r")
		d.expect(rds, "r@1")
		d.close()
		for _, c := range cs {
			c.close()
		}
		for i := range cs {
			f.ended(fmt.Sprint("n", i))
		}
		f.ended("d")
	})
	if left := leftOver(); left != "" {
		t.Errorf("left over:\n%s", left)
	}
}

// TestMain finds what any of the tests has left behind: each has stopped its gRPC
// server and closed ours, which waits for all that it started.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftOver(); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left over:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftOver are the stacks of this package's goroutines, but for those of tests.
func leftOver() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "sluice/ads.") && !strings.Contains(g, "ads.TestMain") && !strings.Contains(g, "testing.tRunner") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}
