package sim

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/schema"
)

// message is one message of the protocol, of either variant and direction.
type message struct {
	t       schema.Type
	nonce   string
	version string
	node    string
	// Of a request:
	names, drop []string
	initial     map[string]string
	words       string // of a refusal
	// Of a response:
	items    []*item
	versions []string // delta: of the items
	removed  []string
}

func (m *message) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s nonce %q", m.t.Short(), m.nonce)
	if m.version != "" {
		fmt.Fprintf(&b, " version %.4s", m.version)
	}
	for _, it := range m.items {
		fmt.Fprintf(&b, " %s@%.4s%s", it.Name, it.Version, it.leads())
	}
	for _, l := range []struct {
		word  string
		names []string
	}{{"asks", m.names}, {"drops", m.drop}, {"removes", m.removed}} {
		if len(l.names) > 0 {
			fmt.Fprintf(&b, " %s %v", l.word, l.names)
		}
	}
	if len(m.initial) > 0 {
		fmt.Fprintf(&b, " holds %v", keys(m.initial))
	}
	if m.words != "" {
		fmt.Fprintf(&b, " REFUSES: %s", m.words)
	}
	return b.String()
}

// request encodes what a client says.
func (m *message) request(delta bool) []byte {
	var refusal *statuspb.Status
	if m.words != "" {
		refusal = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: m.words}
	}
	var node *corev3.Node
	if m.node != "" {
		node = &corev3.Node{Id: m.node}
	}
	var msg proto.Message = &discoveryv3.DiscoveryRequest{
		VersionInfo: m.version, Node: node, ResourceNames: m.names, TypeUrl: m.t.URL(), ResponseNonce: m.nonce, ErrorDetail: refusal,
	}
	if delta {
		msg = &discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: m.t.URL(), ResourceNamesSubscribe: m.names, ResourceNamesUnsubscribe: m.drop,
			InitialResourceVersions: m.initial, ResponseNonce: m.nonce, ErrorDetail: refusal,
		}
	}
	b, err := proto.Marshal(msg)
	if err != nil {
		panic(err) // strings and maps of them always encode
	}
	return b
}

// response decodes what the server says.
func response(b []byte, delta bool) (*message, error) {
	m := &message{}
	url := ""
	if delta {
		var r discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(b, &r); err != nil {
			return nil, err
		}
		url, m.nonce, m.removed = r.TypeUrl, r.Nonce, r.RemovedResources
		for _, res := range r.Resources {
			it, err := itemOf(res.Resource)
			if err != nil {
				return nil, err
			}
			m.items, m.versions = append(m.items, it), append(m.versions, res.Version)
		}
	} else {
		var r discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(b, &r); err != nil {
			return nil, err
		}
		url, m.nonce, m.version = r.TypeUrl, r.Nonce, r.VersionInfo
		for _, res := range r.Resources {
			it, err := itemOf(res)
			if err != nil {
				return nil, err
			}
			m.items = append(m.items, it)
		}
	}
	t, ok := schema.TypeOf(url)
	if !ok {
		return nil, fmt.Errorf("a response of the type %q", url)
	}
	m.t = t
	return m, nil
}

// wire is a stream between a process and a server. It is what the server's
// handler is called with; the history moves messages over it, one at a time.
type wire struct {
	h     *history
	proc  *proc
	plane *plane
	delta bool
	ctx   context.Context
	cut   context.CancelFunc

	recv  chan *message // to the handler
	up    []*message    // said, and not yet heard
	heard bool          // something was: the server knows of the session

	mu   sync.Mutex
	down []*message // sent, and not yet read
	over error      // what the handler returned
	// open is the nonce of the un-ACKed response of each type, seen all nonces.
	open [schema.NumTypes]string
	told map[string]schema.Version // for a fault: the endpoints that it carried
	seen map[string]bool
}

// openWire begins a stream. Its handler ends when the stream is cut.
func openWire(p *proc, pl *plane) *wire {
	w := &wire{h: p.h, proc: p, plane: pl, delta: p.delta, recv: make(chan *message, 1), seen: map[string]bool{}}
	w.ctx, w.cut = context.WithCancel(context.Background())
	method := "StreamAggregatedResources"
	if p.delta {
		method = "DeltaAggregatedResources"
	}
	pl.handlers.Go(func() {
		err := pl.methods[method](nil, w)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil {
			err = io.EOF
		}
		w.over = err
	})
	return w
}

func (w *wire) ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

func (w *wire) SetHeader(metadata.MD) error  { return nil }
func (w *wire) SendHeader(metadata.MD) error { return nil }
func (w *wire) SetTrailer(metadata.MD)       {}
func (w *wire) Context() context.Context     { return w.ctx }

var codec = ads.Codec()

// RecvMsg gives the handler the next request.
func (w *wire) RecvMsg(v any) error {
	select {
	case m := <-w.recv:
		w.mu.Lock()
		if w.open[m.t] == m.nonce {
			w.open[m.t] = ""
		}
		w.mu.Unlock()
		return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(m.request(w.delta))}, v)
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// SendMsg takes what the server sends, if it still lives.
func (w *wire) SendMsg(v any) error {
	data, err := codec.Marshal(v)
	if err != nil {
		return err
	}
	m, err := response(data.Materialize(), w.delta)
	if err != nil {
		w.h.fail("%s is sent what cannot be read: %v", w.proc, err)
		return err
	}
	if w.plane.dies() || w.ctx.Err() != nil {
		return io.ErrClosedPipe
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if was := w.open[m.t]; was != "" {
		w.h.fail("%s is sent %s while %q waits for its answer", w.proc, m, was)
	}
	if w.seen[m.nonce] {
		w.h.fail("%s is sent the nonce %q twice", w.proc, m.nonce)
	}
	w.open[m.t], w.seen[m.nonce] = m.nonce, true
	w.h.inTurn(w.proc, m)
	if w.h.fault.wire != nil {
		w.h.fault.wire(w, m)
	}
	w.down = append(w.down, m)
	return nil
}

// next takes the next response off the wire.
func (w *wire) next() *message {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.down[0]
	w.down = w.down[1:]
	return m
}

func (w *wire) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.down)
}
