package main

import (
	"sync"

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
	first  map[string][]byte // delta responses with everything, by type URL
	whole  map[string][]byte // the same, state of the world
	mu     sync.Mutex
	deltas map[grpc.ServerStream]bool
	sotws  map[grpc.ServerStream]bool
}

func newRaw(s size) engine {
	r := &raw{first: map[string][]byte{}, whole: map[string][]byte{}, deltas: map[grpc.ServerStream]bool{}, sotws: map[grpc.ServerStream]bool{}}
	for url, named := range all(s) {
		r.first[url], r.whole[url] = encode(url, named)
	}
	return r
}

func encode(url string, named map[string]proto.Message) (delta, sotw []byte) {
	d := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: "1"}
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
	d, w := encode(endpointURL, map[string]proto.Message{name: endpoints(name, generation)})
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.deltas {
		s.SendMsg(frame(d))
	}
	for s := range r.sotws {
		s.SendMsg(frame(w))
	}
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

// handler answers the first request of each type, and takes in the rest.
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
				continue // all have been asked: what comes is ACKs
			}
			var url string
			if delta {
				url = peek(f, 2)
			} else {
				url = peek(f, 4)
			}
			if seen[url] {
				continue
			}
			seen[url] = true
			if err := s.SendMsg(frame(first[url])); err != nil {
				return err
			}
			if len(seen) == len(first) {
				r.mu.Lock()
				set[s] = true
				r.mu.Unlock()
			}
		}
	}
}
