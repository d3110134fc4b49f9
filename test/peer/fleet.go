package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// peek reads a string field of a message without decoding it.
func peek(b []byte, want protowire.Number) string {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if num == want && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			return string(v)
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return ""
		}
		b = b[n:]
	}
	return ""
}

// answered is what the fleet says: how many clients got an update, and when the
// last of them had sent its ACK.
type answered struct {
	Clients int
	Last    time.Time
	Spent   time.Duration // for "ready": since the fleet began to connect
	CPU     time.Duration
}

// fleet connects n light clients, one connection each, and says "ready" when all
// hold everything; then one line for every update.
func fleet(addr string, n int, delta bool, s size) error {
	f := &lights{addr: addr, delta: delta, size: s, node: node(), ready: make(chan struct{}, n), got: make(chan time.Time, 4*n)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	gate := make(chan struct{}, 64) // dials at a time
	for i := range n {
		all.Go(func() {
			if err := f.client(ctx, i, gate); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "client", i, err)
			}
		})
	}
	for range n {
		<-f.ready
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(answered{Clients: n, Spent: time.Since(began)}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		a := answered{}
		for range n {
			at := <-f.got
			if at.After(a.Last) {
				a.Last = at
			}
			a.Clients++
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	cancel()
	all.Wait()
	return nil
}

type lights struct {
	addr  string
	delta bool
	size  size
	node  *structpb.Struct
	ready chan struct{}
	got   chan time.Time
	acked atomic.Int64
}

// node is the metadata of a proxy: some 28 KiB, as Envoy sends.
func node() *structpb.Struct {
	fields := map[string]any{}
	for i := range 400 {
		fields[fmt.Sprintf("envoy.extensions.filters.http.%03d", i)] = "a description of about forty characters"
	}
	st, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err)
	}
	return st
}

// client is one node: it asks for everything, and acknowledges everything.
func (f *lights) client(ctx context.Context, i int, gate chan struct{}) error {
	gate <- struct{}{}
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frameCodec{}), grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		return err
	}
	defer conn.Close()
	method := "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	if f.delta {
		method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		<-gate
		return err
	}
	names := f.names()
	for k, url := range []string{clusterURL, endpointURL, listenerURL, routeURL} {
		var n *corev3.Node
		if k == 0 {
			n = &corev3.Node{Id: fmt.Sprintf("node-%05d", i), Cluster: "bench", Metadata: f.node}
		}
		if err := s.SendMsg(f.request(n, url, names[url], "", "", true)); err != nil {
			<-gate
			return err
		}
		if err := f.answer(s, names, nil); err != nil {
			<-gate
			return err
		}
	}
	<-gate
	f.ready <- struct{}{}
	for {
		if err := f.answer(s, names, f.got); err != nil {
			return err
		}
	}
}

// answer takes one response and acknowledges it.
func (f *lights) answer(s grpc.ClientStream, names map[string][]string, got chan time.Time) error {
	var m frame
	if err := s.RecvMsg(&m); err != nil {
		return err
	}
	url := peek(m, 4)
	if err := s.SendMsg(f.request(nil, url, names[url], peek(m, 1), peek(m, 5), false)); err != nil {
		return err
	}
	if got != nil && url == endpointURL {
		got <- time.Now()
	}
	return nil
}

func (f *lights) names() map[string][]string {
	names := map[string][]string{}
	for i := range f.size.clusters {
		names[endpointURL] = append(names[endpointURL], clusterName(i))
	}
	for i := range f.size.tables {
		names[routeURL] = append(names[routeURL], tableName(i))
	}
	return names
}

func (f *lights) request(n *corev3.Node, url string, names []string, version, nonce string, first bool) frame {
	var m proto.Message
	if f.delta {
		d := &discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: url, ResponseNonce: nonce}
		if first {
			d.ResourceNamesSubscribe = names
		}
		m = d
	} else {
		m = &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: url, ResourceNames: names, VersionInfo: version, ResponseNonce: nonce}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}
