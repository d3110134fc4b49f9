package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

const everyScript = "60:ack 15:ack=10ms 8:nack=3%,life=400ms 5:never 5:read=30ms 7:life=300ms,ack=2ms"

// A hundred clients of every kind see five rollouts, endpoints that change under
// them, a cluster that changes in place and a storm, and no breach.
func TestFleet(t *testing.T) { rollouts(t, 100, 5, time.Minute) }

func rollouts(t *testing.T, clients, generations int, within time.Duration) {
	s := serve(t, generation(0)...)
	mix, err := ParseMix(everyScript)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(Config{Addr: s.addr, Clients: clients, Delta: 0.5, Mix: mix, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	// settled waits for every steady client to hold what a generation says, and
	// nothing of the one before, unless it never stays: a server removes nothing
	// soon after a client has come back.
	settled := func(g int) {
		t.Helper()
		to, gone := fmt.Sprintf("svc-gen-%d", g), fmt.Sprintf("svc-gen-%d", g-1)
		if err := f.Await(ctx, func(n Node) bool {
			s := n.Script()
			return !s.Steady() || n.Complete() && n.SendsTo(to) && (s.Life > 0 || !n.HasCluster(gone))
		}); err != nil {
			f.Stop()
			t.Fatalf("generation %d: %v", g, err)
		}
	}
	settled(0)
	for g := 1; g <= generations; g++ {
		ms := generation(g)
		if g == 3 {
			ms = replace(ms, cluster("svc-0", 2)) // in place
		}
		s.set(ms...)
		for port := range 5 { // endpoints change meanwhile
			s.live(hosts("svc-1", 10000+10*g+port), hosts("svc-2", 10000+10*g+port))
		}
		if g == 4 {
			f.Storm()
		}
		settled(g)
	}
	f.Storm()
	settled(generations)
	f.Rest()
	r := f.Stop()
	var text strings.Builder
	r.Write(&text)
	t.Log(text.String())
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Answered != clients || r.NACKs == 0 || r.Streams < 3*clients {
		t.Errorf("%d answered, %d NACKs and %d streams of %d clients: the scripts were not played", r.Answered, r.NACKs, r.Streams, clients)
	}
}

// live changes bodies of endpoints alone.
func (s *served) live(ms ...proto.Message) {
	var rs []*schema.Resource
	for _, m := range ms {
		r, err := envoy.Resource(m, envoy.NameOf(m))
		if err != nil {
			s.t.Fatal(err)
		}
		rs = append(rs, r)
	}
	s.srv.Live(schema.SnapshotOf(rs...))
}

// replace puts m in the place of what has its type and name.
func replace(ms []proto.Message, m proto.Message) []proto.Message {
	for i, old := range ms {
		if old.ProtoReflect().Type() == m.ProtoReflect().Type() && envoy.NameOf(old) == envoy.NameOf(m) {
			ms[i] = m
		}
	}
	return ms
}

// Who comes back with all that it held is sent nothing again.
func TestStormSendsNothing(t *testing.T) {
	for _, delta := range []float64{0, 1} {
		t.Run(map[float64]string{0: "sotw", 1: "delta"}[delta], func(t *testing.T) {
			s := serve(t, generation(0)...)
			f, err := Start(Config{Addr: s.addr, Clients: 20, Delta: delta})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := f.Await(ctx, Node.Complete); err != nil {
				t.Fatal(err)
			}
			before := f.Report()
			s.await(ctx, func() bool { return len(s.sessions(nil)) == 20 })
			old := s.sessions(nil)
			f.Storm()
			s.await(ctx, func() bool { return len(s.sessions(old)) == len(old) })
			s.live(hosts("svc-5", 4444))
			news := want(t, f, hosts("svc-5", 4444))
			if err := f.Await(ctx, func(n Node) bool { return n.c.j.of[endpoints].held["svc-5"].content == news }); err != nil {
				t.Fatal(err)
			}
			r := f.Stop()
			if err := r.Err(); err != nil {
				t.Error(err, r.Breaches)
			}
			if got := r.Resources - before.Resources; got != len(old) {
				t.Errorf("%d resources after the storm, want the one that changed for each of %d", got, len(old))
			}
		})
	}
}

// sessions lists those that hold routes, but for some.
func (s *served) sessions(but map[schema.SessionID]bool) map[schema.SessionID]bool {
	out := map[schema.SessionID]bool{}
	v := s.srv.View()
	for _, row := range v.Sessions() {
		for _, t := range v.Types(row.ID) {
			if t.Type == schema.Routes && t.Held > 0 && !but[row.ID] {
				out[row.ID] = true
			}
		}
	}
	return out
}

// await waits for the server's ledger to show something.
func (s *served) await(ctx context.Context, ok func() bool) {
	s.t.Helper()
	for !ok() {
		select {
		case <-s.srv.Changes():
		case <-ctx.Done():
			s.t.Fatal("the ledger does not show what was waited for")
		}
	}
}

// want is what the fleet reads of a resource.
func want(t *testing.T, f *Fleet, m proto.Message) *content {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	k, _ := kindOf(a.TypeUrl)
	c, err := f.library.read(k, a)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
