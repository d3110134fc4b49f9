package fleet

import (
	"context"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// wire is an aggregated stream of either variant.
type wire interface {
	// send sends a request: the names that the client asks for of a kind, what
	// that changes, and the answer to a response if there is one.
	send(q request) error
	recv(l *library) (r *response, bytes int, err error)
}

// request is what a client says.
type request struct {
	k                     kind
	node                  *corev3.Node // on a stream's first
	names, added, dropped []string
	nonce, version        string            // of the response that is answered
	initial               map[string]string // what a delta client holds
	words                 string            // of a refusal
}

func (q *request) failure() *status.Status {
	if q.words == "" {
		return nil
	}
	return &status.Status{Code: int32(codes.InvalidArgument), Message: q.words}
}

func open(ctx context.Context, conn *grpc.ClientConn, delta bool) (wire, error) {
	api := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		s, err := api.DeltaAggregatedResources(ctx)
		return deltaWire{s}, err
	}
	s, err := api.StreamAggregatedResources(ctx)
	return sotwWire{s}, err
}

type sotwWire struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func (w sotwWire) send(q request) error {
	return w.Send(&discoveryv3.DiscoveryRequest{
		Node: q.node, TypeUrl: urls[q.k], ResourceNames: q.names, VersionInfo: q.version, ResponseNonce: q.nonce, ErrorDetail: q.failure(),
	})
}

func (w sotwWire) recv(l *library) (*response, int, error) {
	m, err := w.Recv()
	if err != nil {
		return nil, 0, err
	}
	r := &response{nonce: m.Nonce, version: m.VersionInfo}
	if err := r.of(m.TypeUrl); err != nil {
		return nil, 0, err
	}
	for _, a := range m.Resources {
		c, err := l.read(r.k, a)
		if err != nil {
			r.bad = err.Error()
			continue
		}
		r.items = append(r.items, held{content: c})
	}
	return r, proto.Size(m), nil
}

type deltaWire struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (w deltaWire) send(q request) error {
	m := &discoveryv3.DeltaDiscoveryRequest{
		Node: q.node, TypeUrl: urls[q.k], ResponseNonce: q.nonce, ErrorDetail: q.failure(),
		ResourceNamesSubscribe: q.added, ResourceNamesUnsubscribe: q.dropped, InitialResourceVersions: q.initial,
	}
	return w.Send(m)
}

func (w deltaWire) recv(l *library) (*response, int, error) {
	m, err := w.Recv()
	if err != nil {
		return nil, 0, err
	}
	r := &response{nonce: m.Nonce, version: m.SystemVersionInfo, removed: m.RemovedResources}
	if err := r.of(m.TypeUrl); err != nil {
		return nil, 0, err
	}
	for _, d := range m.Resources {
		c, err := l.read(r.k, d.Resource)
		switch {
		case err != nil:
			r.bad = err.Error()
		case d.Name != c.name:
			r.bad = fmt.Sprintf("%s %s is sent under the name %s", r.k, c.name, d.Name)
		default:
			r.items = append(r.items, held{c, d.Version})
		}
	}
	return r, proto.Size(m), nil
}

// of sets a response's kind. Of a kind that is not known no answer can be given:
// the stream is of no use any more.
func (r *response) of(url string) error {
	k, ok := kindOf(url)
	if !ok {
		return malformed(fmt.Sprintf("a response of type %q, which was not asked for", url))
	}
	r.k = k
	return nil
}

// malformed ends a stream.
type malformed string

func (m malformed) Error() string { return string(m) }
