package dataplane

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A Server is a backend that answers every method of every service with its
// label, and counts.
type Server struct {
	label    string
	addr     string
	requests atomic.Int64
	impl     interface {
		Serve(net.Listener) error
		Stop()
		GracefulStop()
	}
	served chan struct{} // closed when Serve returned

	mu      sync.Mutex
	serving bool
	refused error         // why it is not serving, if the xDS server said
	moved   chan struct{} // closed and replaced when serving changes
}

// StartPlain starts a backend on a free port of 127.0.0.1, without xDS.
func StartPlain(label string) (*Server, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot start backend %s: %w", label, err)
	}
	s := newServer(label, lis)
	s.serving = true
	s.impl = grpc.NewServer(grpc.UnknownServiceHandler(s.answer))
	s.serve(lis)
	return s, nil
}

// NewServer starts a proxyless gRPC server, an xDS node that asks for the
// Listener of its address. It does not wait until the server is SERVING, so
// listen may be "127.0.0.1:0" and the Listener made afterwards for Addr.
func NewServer(b Bootstrap, listen, label string) (*Server, error) {
	lis, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("cannot start server %s: %w", b.NodeID, err)
	}
	s := newServer(label, lis)
	impl, err := xds.NewGRPCServer(
		grpc.UnknownServiceHandler(s.answer),
		xds.BootstrapContentsForTesting(b.JSON()),
		xds.ServingModeCallback(func(_ net.Addr, a xds.ServingModeChangeArgs) {
			s.move(a.Mode == connectivity.ServingModeServing, a.Err)
		}))
	if err != nil {
		_ = lis.Close()
		return nil, fmt.Errorf("cannot start server %s: %w", b.NodeID, err)
	}
	s.impl = impl
	s.serve(lis)
	return s, nil
}

// StartServer is NewServer followed by WaitServing. It stops the server if ctx
// ends first.
func StartServer(ctx context.Context, b Bootstrap, listen, label string) (*Server, error) {
	s, err := NewServer(b, listen, label)
	if err != nil {
		return nil, err
	}
	if err := s.WaitServing(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func newServer(label string, lis net.Listener) *Server {
	return &Server{
		label: label, addr: lis.Addr().String(),
		served: make(chan struct{}), moved: make(chan struct{}),
	}
}

func (s *Server) serve(lis net.Listener) {
	go func() {
		defer close(s.served)
		_ = s.impl.Serve(lis) // ends with Stop or Drain
	}()
}

// answer serves one call of any method: the first message is enough.
func (s *Server) answer(_ any, stream grpc.ServerStream) error {
	s.requests.Add(1)
	var in emptypb.Empty
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	return stream.SendMsg(wrapperspb.String(s.label))
}

func (s *Server) move(serving bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving, s.refused = serving, err
	close(s.moved)
	s.moved = make(chan struct{})
}

// Label is what the server answers.
func (s *Server) Label() string { return s.label }

// Addr is the host:port that the server listens on.
func (s *Server) Addr() string { return s.addr }

// Requests is the number of calls that reached the server.
func (s *Server) Requests() int { return int(s.requests.Load()) }

// Serving tells whether the server accepts connections, and if not, why, as far
// as it said.
func (s *Server) Serving() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving, s.refused
}

// WaitServing returns when the server is SERVING.
func (s *Server) WaitServing(ctx context.Context) error {
	for {
		s.mu.Lock()
		serving, refused, moved := s.serving, s.refused, s.moved
		s.mu.Unlock()
		if serving {
			return nil
		}
		select {
		case <-moved:
		case <-s.served:
			return fmt.Errorf("server %s at %s is stopped", s.label, s.addr)
		case <-ctx.Done():
			if refused != nil {
				return fmt.Errorf("server %s at %s is not serving: %w", s.label, s.addr, refused)
			}
			return fmt.Errorf("server %s at %s is not serving: %w", s.label, s.addr, context.Cause(ctx))
		}
	}
}

// Stop closes every connection at once.
func (s *Server) Stop() {
	s.impl.Stop()
	<-s.served
}

// Drain ends new calls, waits for those that run, and stops. When ctx ends it
// stops hard.
func (s *Server) Drain(ctx context.Context) {
	hard := context.AfterFunc(ctx, s.impl.Stop)
	s.impl.GracefulStop()
	hard()
	<-s.served
}
