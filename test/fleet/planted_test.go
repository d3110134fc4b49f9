package fleet

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema/envoy"
)

// turn is what a scripted server sends, and what it waits for before: the next
// request of a kind, or none.
type turn struct {
	after   kind // of the request; now for none
	k       kind
	nonce   string // drawn anew if empty; "none" for an empty one
	ms      []proto.Message
	removed []string
}

const now = kinds

// on answers the next request of a kind with all of ms.
func on(after kind, ms ...proto.Message) turn { return turn{after: after, k: after, ms: ms} }

// push sends ms of a kind unasked.
func push(k kind, ms ...proto.Message) turn { return turn{after: now, k: k, ms: ms} }

// start is a fair conversation, up to the ACK of the routes.
func start() []turn {
	return []turn{
		on(clusters, cluster("a", 1)), on(endpoints, hosts("a", 1)),
		on(listeners, listener("l", "r", 80)), on(routes, table("r", "a")),
	}
}

// badServer plays turns to whoever connects, and then says nothing more.
type badServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	turns []turn
	done  chan struct{}
}

func (b *badServer) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return b.play(s.Context(), func() (string, error) {
		m, err := s.Recv()
		return m.GetTypeUrl(), err
	}, func(t turn, nonce string) error {
		m := &discoveryv3.DiscoveryResponse{TypeUrl: urls[t.k], Nonce: nonce, VersionInfo: "v" + nonce}
		for _, r := range t.ms {
			m.Resources = append(m.Resources, packed(r))
		}
		return s.Send(m)
	})
}

func (b *badServer) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return b.play(s.Context(), func() (string, error) {
		m, err := s.Recv()
		return m.GetTypeUrl(), err
	}, func(t turn, nonce string) error {
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: urls[t.k], Nonce: nonce, RemovedResources: t.removed}
		for _, r := range t.ms {
			a := packed(r)
			m.Resources = append(m.Resources, &discoveryv3.Resource{Name: envoy.NameOf(r), Version: fmt.Sprintf("%x", a.Value), Resource: a})
		}
		return s.Send(m)
	})
}

// packed encodes alike what is alike.
func packed(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err)
	}
	return a
}

// play waits for requests and sends. An answer is a request like all others, so a
// turn that waits for a kind comes at the next word of it. When everything was sent,
// it says so.
func (b *badServer) play(ctx context.Context, recv func() (url string, err error), send func(turn, string) error) error {
	for i, t := range b.turns {
		for heard := now; heard != t.after; {
			url, err := recv()
			if err != nil {
				return err
			}
			heard, _ = kindOf(url)
		}
		nonce := t.nonce
		switch nonce {
		case "":
			nonce = fmt.Sprint(i + 1)
		case "none":
			nonce = ""
		}
		if err := send(t, nonce); err != nil {
			return err
		}
	}
	close(b.done)
	<-ctx.Done()
	return ctx.Err()
}

// Each thing that a server can do wrong is found, and said with the conversation.
func TestPlantedBreaches(t *testing.T) {
	for _, c := range []struct {
		name  string
		only  string // "sotw" or "delta"; both if empty
		turns []turn
		nack  float64
		want  string // codes, sorted; none for a fair server
		words string
	}{
		{name: "fair", turns: start()},
		{
			name: "fair change", only: "sotw",
			turns: append(start(), turn{after: routes, k: clusters, ms: []proto.Message{cluster("a", 1), cluster("b", 1)}},
				turn{after: endpoints, k: endpoints, ms: []proto.Message{hosts("b", 1)}}, turn{after: endpoints, k: routes, ms: []proto.Message{table("r", "b")}}),
		},
		{
			name: "fair change", only: "delta",
			turns: append(start(), turn{after: routes, k: clusters, ms: []proto.Message{cluster("b", 1)}},
				turn{after: endpoints, k: endpoints, ms: []proto.Message{hosts("b", 1)}}, turn{after: endpoints, k: routes, ms: []proto.Message{table("r", "b")}}),
		},
		{
			name: "route before its cluster", want: "dangling order", words: "main goes to b",
			turns: []turn{on(clusters, cluster("a", 1)), on(endpoints, hosts("a", 1)), on(listeners, listener("l", "main", 80)), on(routes, table("main", "b"))},
		},
		{
			name: "route before its endpoints", only: "delta", want: "dangling order", words: "its endpoints are not held",
			turns: append(start(), turn{after: routes, k: clusters, ms: []proto.Message{cluster("b", 1)}}, turn{after: endpoints, k: routes, ms: []proto.Message{table("r", "b")}}),
		},
		{
			name: "cluster removed in use", only: "sotw", want: "dangling order", words: "removes a, which r still uses",
			turns: append(start(), turn{after: routes, k: clusters, ms: []proto.Message{cluster("b", 1)}}),
		},
		{
			name: "cluster removed in use", only: "delta", want: "dangling order", words: "removes a, which r still uses",
			turns: append(start(), turn{after: routes, k: clusters, removed: []string{"a"}}),
		},
		{
			name: "endpoints removed in use", only: "delta", want: "dangling order", words: "removes a",
			turns: append(start(), turn{after: routes, k: endpoints, removed: []string{"a"}}),
		},
		{
			name: "table removed in use", only: "delta", want: "order", words: "removes r, which l still uses",
			turns: append(start(), turn{after: routes, k: routes, removed: []string{"r"}}),
		},
		{
			name: "two in flight", want: "in-flight", words: "came before nonce 5 was answered",
			turns: append(start(), turn{after: routes, k: endpoints, ms: []proto.Message{hosts("a", 2)}}, push(endpoints, hosts("a", 3))),
		},
		{
			name: "nonce of before", want: "nonce", words: "nonce 2 of EDS was used before",
			turns: append(start(), turn{after: routes, k: endpoints, nonce: "2", ms: []proto.Message{hosts("a", 2)}}),
		},
		{
			name: "no nonce", want: "nonce", words: "has no nonce",
			turns: append(start(), turn{after: routes, k: endpoints, nonce: "none", ms: []proto.Message{hosts("a", 2)}}),
		},
		{
			name: "endpoints again", want: "resent", words: "1 of 1 are held already: a",
			turns: append(start(), turn{after: routes, k: endpoints, ms: []proto.Message{hosts("a", 1)}}),
		},
		{
			name: "clusters again", want: "resent",
			turns: append(start(), turn{after: routes, k: clusters, ms: []proto.Message{cluster("a", 1)}}),
		},
		{
			name: "nothing", only: "delta", want: "resent", words: "it is empty",
			turns: append(start(), turn{after: routes, k: clusters}),
		},
		{
			name: "what was refused", nack: 1, want: "refused-again",
			turns: []turn{on(clusters, cluster("a", 1)), on(clusters, cluster("a", 1))},
		},
		{
			name: "a name that nobody asked for", want: "unasked", words: "names z",
			turns: append(start(), turn{after: routes, k: endpoints, ms: []proto.Message{hosts("z", 1)}}),
		},
		{
			name: "a type that nobody asked for", want: "unasked", words: "RDS nonce 2 came before the type was asked for",
			turns: []turn{on(clusters, cluster("a", 1)), push(routes, table("r"))},
		},
		{
			name: "a name twice", want: "malformed", words: "holds a twice",
			turns: []turn{on(clusters, cluster("a", 1), cluster("a", 2))},
		},
		{
			name: "another type", want: "malformed", words: "in a response of CDS",
			turns: []turn{{after: clusters, k: clusters, ms: []proto.Message{hosts("a", 1)}}},
		},
		{
			name: "endpoints that never follow", want: "unfinished", words: "a did not come again after its cluster changed",
			turns: append(start(), turn{after: routes, k: clusters, ms: []proto.Message{cluster("a", 2)}}),
		},
		{
			name: "an answer that never comes", want: "unfinished", words: "RDS: r was asked for",
			turns: start()[:3],
		},
	} {
		for _, variant := range []string{"sotw", "delta"} {
			if c.only != "" && c.only != variant {
				continue
			}
			t.Run(c.name+"/"+variant, func(t *testing.T) {
				r := play(t, c.turns, variant == "delta", c.nack, c.want == "" || c.want == Unfinished)
				var got []string
				for code := range r.Found {
					got = append(got, code)
				}
				slices.Sort(got)
				if strings.Join(got, " ") != c.want {
					t.Errorf("found %v, want %q: %v", got, c.want, r.Breaches)
				}
				if (r.Err() == nil) != (c.want == "") {
					t.Errorf("the report's error is %v", r.Err())
				}
				var text strings.Builder
				r.Write(&text)
				if !strings.Contains(text.String(), c.words) || c.want != "" && !strings.Contains(text.String(), "node-00000: "+got[0]) {
					t.Errorf("the report does not say %q:\n%s", c.words, text.String())
				}
			})
		}
	}
}

// play has one client talk with a scripted server until all was said.
func play(t *testing.T, turns []turn, delta bool, nack float64, rest bool) *Report {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &badServer{turns: turns, done: make(chan struct{})}
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, b)
	served := make(chan struct{})
	go func() { defer close(served); _ = g.Serve(lis) }()
	defer func() { g.Stop(); <-served }()
	share := 0.0
	if delta {
		share = 1
	}
	// The delay lets two responses meet.
	f, err := Start(Config{Addr: lis.Addr().String(), Clients: 1, Delta: share, Mix: []Share{{1, Script{Delay: 20 * time.Millisecond, Nack: nack}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-b.done:
	case <-ctx.Done():
		t.Fatalf("the conversation stopped:\n%s", f.clients[0].words())
	}
	said := func(n Node) bool {
		r := f.Report()
		return r.Responses >= len(turns) && r.ACKs+r.NACKs >= len(turns)-overtaken(turns)
	}
	if err := f.Await(ctx, said); err != nil {
		t.Fatal(err)
	}
	if rest {
		f.Rest()
	}
	return f.Stop()
}

// overtaken counts the responses that are never answered, because another comes
// before.
func overtaken(turns []turn) (n int) {
	for i, t := range turns {
		if i > 0 && t.after == now && turns[i-1].k == t.k {
			n++
		}
	}
	return n
}
