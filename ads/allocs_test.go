package ads

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
)

// maxAllocs is how many allocations an update of a node may cost in this package,
// from changed endpoints to the ACK that was taken in: the response, and the version
// that a state-of-the-world ACK repeats; the half is for what grows now and then.
// What gRPC allocates for the two messages is not among them, nor in our hands.
var maxAllocs = map[*variant]float64{delta: 1.5, sotw: 2.5}

// looped is a stream without a transport: what is sent is encoded, and the test
// says what comes in.
type looped struct {
	grpc.ServerStream
	in   chan mem.BufferSlice
	sent chan uint64 // nonces
}

func (l *looped) Context() context.Context { return context.Background() }

func (l *looped) SendMsg(m any) error {
	data, err := Codec().Marshal(m)
	if err != nil {
		return err
	}
	data.Free()
	l.sent <- m.(*response).nonce
	return nil
}

func (l *looped) RecvMsg(m any) error {
	b, ok := <-l.in
	if !ok {
		return io.EOF
	}
	return Codec().Unmarshal(b, m)
}

// CI holds allocations: they are the same on every machine, and times are not.
func TestAllocationsOfAnUpdate(t *testing.T) {
	const nodes, runs = 64, 50
	for _, of := range []*variant{sotw, delta} {
		t.Run(map[*variant]string{sotw: "sotw", delta: "delta"}[of], func(t *testing.T) {
			f := newFleet(t, first()...)
			var streams []*looped
			var done sync.WaitGroup
			for i := range nodes {
				l := &looped{in: make(chan mem.BufferSlice), sent: make(chan uint64, 1)}
				done.Go(func() { _ = f.srv.serve(l, of, aggregated) })
				streams = append(streams, l)
				l.in <- endpointsRequest(t, of, &corev3.Node{Id: fmt.Sprint(i)}, 0, "")
				if nonce := <-l.sent; nonce != 1 {
					t.Fatalf("the first nonce is %d", nonce)
				}
			}
			defer func() {
				for _, l := range streams {
					close(l.in)
				}
				done.Wait()
			}()
			// What is not of an update is made before: contents, and the ACKs of
			// the nonces that are to come.
			contents := []schema.Snapshot{schema.SnapshotOf(first()[1]), schema.SnapshotOf(res(edsT, "a", "other"))}
			var acks []mem.BufferSlice
			for i := range runs + 3 {
				acks = append(acks, endpointsRequest(t, of, nil, uint64(i), contents[(i+1)%2].Of(edsT).Version()))
			}
			nonce := uint64(1)
			got := testing.AllocsPerRun(runs, func() {
				for _, l := range streams {
					l.in <- acks[nonce]
				}
				nonce++
				f.srv.Live(contents[(nonce+1)%2])
				for _, l := range streams {
					if n := <-l.sent; n != nonce {
						t.Errorf("nonce %d was sent, want %d", n, nonce)
					}
				}
			}) / nodes
			t.Logf("%.2f allocations an update and node", got)
			if got > maxAllocs[of] && !raced {
				t.Errorf("an update of a node costs %.2f allocations: want %.1f at most", got, maxAllocs[of])
			}
		})
	}
}

// endpointsRequest asks for the endpoints of a, or acknowledges them.
func endpointsRequest(t *testing.T, of *variant, node *corev3.Node, nonce uint64, version schema.Version) mem.BufferSlice {
	t.Helper()
	answers := ""
	if nonce > 0 {
		answers = formatNonce(nonce)
	}
	m := proto.Message(&discoveryv3.DiscoveryRequest{
		Node: node, TypeUrl: edsT.URL(), ResourceNames: []string{"a"}, ResponseNonce: answers, VersionInfo: string(version),
	})
	if of == delta {
		d := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: edsT.URL(), ResponseNonce: answers}
		if nonce == 0 {
			d.ResourceNamesSubscribe = []string{"a"}
		}
		m = d
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}
}

// What is picked by following changes is what is picked anew.
func TestPickFollowsChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sub := &subscription{Subscription: schema.Subscription{Names: []string{"a", "c", "e", "g"}}}
	var set schema.Set
	for i := range 2000 {
		changes := 1 + rng.IntN(3)
		if i%50 == 0 {
			changes = 40
		}
		for range changes {
			name := string(rune('a' + rng.IntN(8)))
			if changes == 40 {
				name = fmt.Sprint(rng.IntN(60))
			}
			if rng.IntN(3) == 0 {
				set = set.Without(name)
			} else {
				set = set.With(res(edsT, name, fmt.Sprint(rng.IntN(4))))
			}
		}
		if got, want := sub.pick(set), sub.Select(set); !got.Equal(want) {
			t.Fatalf("step %d: picked %d resources, want %d of another sum", i, got.Len(), want.Len())
		}
	}
}
