package acceptance

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sluice-xds/sluice/schema"
)

// event is one message that passes the proxy.
type event struct {
	kind kind
	typ  schema.Type
	node string
	nack string // the words of a NACK
}

type kind string

// The kinds of messages.
const (
	send kind = "send" // a response
	ack  kind = "ACK"
	nack kind = "NACK"
	ask  kind = "ask" // any other request: a subscription
)

func (e event) String() string { return fmt.Sprintf("%s %s %s", e.kind, e.typ.Short(), e.node) }

// tap sees each message before and after it is passed on. A message that it
// refuses is lost, and the stream ends as if the server had died.
type tap interface {
	before(event) bool
	after(event)
}

// proxy stands between the nodes and the server and passes messages on, one by
// one and in order. When the server dies it ends the streams of the nodes, as
// the server's own connections would; while there is none, new streams wait.
type proxy struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	addr     string
	upstream *grpc.ClientConn
	tap      tap
	acks     atomic.Int64
	nacks    atomic.Int64
}

func startProxy(t *testing.T, server string, tap tap) *proxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fast := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond}
	up, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: fast, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: lis.Addr().String(), upstream: up, tap: tap}
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	discoverypb.RegisterAggregatedDiscoveryServiceServer(srv, p)
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
	return p
}

func (p *proxy) StreamAggregatedResources(down grpc.BidiStreamingServer[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]) error {
	ctx, cancel := context.WithCancel(down.Context())
	up, err := discoverypb.NewAggregatedDiscoveryServiceClient(p.upstream).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		cancel()
		return err
	}
	s := &proxied{proxy: p, acked: map[string]string{}, cancel: cancel}
	// The node names itself in its first request.
	first, err := down.Recv()
	if err != nil {
		cancel()
		return err
	}
	s.node = first.GetNode().GetId()
	go func() { // ends with either stream: Recv fails when the handler has returned
		for req, err := first, error(nil); err == nil; req, err = down.Recv() {
			if !s.request(up, req) {
				return
			}
		}
		_ = up.CloseSend()
	}()
	err = s.responses(up, down)
	cancel()
	if err == nil || err == io.EOF {
		return nil
	}
	return status.Error(codes.Unavailable, "the server has gone: "+err.Error())
}

// proxied is one stream.
type proxied struct {
	*proxy
	node   string
	acked  map[string]string // type to the last nonce that was answered
	cancel func()
}

// request passes one request on.
func (s *proxied) request(up discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient, req *discoverypb.DiscoveryRequest) bool {
	e := event{kind: ask, node: s.node}
	e.typ, _ = schema.TypeOf(req.TypeUrl)
	if n := req.ResponseNonce; n != "" && n != s.acked[req.TypeUrl] {
		s.acked[req.TypeUrl] = n
		e.kind = ack
		s.acks.Add(1)
		if req.ErrorDetail != nil {
			e.kind, e.nack = nack, req.ErrorDetail.Message
			s.nacks.Add(1)
		}
	}
	if !s.tap.before(e) || up.Send(req) != nil {
		s.cancel()
		return false
	}
	s.tap.after(e)
	return true
}

// responses passes responses on until the stream ends.
func (s *proxied) responses(up discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient, down grpc.BidiStreamingServer[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]) error {
	for {
		res, err := up.Recv()
		if err != nil {
			return err
		}
		e := event{kind: send, node: s.node}
		e.typ, _ = schema.TypeOf(res.TypeUrl)
		if !s.tap.before(e) {
			return fmt.Errorf("lost: %s", e)
		}
		if err := down.Send(res); err != nil {
			return err
		}
		s.tap.after(e)
	}
}

// groupOfNode is the group that a node of these tests belongs to.
func groupOfNode(id string) string {
	if strings.HasPrefix(id, "server-") {
		return "backends"
	}
	return "frontends"
}
