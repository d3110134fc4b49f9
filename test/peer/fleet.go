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

// answered is what the fleet says of a phase.
type answered struct {
	Clients int
	Last    time.Time     // when the last client had sent its ACK
	Spent   time.Duration // since the phase began
	Bytes   int64         // received since the start
}

// event is an answer that a client gave.
type event struct {
	client int
	url    string
	at     time.Time
}

// lights are the clients of a fleet.
type lights struct {
	load
	addr   string
	node   *structpb.Struct
	ready  chan struct{}
	events chan event
	bytes  atomic.Int64
	again  chan struct{} // closed to have all connect anew
	asked  chan struct{} // one of each that did

	mu       sync.Mutex
	versions map[int]map[string]map[string]string // what the nodes of a group hold
}

// load is what a fleet is made of.
type load struct {
	size
	n, groups, rollouts int
	delta               bool
}

// fleet connects n light clients, one connection each, and says "ready" when all
// hold everything; then one line for each line on standard input: "update" and
// "rollout" are over when the last client has answered, "reconnect" when all have
// asked again, with the versions that they hold.
func fleet(addr string, l load) error {
	f := &lights{
		load: l, addr: addr, node: node(), ready: make(chan struct{}, l.n), events: make(chan event, 8*l.n),
		again: make(chan struct{}), asked: make(chan struct{}, l.n), versions: map[int]map[string]map[string]string{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	gate := make(chan struct{}, 64) // dials at a time
	for i := range f.n {
		all.Go(func() {
			if err := f.client(ctx, i, gate); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "client", i, err)
				os.Exit(1)
			}
		})
	}
	for range f.n {
		<-f.ready
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(answered{Clients: f.n, Spent: time.Since(began)}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		began := time.Now()
		var a answered
		switch in.Text() {
		case "update":
			a = f.answers(endpointURL, 1)
		case "rollout":
			a = f.answers(clusterURL, 2) // the first and the last of its stages
		case "reconnect":
			close(f.again)
			for range f.n {
				<-f.asked
			}
		}
		a.Spent, a.Bytes = time.Since(began), f.bytes.Load()
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	cancel()
	all.Wait()
	return nil
}

// answers waits until each client has answered a type so many times.
func (f *lights) answers(url string, times int) (a answered) {
	count := make([]int, f.n)
	for a.Clients < f.n {
		e := <-f.events
		if e.url != url {
			continue
		}
		if count[e.client]++; count[e.client] == times {
			a.Clients++
			a.Last = e.at
		}
	}
	return a
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
	c := &light{lights: f, i: i, group: i % f.groups, held: map[string]string{}}
	gate <- struct{}{}
	err := c.connect(ctx, func() error {
		for _, url := range allURLs {
			if err := c.ask(url); err != nil {
				return err
			}
			if err := c.answer(); err != nil {
				return err
			}
		}
		<-gate
		f.ready <- struct{}{}
		return nil
	})
	select {
	case <-f.again:
	default:
		return err
	}
	gate <- struct{}{}
	return c.connect(ctx, func() error {
		for _, url := range allURLs {
			if err := c.ask(url); err != nil {
				return err
			}
		}
		<-gate
		f.asked <- struct{}{}
		return nil
	})
}

// light is one client.
type light struct {
	*lights
	i, group int
	stream   grpc.ClientStream
	named    bool
	live     bool              // it holds everything, and events count
	held     map[string]string // version by type URL, state of the world
}

// connect opens a stream, begins it and answers until it ends, or all are to
// connect anew.
func (c *light) connect(ctx context.Context, begin func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient(c.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frameCodec{}), grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		return err
	}
	defer conn.Close()
	method := "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	if c.delta {
		method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	}
	c.named = false
	if c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method); err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	if !c.live {
		c.live = true
		go func() {
			select {
			case <-c.again:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	for {
		if err := c.answer(); err != nil {
			return err
		}
	}
}

// names are what a client asks for of a type; of clusters and listeners all.
func (c *light) names(url string) (names []string) {
	switch url {
	case endpointURL:
		for i := range c.clusters {
			names = append(names, clusterName(i))
		}
		for g := range c.rollouts + 1 {
			names = append(names, nextName(g))
		}
		if c.groups > 1 {
			names = append(names, groupName(c.group+1))
		}
	case routeURL:
		for i := range c.tables {
			names = append(names, tableName(i))
		}
	}
	return names
}

// ask is the first request of a type on a stream, with what the client holds.
func (c *light) ask(url string) error {
	var n *corev3.Node
	if !c.named {
		n, c.named = &corev3.Node{Id: fmt.Sprintf("node-%05d", c.i), Cluster: clusterOf(c.group), Metadata: c.node}, true
	}
	if c.delta {
		var holds map[string]string
		c.mu.Lock()
		if c.live {
			holds = c.versions[c.group][url]
		}
		b := marshal(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: url, ResourceNamesSubscribe: c.names(url), InitialResourceVersions: holds})
		c.mu.Unlock()
		return c.stream.SendMsg(b)
	}
	return c.stream.SendMsg(marshal(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: url, ResourceNames: c.names(url), VersionInfo: c.held[url]}))
}

// answer takes one response and acknowledges it.
func (c *light) answer() error {
	var m frame
	if err := c.stream.RecvMsg(&m); err != nil {
		return err
	}
	c.bytes.Add(int64(len(m)))
	url, nonce := peek(m, 4), peek(m, 5)
	var b frame
	if c.delta {
		b = marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: nonce})
		if c.i < c.groups { // what it holds, all of its group do
			if err := c.note(url, m); err != nil {
				return err
			}
		}
	} else {
		c.held[url] = peek(m, 1)
		b = marshal(&discoveryv3.DiscoveryRequest{TypeUrl: url, ResourceNames: c.names(url), VersionInfo: c.held[url], ResponseNonce: nonce})
	}
	if err := c.stream.SendMsg(b); err != nil {
		return err
	}
	if c.live {
		c.events <- event{c.i, url, time.Now()}
	}
	return nil
}

// note keeps the versions that a delta response brings.
func (c *light) note(url string, m frame) error {
	var r discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(m, &r); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.versions[c.group] == nil {
		c.versions[c.group] = map[string]map[string]string{}
	}
	if c.versions[c.group][url] == nil {
		c.versions[c.group][url] = map[string]string{}
	}
	for _, one := range r.Resources {
		c.versions[c.group][url][one.Name] = one.Version
	}
	for _, name := range r.RemovedResources {
		delete(c.versions[c.group][url], name)
	}
	return nil
}

func marshal(m proto.Message) frame {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}
