//go:build e2e

package realclients

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// TestReturns: the streams of the clients break under load. They come back, and
// the next switch costs nothing. How they come back differs: gRPC clients without
// a nonce, MOSN with that of the stream before (rule S2). And MOSN asks for
// endpoints, listeners and routes only as each response brings it to the next: a
// server that sent it nothing, because it holds everything (rule S9), would never
// again see it subscribe.
func TestReturns(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.driver.Name(), func(t *testing.T) {
			r := newRig(t, k, time.Minute, nil)
			first, second := r.backend("svc-00"), r.backend("svc-01")
			r.merge(first)
			r.start()
			r.await()
			r.load()
			r.arrives(first)

			r.breakStreams()

			r.merge(second)
			r.await()
			r.arrives(second)
			total := r.run.Stop()
			record(k, "a switch after a broken stream", total)
			if total.Failures > 0 {
				t.Errorf("%d of %d requests failed: %v", total.Failures, total.Requests, total.Errors)
			}
			r.checkConversation()
		})
	}
}

// breakStreams ends all streams, and waits until each node has asked on another
// for what it asks first.
func (r *rig) breakStreams() {
	r.t.Helper()
	r.merged = time.Now() // from here on the conversation is of interest
	nodes := len(r.nodes)
	r.wire.cut()
	back := map[int]message{} // by stream
	if why := r.poll(func() (bool, string) {
		for _, m := range r.wire.conversation(r.merged) {
			if _, known := back[m.stream]; m.stream > nodes && !known && !m.sent {
				back[m.stream] = m
			}
		}
		groups := r.loop.Status().Groups
		return len(back) == nodes && groups[0].Connected == nodes, fmt.Sprintf("%d of %d streams", len(back), nodes)
	}); why != "" {
		r.t.Fatalf("the nodes do not come back: %s", why)
	}
	for _, m := range back {
		if m.version == "" || (m.nonce != "") != (r.kind.client == schema.Envoy) {
			r.t.Errorf("a node comes back with %s", m)
		}
	}
}

// TestCCoreServer: a proxyless server of the C core serves when the commit that
// has its listener is merged, and a client of grpc-go reaches it.
func TestCCoreServer(t *testing.T) {
	r := newRig(t, cCore, time.Minute, nil)
	addr := freeAddr(t)
	b := dataplane.Bootstrap{Server: r.wire.addr, NodeID: "server-0", Cluster: "tests", Zone: "zone-a"}
	s, err := dataplane.NewCCoreServer(b, addr, "svc-00")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	r.serveAt = addr
	r.merge(service{"svc-00", addr})
	if err := s.WaitServing(r.ctx); err != nil {
		t.Fatal(err)
	}
	r.kind = gRPC(dataplane.GRPCGo{}, 1)
	r.start()
	if _, err := r.nodes[0].Send(r.ctx, dataplane.Request{}); err != nil {
		t.Fatal(err)
	}
	r.checkConversation()
}
