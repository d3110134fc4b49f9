package dataplane

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// GRPCGo runs grpc-go clients in this process, each with an xDS client of its
// own. View is unsupported: grpc-go's CSDS covers only the bootstrap of the
// environment (use GRPCGoProcess).
type GRPCGo struct{}

// Name implements Driver.
func (GRPCGo) Name() string { return "grpc-go" }

// Start implements Driver.
func (GRPCGo) Start(_ context.Context, b Bootstrap, target string) (Node, error) {
	builder, err := xds.NewXDSResolverWithConfigForTesting(b.JSON())
	if err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", b.NodeID, err)
	}
	c, err := dial(target, grpc.WithResolvers(builder))
	if err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", b.NodeID, err)
	}
	return &inProcess{channel: c, id: b.NodeID}, nil
}

type inProcess struct {
	channel
	id string
}

func (n *inProcess) ID() string { return n.id }

func (n *inProcess) Stop() { _ = n.conn.Close() } // fails only when closed twice

func (n *inProcess) View(context.Context) ([]Held, error) {
	return nil, fmt.Errorf("cannot view node %s in process: %w", n.id, errors.ErrUnsupported)
}

// channel is one grpc-go channel that never idles and never retries by policy.
type channel struct{ conn *grpc.ClientConn }

func dial(target string, opts ...grpc.DialOption) (channel, error) {
	opts = append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0))
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return channel{}, err
	}
	conn.Connect() // the xDS stream starts here, not with the first request
	return channel{conn}, nil
}

func (c channel) Ready(ctx context.Context) error {
	for {
		s := c.conn.GetState()
		switch s {
		case connectivity.Ready:
			return nil
		case connectivity.Shutdown:
			return errors.New("cannot become ready: stopped")
		case connectivity.Idle:
			c.conn.Connect()
		}
		if !c.conn.WaitForStateChange(ctx, s) {
			return fmt.Errorf("cannot become ready: %v: %w", s, context.Cause(ctx))
		}
	}
}

// empty is every request's message. It is shared: marshalling only reads it.
var empty = &emptypb.Empty{}

func (c channel) Send(ctx context.Context, r Request) (Answer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	for k, v := range r.Header {
		ctx = metadata.AppendToOutgoingContext(ctx, k, v)
	}
	path := r.Path
	if path == "" {
		path = DefaultPath
	}
	var label wrapperspb.StringValue
	if err := c.conn.Invoke(ctx, path, empty, &label); err != nil {
		return Answer{}, err
	}
	return Answer{Label: label.Value}, nil
}
