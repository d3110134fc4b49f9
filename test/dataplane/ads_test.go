package dataplane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	typePrefix = "type.googleapis.com/"
	cds        = typePrefix + "envoy.config.cluster.v3.Cluster"
	eds        = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	lds        = typePrefix + "envoy.config.listener.v3.Listener"
	rds        = typePrefix + "envoy.config.route.v3.RouteConfiguration"
)

// ads is a minimal state-of-the-world ADS server: it serves whatever it is set
// to, in no order of its own, so that a test can serve in the wrong one.
type ads struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	addr string

	mu       sync.Mutex
	served   map[string]map[string]*anypb.Any // type, name
	versions map[string]int
	peers    map[*peer]bool
	changed  chan struct{} // closed and replaced by every change and ACK
}

// peer is one stream. Its maps are by type URL, guarded by ads.mu.
type peer struct {
	node       *corepb.Node
	subscribed map[string][]string
	named      map[string]bool // none asked for is none, not all
	sent       map[string]response
	acked      map[string]int
	nacks      []string
}

type response struct {
	nonce   int
	version int
	names   []string // asked for, or all that there was
}

func startADS(t *testing.T) *ads {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &ads{
		addr:     lis.Addr().String(),
		served:   map[string]map[string]*anypb.Any{cds: {}, eds: {}, lds: {}, rds: {}},
		versions: map[string]int{},
		peers:    map[*peer]bool{},
		changed:  make(chan struct{}),
	}
	srv := grpc.NewServer()
	discoverypb.RegisterAggregatedDiscoveryServiceServer(srv, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(lis)
	}()
	t.Cleanup(func() { srv.Stop(); <-done })
	return a
}

func (a *ads) bump() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// set serves resources, added to or in place of those of the same name.
func (a *ads) set(resources ...named) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range resources {
		body, err := anypb.New(r.body)
		if err != nil {
			panic(err)
		}
		a.served[body.TypeUrl][r.name] = body
		a.versions[body.TypeUrl]++
	}
	a.bump()
}

// drop serves one name no longer.
func (a *ads) drop(typeURL, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.served[typeURL], name)
	a.versions[typeURL]++
	a.bump()
}

type named struct {
	name string
	body proto.Message
}

// wait waits until cond holds. It is called with a.mu held.
func (a *ads) wait(ctx context.Context, cond func() bool) error {
	for {
		a.mu.Lock()
		ok, changed := cond(), a.changed
		a.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitACK waits until n peers accepted name as it is served now.
func (a *ads) waitACK(ctx context.Context, n int, typeURL, name string) error {
	err := a.wait(ctx, func() bool {
		got := 0
		for p := range a.peers {
			if slices.Contains(p.sent[typeURL].names, name) && p.acked[typeURL] == a.versions[typeURL] {
				got++
			}
		}
		return got >= n
	})
	if err != nil {
		return fmt.Errorf("no ACK of %s from %d peers (NACKs: %q): %w", name, n, a.nacks(), err)
	}
	return nil
}

// waitUnused waits until no peer asks for name.
func (a *ads) waitUnused(ctx context.Context, typeURL, name string) error {
	return a.wait(ctx, func() bool {
		for p := range a.peers {
			if slices.Contains(p.subscribed[typeURL], name) {
				return false
			}
		}
		return true
	})
}

func (a *ads) nacks() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for p := range a.peers {
		all = append(all, p.nacks...)
	}
	return all
}

func (a *ads) StreamAggregatedResources(s grpc.BidiStreamingServer[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]) error {
	p := &peer{
		subscribed: map[string][]string{},
		named:      map[string]bool{},
		sent:       map[string]response{},
		acked:      map[string]int{},
	}
	a.mu.Lock()
	a.peers[p] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.peers, p)
		a.bump()
		a.mu.Unlock()
	}()
	requests := make(chan *discoverypb.DiscoveryRequest)
	go func() { // ends with the stream
		defer close(requests)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-s.Context().Done():
				return
			}
		}
	}()
	for {
		a.mu.Lock()
		due, changed := a.due(p), a.changed
		a.mu.Unlock()
		for _, r := range due {
			if err := s.Send(r); err != nil {
				return err
			}
		}
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			a.receive(p, r)
		case <-changed:
		}
	}
}

func (a *ads) receive(p *peer, r *discoverypb.DiscoveryRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Node != nil {
		p.node = r.Node
	}
	t := r.TypeUrl
	last := p.sent[t]
	if r.ResponseNonce != "" && r.ResponseNonce != strconv.Itoa(last.nonce) {
		return // stale
	}
	p.named[t] = p.named[t] || len(r.ResourceNames) > 0 || t == rds || t == eds
	p.subscribed[t] = slices.Sorted(slices.Values(r.ResourceNames))
	switch {
	case r.ErrorDetail != nil:
		p.nacks = append(p.nacks, r.ErrorDetail.Message)
	case r.ResponseNonce != "":
		p.acked[t] = last.version
	}
	a.bump()
}

// due builds the responses for every type that changed or was asked anew.
func (a *ads) due(p *peer) []*discoverypb.DiscoveryResponse {
	var out []*discoverypb.DiscoveryResponse
	for _, t := range slices.Sorted(maps.Keys(p.subscribed)) {
		names, last := p.subscribed[t], p.sent[t]
		if !p.named[t] {
			names = slices.Sorted(maps.Keys(a.served[t]))
		}
		if len(names) == 0 || last.version == a.versions[t] && slices.Equal(last.names, names) {
			continue
		}
		resp := &discoverypb.DiscoveryResponse{TypeUrl: t, VersionInfo: strconv.Itoa(a.versions[t])}
		for _, n := range names {
			if body := a.served[t][n]; body != nil {
				resp.Resources = append(resp.Resources, body)
			}
		}
		if len(resp.Resources) == 0 && (t == rds || t == eds) {
			continue // absence means nothing there
		}
		next := response{nonce: last.nonce + 1, version: a.versions[t], names: names}
		resp.Nonce = strconv.Itoa(next.nonce)
		p.sent[t] = next
		out = append(out, resp)
	}
	return out
}
