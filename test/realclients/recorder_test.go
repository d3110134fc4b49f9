//go:build e2e

package realclients

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sluice-xds/sluice/schema"
)

// message is one message of the conversation.
type message struct {
	at     time.Time
	stream int
	sent   bool // by the server
	typ    schema.Type
	// Of both:
	version, nonce string
	// Of a request:
	first   bool // of its type on its stream
	names   []string
	refusal string
	// Of a response:
	resources int
}

func (m message) String() string {
	if m.sent {
		return fmt.Sprintf("%d  <- %-9s version %.8s nonce %s: %d resources", m.stream, m.typ, m.version, m.nonce, m.resources)
	}
	out := fmt.Sprintf("%d  -> %-9s version %.8s nonce %s names %v", m.stream, m.typ, m.version, m.nonce, m.names)
	if m.refusal != "" {
		out += " NACK: " + m.refusal
	}
	return out
}

// recorder passes the messages of ADS streams on, one by one, and keeps them.
type recorder struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	addr     string
	upstream *grpc.ClientConn

	mu      sync.Mutex
	all     []message
	streams map[int]context.CancelFunc
	last    int
}

func startRecorder(t *testing.T, server string) *recorder {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{addr: lis.Addr().String(), upstream: up, streams: map[int]context.CancelFunc{}}
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	discoverypb.RegisterAggregatedDiscoveryServiceServer(srv, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
		_ = up.Close()
	})
	return r
}

// StreamAggregatedResources ends when either side does.
func (r *recorder) StreamAggregatedResources(down grpc.BidiStreamingServer[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := discoverypb.NewAggregatedDiscoveryServiceClient(r.upstream).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	id := r.open(cancel)
	defer r.closed(id)
	go func() { // ends with the stream of the client, which ends with the handler
		asked := map[string]bool{}
		for {
			req, err := down.Recv()
			if err != nil {
				_ = up.CloseSend()
				return
			}
			m := message{stream: id, version: req.VersionInfo, nonce: req.ResponseNonce, names: req.ResourceNames, refusal: req.ErrorDetail.GetMessage()}
			m.first, asked[req.TypeUrl] = !asked[req.TypeUrl], true
			r.note(m, req.TypeUrl)
			if up.Send(req) != nil {
				return
			}
		}
	}()
	for {
		res, err := up.Recv()
		if err != nil {
			return status.Error(codes.Unavailable, "the server ended the stream: "+err.Error())
		}
		r.note(message{stream: id, sent: true, version: res.VersionInfo, nonce: res.Nonce, resources: len(res.Resources)}, res.TypeUrl)
		if err := down.Send(res); err != nil {
			return err
		}
	}
}

func (r *recorder) open(cancel context.CancelFunc) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.streams[r.last] = cancel
	return r.last
}

func (r *recorder) closed(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.streams, id)
}

// cut ends every stream.
func (r *recorder) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cancel := range r.streams {
		cancel()
	}
}

func (r *recorder) note(m message, typeURL string) {
	m.at = time.Now()
	m.typ, _ = schema.TypeOf(typeURL)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, m)
}

// conversation is what was said since a time.
func (r *recorder) conversation(since time.Time) []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []message
	for _, m := range r.all {
		if !m.at.Before(since) {
			out = append(out, m)
		}
	}
	return out
}

// text writes a conversation down, with the seconds since its first message.
func text(ms []message) string {
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "%7.3f  %s\n", m.at.Sub(ms[0].at).Seconds(), m)
	}
	return b.String()
}

// checkConversation holds both sides to the protocol: nothing was refused, each
// answer carries the version that it answers (or it would be taken for that of a
// client that does not watch the type, rule S14), and no response of a type was
// sent while another had no answer.
func (r *rig) checkConversation() {
	r.t.Helper()
	type lane struct {
		stream int
		typ    schema.Type
	}
	open := map[lane]message{}
	responses, stale := 0, 0
	for _, m := range r.wire.conversation(time.Time{}) {
		l := lane{m.stream, m.typ}
		last, busy := open[l]
		switch {
		case m.sent && busy:
			r.t.Errorf("%s was sent before an answer to %s", m, last)
		case m.sent:
			open[l] = m
			responses++
		case m.refusal != "":
			r.t.Errorf("refused: %s", m)
		case busy && m.nonce == last.nonce && m.version != last.version:
			r.t.Errorf("%s answers %s with another version", m, last)
		case busy && m.nonce == last.nonce:
			delete(open, l)
		case busy:
			stale++
		}
	}
	r.t.Logf("%d responses, %d stale requests", responses, stale)
}
