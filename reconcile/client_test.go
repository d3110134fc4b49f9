package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

const (
	cds = schema.Clusters
	eds = schema.Endpoints
	lds = schema.Listeners
	rds = schema.Routes
)

// node is an xDS client that follows references as real ones do: a gRPC client
// by explicit names, from the listener that it dials; an Envoy with wildcards.
// It accepts everything, unless told to refuse or to keep silent.
type node struct {
	t       *testing.T
	id      string
	envoy   bool
	mute    bool     // asks for nothing
	dials   []string // listeners, of a gRPC client
	journal *journal
	ended   chan struct{}

	mu      sync.Mutex
	cancel  func()
	conn    *grpc.ClientConn
	stream  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	sent    bool
	err     error // why the stream ended
	types   [schema.NumTypes]held
	refuse  map[schema.Type]string // words for the next response of a type
	silent  map[schema.Type]bool
	grace   map[schema.Type]int                            // responses that are answered before it is silent
	pending map[schema.Type]*discoveryv3.DiscoveryResponse // unanswered
}

// held is what a client knows of one type.
type held struct {
	names    []string // asked for
	asked    bool
	version  string
	nonce    string
	bodies   map[string]proto.Message
	received int // responses
}

// connect brings a client up.
func (r *rig) connect(id string, change ...func(*node)) *node {
	r.t.Helper()
	n := &node{
		t: r.t, id: id, envoy: strings.HasPrefix(id, "edge"), dials: []string{"shop.mesh"}, journal: r.journal,
		refuse: map[schema.Type]string{}, silent: map[schema.Type]bool{}, grace: map[schema.Type]int{},
	}
	for _, f := range change {
		f(n)
	}
	n.dial(r)
	r.t.Cleanup(n.close)
	return n
}

// dial opens a stream, with the versions of what is held, as after a reconnect.
func (n *node) dial(r *rig) {
	n.t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	noError(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	noError(n.t, err)
	n.mu.Lock()
	n.conn, n.cancel, n.stream, n.sent, n.err = conn, cancel, stream, false, nil
	n.pending, n.ended = map[schema.Type]*discoveryv3.DiscoveryResponse{}, make(chan struct{})
	returns := false
	for t := range n.types {
		n.types[t].nonce = ""
		if n.types[t].asked {
			returns = true
			n.send(schema.Type(t), nil)
		}
	}
	if !returns {
		n.begin()
	}
	ended := n.ended
	n.mu.Unlock()
	go func() {
		defer close(ended)
		for {
			resp, err := stream.Recv()
			if err != nil {
				n.mu.Lock()
				n.err = err
				n.mu.Unlock()
				return
			}
			n.receive(resp)
		}
	}()
}

func (n *node) begin() {
	if n.mute {
		return
	}
	if n.envoy {
		n.ask(cds)
		n.ask(lds)
		return
	}
	n.ask(lds, n.dials...)
}

// close ends the stream and waits for its goroutine.
func (n *node) close() {
	n.mu.Lock()
	cancel, conn, ended := n.cancel, n.conn, n.ended
	n.mu.Unlock()
	cancel()
	<-ended
	conn.Close()
}

// ask subscribes to names. The caller holds n.mu.
func (n *node) ask(t schema.Type, names ...string) {
	h := &n.types[t]
	if h.asked && slices.Equal(h.names, names) {
		return
	}
	h.names, h.asked = names, true
	if !n.envoy || !t.HasWildcard() {
		maps.DeleteFunc(h.bodies, func(name string, _ proto.Message) bool { return !slices.Contains(names, name) })
	}
	n.send(t, nil)
}

// send sends a request: an ACK of the newest response that was accepted, or a
// refusal. The caller holds n.mu.
func (n *node) send(t schema.Type, refusal *status.Status) {
	h := &n.types[t]
	req := &discoveryv3.DiscoveryRequest{TypeUrl: t.URL(), ResourceNames: h.names, VersionInfo: h.version, ResponseNonce: h.nonce, ErrorDetail: refusal}
	if !n.sent {
		req.Node = &corev3.Node{Id: n.id, UserAgentName: "test"}
		n.sent = true
	}
	_ = n.stream.Send(req) // a stream that ended is seen by its reader
}

func (n *node) receive(resp *discoveryv3.DiscoveryResponse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, _ := schema.TypeOf(resp.TypeUrl)
	n.types[t].received++
	n.journal.add("%s received %s %s", n.id, t, strings.Join(namesOf(resp), " "))
	if n.silent[t] && n.grace[t] == 0 {
		n.pending[t] = resp
		return
	}
	n.grace[t] = max(0, n.grace[t]-1)
	n.answer(t, resp)
}

// answer takes a response in, or refuses it. The caller holds n.mu.
func (n *node) answer(t schema.Type, resp *discoveryv3.DiscoveryResponse) {
	h := &n.types[t]
	h.nonce = resp.Nonce
	if words := n.refuse[t]; words != "" {
		delete(n.refuse, t)
		n.send(t, &status.Status{Code: 3, Message: words})
		return
	}
	got := map[string]proto.Message{}
	for _, a := range resp.Resources {
		name, msg := n.decode(a)
		got[name] = msg
	}
	if !t.FullState() {
		kept := map[string]proto.Message{}
		maps.Copy(kept, h.bodies)
		maps.Copy(kept, got)
		got = kept
	}
	if !n.envoy || !t.HasWildcard() {
		// What is no longer asked for may come all the same, and is nothing.
		maps.DeleteFunc(got, func(name string, _ proto.Message) bool { return !slices.Contains(h.names, name) })
	}
	h.bodies, h.version = got, resp.VersionInfo
	n.send(t, nil)
	n.follow()
}

// follow asks for what is referred to. The caller holds n.mu.
func (n *node) follow() {
	tables, clusters, services := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range n.types[lds].bodies {
		tables[tableOf(m.(*listenerv3.Listener))] = true
	}
	n.askSet(rds, tables)
	for _, m := range n.types[rds].bodies {
		for _, c := range clustersOf(m.(*routev3.RouteConfiguration)) {
			clusters[c] = true
		}
	}
	if !n.envoy {
		n.askSet(cds, clusters)
	}
	for name, m := range n.types[cds].bodies {
		if m.(*clusterv3.Cluster).GetEdsClusterConfig() != nil && (n.envoy || clusters[name]) {
			services[name] = true
		}
	}
	n.askSet(eds, services)
}

func (n *node) askSet(t schema.Type, names map[string]bool) {
	if len(names) > 0 || n.types[t].asked {
		n.ask(t, slices.Sorted(maps.Keys(names))...)
	}
}

// hold makes the client keep silent about a type; release answers what waits.
func (n *node) hold(t schema.Type) { n.holdAfter(t, 0) }

// holdAfter is hold after a number of responses.
func (n *node) holdAfter(t schema.Type, responses int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[t], n.grace[t] = true, responses
}

func (n *node) release(t schema.Type) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[t] = false
	if resp := n.pending[t]; resp != nil {
		delete(n.pending, t)
		n.answer(t, resp)
	}
}

// releaseOnce answers what waits, and refuses what comes next.
func (n *node) releaseOnce(t schema.Type, words string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[t] = false
	resp := n.pending[t]
	delete(n.pending, t)
	n.answer(t, resp)
	n.refuse[t] = words
}

// rejects makes the client refuse the next response of a type.
func (n *node) rejects(t schema.Type, words string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse[t] = words
}

// counts is how many responses of each type came.
func (n *node) counts() [schema.NumTypes]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out [schema.NumTypes]int
	for t := range n.types {
		out[t] = n.types[t].received
	}
	return out
}

// view is what the client has accepted: where its routes lead, and to which
// hosts.
func (n *node) view() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n.types[rds].bodies)) {
		parts = append(parts, fmt.Sprintf("%s → %s", name, strings.Join(clustersOf(n.types[rds].bodies[name].(*routev3.RouteConfiguration)), " ")))
	}
	for _, name := range slices.Sorted(maps.Keys(n.types[cds].bodies)) {
		at := "?"
		if m := n.types[eds].bodies[name]; m != nil {
			at = hostOf(m.(*endpointv3.ClusterLoadAssignment))
		}
		parts = append(parts, name+"@"+at)
	}
	return strings.Join(parts, ", ")
}

// sees waits until the client holds something.
func (n *node) sees(want string) {
	n.t.Helper()
	eventually(n.t, func() bool { return n.view() == want }, func() string {
		return fmt.Sprintf("%s holds %q, want %q; its stream ended with %v", n.id, n.view(), want, n.ending())
	})
}

// holds waits until the client holds something, whatever else it still does.
func (n *node) holds(want string) {
	n.t.Helper()
	eventually(n.t, func() bool { return strings.Contains(n.view(), want) }, func() string {
		return fmt.Sprintf("%s holds %q, want %q in it; its stream ended with %v", n.id, n.view(), want, n.ending())
	})
}

// waitsWith waits until the client keeps silent about a response of a type.
func (n *node) waitsWith(t schema.Type) {
	n.t.Helper()
	eventually(n.t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.pending[t] != nil
	}, func() string { return fmt.Sprintf("%s was sent no %s", n.id, t) })
}

func (n *node) ending() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// ends waits until the stream has ended, and returns why.
func (n *node) ends() error {
	n.t.Helper()
	eventually(n.t, func() bool { return n.ending() != nil }, func() string { return n.id + " is still served" })
	return n.ending()
}

func (n *node) decode(a *anypb.Any) (string, proto.Message) {
	msg, err := a.UnmarshalNew()
	if err != nil {
		n.t.Error(err)
		return "", nil
	}
	return nameOf(msg), msg
}

func nameOf(msg proto.Message) string {
	if m, ok := msg.(*endpointv3.ClusterLoadAssignment); ok {
		return m.ClusterName
	}
	return msg.(interface{ GetName() string }).GetName()
}

func namesOf(resp *discoveryv3.DiscoveryResponse) []string {
	var names []string
	for _, a := range resp.Resources {
		if msg, err := a.UnmarshalNew(); err == nil {
			names = append(names, nameOf(msg))
		}
	}
	return names
}

// tableOf is the route table that a listener asks for.
func tableOf(l *listenerv3.Listener) string {
	packed := l.GetApiListener().GetApiListener()
	if packed == nil {
		packed = l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig()
	}
	hcm := &hcmv3.HttpConnectionManager{}
	if err := packed.UnmarshalTo(hcm); err != nil {
		panic(err)
	}
	return hcm.GetRds().GetRouteConfigName()
}

// clustersOf lists the clusters of a table in the order of its routes.
func clustersOf(rc *routev3.RouteConfiguration) []string {
	var names []string
	add := func(c string) {
		if c != "" && !slices.Contains(names, c) {
			names = append(names, c)
		}
	}
	for _, vh := range rc.VirtualHosts {
		for _, r := range vh.Routes {
			add(r.GetRoute().GetCluster())
			for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
				add(w.Name)
			}
		}
	}
	return names
}

// hostOf is the first host of an assignment.
func hostOf(m *endpointv3.ClusterLoadAssignment) string {
	for _, l := range m.Endpoints {
		for _, e := range l.LbEndpoints {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			return fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue())
		}
	}
	return "-"
}
