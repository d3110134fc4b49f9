package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

// Config says what a fleet is.
type Config struct {
	Addr     string
	Clients  int
	Delta    float64 // the share of clients that are incremental, 0 to 1
	Mix      []Share // how they answer; empty for all at once
	Prefix   string  // of node ids; "node" if empty
	Cluster  string  // of the nodes
	Metadata map[string]string
	Seed     uint64
	// Restarts says that the server may forget what it knew: what comes first on
	// a new stream may then be what the client holds already.
	Restarts bool
}

// dials is how many clients connect at a time.
const dials = 64

// Fleet is a running fleet. Stop it.
type Fleet struct {
	cfg     Config
	began   time.Time
	library library
	tally   tally
	clients []*client
	gate    chan struct{}
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu     sync.Mutex
	reconn chan struct{} // closed to have all connect anew
}

// Start connects a fleet.
func Start(cfg Config) (*Fleet, error) {
	switch {
	case cfg.Addr == "":
		return nil, errors.New("cannot start a fleet: no address of a server")
	case cfg.Clients < 1:
		return nil, fmt.Errorf("cannot start a fleet of %d clients", cfg.Clients)
	case cfg.Delta < 0 || cfg.Delta > 1:
		return nil, fmt.Errorf("cannot start a fleet: the share %g of delta clients is not between 0 and 1", cfg.Delta)
	}
	if cfg.Prefix == "" {
		cfg.Prefix = "node"
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{cfg: cfg, began: time.Now(), gate: make(chan struct{}, dials), cancel: cancel, reconn: make(chan struct{})}
	f.tally.Report = Report{Clients: cfg.Clients, Found: map[string]int{}, Ended: map[string]int{}, Breaches: []Breach{}}
	fields := map[string]*structpb.Value{}
	for k, v := range cfg.Metadata {
		fields[k] = structpb.NewStringValue(v)
	}
	for i := range cfg.Clients {
		c := &client{
			f: f, delta: float64(i%100) < cfg.Delta*100, script: script(cfg.Mix, i), changed: make(chan struct{}),
			chance: rand.New(rand.NewPCG(cfg.Seed, uint64(i))),
			node: &corev3.Node{
				Id: fmt.Sprintf("%s-%05d", cfg.Prefix, i), Cluster: cfg.Cluster, UserAgentName: "envoy",
				Metadata: &structpb.Struct{Fields: fields},
			},
		}
		c.j = newJudge(c.delta, cfg.Restarts, f.library.varies, c.breach)
		f.clients = append(f.clients, c)
		f.done.Go(func() { c.run(ctx) })
	}
	return f, nil
}

// Stop ends all clients and says what they saw.
func (f *Fleet) Stop() *Report {
	f.cancel()
	f.done.Wait()
	return f.Report()
}

// Report is what the clients saw until now.
func (f *Fleet) Report() *Report {
	f.tally.mu.Lock()
	defer f.tally.mu.Unlock()
	r := f.tally.Report
	r.Found, r.Ended, r.Breaches = maps.Clone(r.Found), maps.Clone(r.Ended), slices.Clone(r.Breaches)
	return &r
}

// Storm has every client drop its connection and come back at once with what it
// holds.
func (f *Fleet) Storm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.reconn)
	f.reconn = make(chan struct{})
}

func (f *Fleet) again() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reconn
}

func (f *Fleet) enter(ctx context.Context) error {
	select {
	case f.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Fleet) exit() { <-f.gate }

// dial makes a connection of its own. Windows stay gRPC's smallest, so that who
// does not read soon holds up the server's sends.
func (f *Fleet) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+f.cfg.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)), grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
}

// Node is what one client holds, for a condition to look at.
type Node struct{ c *client }

// ID is the node's id.
func (n Node) ID() string { return n.c.node.Id }

// Script is how the node answers.
func (n Node) Script() Script { return n.c.script }

// Complete reports whether the node holds all that it asks for, and has answered
// all that it was sent.
func (n Node) Complete() bool {
	for _, st := range n.c.j.of {
		if st.unanswered != nil {
			return false
		}
	}
	return n.c.j.missing() == ""
}

// HasCluster reports whether the node holds a cluster.
func (n Node) HasCluster(name string) bool {
	_, ok := n.c.j.of[clusters].held[name]
	return ok
}

// SendsTo reports whether any listener of the node sends requests to a cluster.
func (n Node) SendsTo(cluster string) bool {
	for _, l := range n.c.j.of[listeners].held {
		if slices.Contains(n.c.j.uses(listeners, l.content), cluster) {
			return true
		}
	}
	return false
}

// Await waits until the condition holds for every client, each at some time of
// its own, and otherwise names one for which it does not.
func (f *Fleet) Await(ctx context.Context, cond func(Node) bool) error {
	for _, c := range f.clients {
		for {
			c.mu.Lock()
			ok, changed := cond(Node{c}), c.changed
			c.mu.Unlock()
			if ok {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("%s waited in vain: %w\n%s", c.node.Id, ctx.Err(), c.words())
			}
		}
	}
	return nil
}

func (c *client) words() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.j.missing()
	for _, l := range c.talk.text() {
		out += "\n" + l
	}
	return out
}

// Rest notes as breaches what clients that accept everything asked for and were
// not sent. It is for a moment at which the server has nothing left to do.
func (f *Fleet) Rest() {
	for _, c := range f.clients {
		c.mu.Lock()
		if c.script.Steady() {
			if why := c.j.missing(); why != "" {
				c.breach(Unfinished, why)
			}
		}
		c.mu.Unlock()
	}
}
