package main

import (
	"sync"
	"sync/atomic"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// raw sends bytes that were encoded once to whoever asks, and knows nothing of
// what it is told: what gRPC itself costs.
type raw struct {
	world
	first map[string][]byte // delta responses with everything, by type URL
	whole map[string][]byte // the same, state of the world
	barrier

	mu     sync.Mutex
	deltas map[grpc.ServerStream]bool
	sotws  map[grpc.ServerStream]bool
}

func newRaw(w world, _ int) engine {
	r := &raw{world: w, first: map[string][]byte{}, whole: map[string][]byte{}, deltas: map[grpc.ServerStream]bool{}, sotws: map[grpc.ServerStream]bool{}}
	for url, named := range w.all() {
		r.first[url], r.whole[url] = encode(url, named)
	}
	return r
}

func encode(url string, named map[string]proto.Message, removed ...string) (delta, sotw []byte) {
	d := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: "1", RemovedResources: removed}
	w := &discoveryv3.DiscoveryResponse{TypeUrl: url, Nonce: "1", VersionInfo: "1"}
	for name, m := range named {
		a, err := anypb.New(m)
		if err != nil {
			panic(err)
		}
		d.Resources = append(d.Resources, &discoveryv3.Resource{Name: name, Version: "1", Resource: a})
		w.Resources = append(w.Resources, a)
	}
	db, err := proto.Marshal(d)
	if err != nil {
		panic(err)
	}
	wb, err := proto.Marshal(w)
	if err != nil {
		panic(err)
	}
	return db, wb
}

func (r *raw) update(generation int) {
	name := clusterName(0)
	r.send(encode(endpointURL, map[string]proto.Message{name: endpoints(name, generation)}))
}

func (r *raw) send(delta, sotw []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.deltas {
		s.SendMsg(frame(delta))
	}
	for s := range r.sotws {
		s.SendMsg(frame(sotw))
	}
}

// rollout sends what each stage changes, when all have answered the stage before.
func (r *raw) rollout(generation int) (begin func()) {
	r.mu.Lock()
	n := len(r.deltas) + len(r.sotws)
	r.mu.Unlock()
	var steps []func()
	for stage := 1; stage <= stages; stage++ {
		w := world{size: r.size, generation: generation, stage: stage}
		url := stageURL[stage]
		now, changed := w.resources(url), map[string]proto.Message{}
		var removed []string
		if stage == stages {
			removed = append(removed, nextName(generation-1))
		} else {
			name := [...]string{1: nextName(generation), 2: nextName(generation), 3: "listener-00", 4: tableName(0)}[stage]
			changed[name] = now[name]
		}
		d, s := encode(url, changed, removed...)
		if url == clusterURL || url == listenerURL {
			_, s = encode(url, now)
		}
		steps = append(steps, func() { r.send(d, s) })
	}
	return func() { r.walk(n, steps) }
}

// frame is a message that is its own encoding.
type frame []byte

type frameCodec struct{ encoding.CodecV2 }

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(frame))}, nil
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*frame) = data.Materialize()
	return nil
}

func (frameCodec) Name() string { return "proto" }

func (r *raw) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(frameCodec{}), grpc.StaticStreamWindowSize(1 << 20), grpc.StaticConnWindowSize(1 << 20),
		grpc.WriteBufferSize(128 << 10),
	}
}

func (r *raw) register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", ServerStreams: true, ClientStreams: true, Handler: r.handler(true)},
			{StreamName: "StreamAggregatedResources", ServerStreams: true, ClientStreams: true, Handler: r.handler(false)},
		},
	}, r)
}

// handler answers the first request of each type, unless the client holds
// something, and takes in the rest.
func (r *raw) handler(delta bool) grpc.StreamHandler {
	return func(_ any, s grpc.ServerStream) error {
		set, first := r.sotws, r.whole
		if delta {
			set, first = r.deltas, r.first
		}
		seen := map[string]bool{}
		defer func() { r.mu.Lock(); delete(set, s); r.mu.Unlock() }()
		for {
			var f frame
			if err := s.RecvMsg(&f); err != nil {
				return err
			}
			if len(seen) == len(first) {
				// All have been asked: what comes is ACKs.
				if r.armed.Load() && delta {
					r.ack(peek(f, 2))
				} else if r.armed.Load() {
					r.ack(peek(f, 4))
				}
				continue
			}
			var url string
			var holds bool
			if delta {
				url, holds = peek(f, 2), peek(f, 5) != ""
			} else {
				url, holds = peek(f, 4), peek(f, 1) != ""
			}
			if seen[url] {
				continue
			}
			seen[url] = true
			if !holds {
				if err := s.SendMsg(frame(first[url])); err != nil {
					return err
				}
			}
			if len(seen) == len(first) {
				r.mu.Lock()
				set[s] = true
				r.mu.Unlock()
			}
		}
	}
}

// barrier walks stages, each when n ACKs of the stage before have come.
type barrier struct {
	one   sync.Mutex // walks at a time
	armed atomic.Bool
	mu    sync.Mutex
	left  int
	url   string // what the open stage changed
	next  chan struct{}
}

func (b *barrier) walk(n int, steps []func()) {
	b.one.Lock()
	defer b.one.Unlock()
	b.mu.Lock()
	b.next = make(chan struct{}, 1)
	b.mu.Unlock()
	for i, step := range steps {
		b.mu.Lock()
		b.left, b.url = n, stageURL[i+1]
		b.armed.Store(true)
		b.mu.Unlock()
		step()
		<-b.next
	}
}

// ack takes in an ACK of a type. Those of what came before the stage do not count.
func (b *barrier) ack(url string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left > 0 && url == b.url {
		if b.left--; b.left == 0 {
			b.armed.Store(false)
			b.next <- struct{}{}
		}
	}
}
