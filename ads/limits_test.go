package ads

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"

	"github.com/sluice-xds/sluice/schema"
)

func numbered(from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprint("n", i))
	}
	return names
}

func TestX05NamesOfASubscription(t *testing.T) {
	log := &logLines{}
	f := newFleetWith(t, setup{limits: Limits{Names: 100}, log: log}, res(rds, "n1", "1"))
	t.Run("state of the world", func(t *testing.T) {
		c := f.dial("s")
		c.ask(rds, numbered(0, 100)...)
		c.expect(rds, "n1@1")
		c.ask(rds, numbered(0, 101)...)
		c.ends("ResourceExhausted desc = a subscription to 101 routes: the limit is 100 names")
	})
	t.Run("delta", func(t *testing.T) {
		c := f.deltaDial("d")
		c.sub(rds, numbered(0, 60)...)
		gone := numbered(0, 60)
		c.t = t
		r, err := c.stream.Recv()
		if err != nil || len(r.RemovedResources) != len(gone)-1 {
			t.Fatalf("%v, %v", r, err)
		}
		c.sub(rds, numbered(0, 60)...) // the same again counts once
		c.quiet()
		c.sub(rds, numbered(50, 101)...)
		for err == nil {
			_, err = c.stream.Recv()
		}
		if !strings.Contains(err.Error(), "the limit is 100 names") {
			t.Error(err)
		}
	})
	f.over(Greedy, 2)
	if n := log.count("the limit is 100 names"); n != 2 {
		t.Errorf("logged %d times", n)
	}
}

// A first request with as many names as the limit is answered at once.
func TestX05ManyNamesAreNoWork(t *testing.T) {
	f := newFleet(t, res(rds, "n1", "1"))
	c := f.deltaDial("d")
	start := time.Now()
	c.sub(rds, numbered(0, 100_000)...)
	if _, err := c.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	c.raw(rds, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: numbered(0, 100_000)})
	c.quiet()
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %s", d)
	}
}

func TestX05RequestsASecond(t *testing.T) {
	log := &logLines{}
	f := newFleetWith(t, setup{limits: Limits{Requests: 100, Burst: 5}, log: log}, res(rds, "r", "1"), res(cds, "a", "1"))
	flood, other := f.dial("flood"), f.dial("other")
	for i := range 50 {
		flood.raw(&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), ResourceNames: []string{"r", fmt.Sprint("x", i)}})
	}
	flood.expect(rds, "r@1")
	other.ask(cds)
	other.expect(cds, "a@1")
	flood.ask(rds, "r")
	flood.ask(cds)
	flood.expect(cds, "a@1") // late, but served
	if n := f.srv.Stats().Delayed.Load(); n < 5 || log.count("requests delayed") != 1 {
		t.Errorf("delayed %d, logged %d times", n, log.count("requests delayed"))
	}
}

// deaf opens a stream whose client asks for clusters and reads nothing.
func (f *fleet) deaf(node string) *client {
	c := f.dial(node)
	c.ask(cds)
	f.typed(node, cds, func(r *schema.TypeRow) bool { return r.InFlight })
	c.ask(edsT, "a")
	f.typed(node, edsT, func(r *schema.TypeRow) bool { return r.InFlight })
	return c
}

func TestX05AClientThatDoesNotRead(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	f := newFleet(t, res(cds, "a", "1"+big), res(edsT, "a", "1"+big))
	f.deaf("deaf")
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var others []*client
	for i := range 99 {
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: t, node: fmt.Sprint("n", i), stream: s, last: map[schema.Type]*discoveryv3.DiscoveryResponse{}, nonces: map[string]bool{}, acked: map[schema.Type]string{}}
		c.ask(rds, "r")
		others = append(others, c)
	}
	for v := range 5 {
		word := fmt.Sprint(v)
		f.set(schema.Envoy, res(cds, "a", word+big), res(edsT, "a", word+big), res(rds, "r", word))
		for _, c := range others {
			c.expect(rds, "r@"+word)
			c.ask(rds, "r")
		}
		f.srv.Live(schema.SnapshotOf(res(edsT, "a", word+"again"+big)))
	}
}

func TestX05WatchdogEndsAClientThatDoesNotRead(t *testing.T) {
	log := &logLines{}
	big := strings.Repeat("x", 1<<20)
	f := newFleetWith(t, setup{limits: Limits{Stall: time.Second}, log: log}, res(cds, "a", big), res(edsT, "a", big), res(rds, "r", "1"))
	slow := f.dial("slow") // reads, and acknowledges nothing
	slow.ask(rds, "r")
	slow.expect(rds, "r@1")
	f.deaf("deaf")
	f.ended("deaf")
	f.over(Stalled, 1)
	if n := log.count("its client does not read"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	slow.quiet()
}

// ended waits until a node has no session.
func (f *fleet) ended(node string) {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	for f.sessions(node) > 0 {
		select {
		case <-f.srv.Changes():
		case <-deadline:
			f.t.Fatalf("%s has %d sessions", node, f.sessions(node))
		}
	}
}

// A peer that is gone without a word is noticed.
func TestX05HalfOpenConnection(t *testing.T) {
	f := newFleetWith(t, setup{opts: []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: 100 * time.Millisecond}),
	}}, res(cds, "a", "1"))
	cut := f.proxy()
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Planned })
	close(cut)
	f.ended("n")
}

// proxy puts itself before the server. After cut it forwards nothing, and closes
// nothing.
func (f *fleet) proxy() (cut chan struct{}) {
	f.t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	to := f.addr
	f.addr = lis.Addr().String()
	cut = make(chan struct{})
	var done sync.WaitGroup
	var mu sync.Mutex
	conns := []io.Closer{lis}
	pipe := func(dst, src net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			if err != nil {
				return
			}
			select {
			case <-cut:
				continue
			default:
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	done.Go(func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				f.t.Error(err)
				return
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			done.Go(func() { pipe(out, in) })
			done.Go(func() { pipe(in, out) })
		}
	})
	f.t.Cleanup(func() {
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		done.Wait()
	})
	return cut
}

func TestX05NewStreamsASecond(t *testing.T) {
	f := newFleetWith(t, setup{limits: Limits{Streams: 1, StreamBurst: 2}}, res(cds, "a", "1"))
	for i := range 2 {
		c := f.dial(fmt.Sprint("n", i))
		c.ask(cds)
		c.expect(cds, "a@1")
	}
	c := f.dial("late")
	c.ask(cds)
	c.ends("Unavailable desc = more than 1 streams a second: come back later")
	f.over(Crowded, 1)
}

func TestX05SessionsOfANode(t *testing.T) {
	f := newFleetWith(t, setup{limits: Limits{PerNode: 2}}, res(cds, "a", "1"))
	for range 2 {
		c := f.dial("n")
		c.ask(cds)
		c.expect(cds, "a@1")
	}
	c := f.dial("n")
	c.ask(cds)
	c.ends("ResourceExhausted")
	if n := f.srv.View().Nodes()[0].Sessions; n != 2 {
		t.Errorf("the row counts %d sessions", n)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (rawCodec) Name() string                         { return "proto" }

func TestX05GarbageAndHugeRequests(t *testing.T) {
	f := newFleet(t, res(cds, "a", "1"))
	good := f.dial("good")
	good.ask(cds)
	good.expect(cds, "a@1")
	for name, msg := range map[string][]byte{"garbage": []byte("\xff\xff\xffnot a request"), "huge": make([]byte, MaxRequest+1)} {
		t.Run(name, func(t *testing.T) {
			s, _ := f.open(method(aggregated, false), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
			if err := s.SendMsg(msg); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if err := s.RecvMsg(nil); err == nil {
				t.Error("it is answered")
			}
		})
	}
	f.over(Garbage, 2)
	good.quiet()
}
