package dataplane

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/admin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// targetEnv makes this binary a child node for the target that it names.
const targetEnv = "SLUICE_DATAPLANE_TARGET"

// The control protocol of a child node is one JSON object per line. The child
// first writes a hello. Then it reads commands and writes one reply for each, in
// any order. The end of its input ends the child.
type (
	hello struct {
		CSDS string `json:"csds,omitempty"` // host:port, empty if the client has none
	}
	command struct {
		ID        uint64            `json:"id"`
		Op        string            `json:"op"` // "ready" or "send"
		Path      string            `json:"path,omitempty"`
		Header    map[string]string `json:"header,omitempty"`
		TimeoutUS int64             `json:"timeout_us,omitempty"` // 0: none
	}
	reply struct {
		ID    uint64     `json:"id"`
		Label string     `json:"label,omitempty"`
		Code  codes.Code `json:"code,omitempty"` // gRPC status code
		Error string     `json:"error,omitempty"`
	}
)

// hooked tells that Main was called, so that a child would not run the program
// itself again.
var hooked atomic.Bool

// Main turns the process into a child node if GRPCGoProcess started it as one,
// and then does not return. A program or test that uses GRPCGoProcess calls it
// first in main or TestMain.
func Main() {
	target := os.Getenv(targetEnv)
	if target == "" {
		hooked.Store(true)
		return
	}
	// An interrupt from the terminal reaches the whole process group. The
	// parent decides when its children end.
	signal.Ignore(os.Interrupt)
	if err := runChild(target, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runChild serves the control protocol until in ends.
func runChild(target string, in io.Reader, out io.Writer) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cannot listen for CSDS: %w", err)
	}
	srv := grpc.NewServer()
	cleanup, err := admin.Register(srv)
	if err != nil {
		return fmt.Errorf("cannot register CSDS: %w", err)
	}
	defer cleanup()
	go func() { _ = srv.Serve(lis) }() // ends with Stop
	defer srv.Stop()

	c, err := dial(target)
	if err != nil {
		return fmt.Errorf("cannot dial %s: %w", target, err)
	}
	defer func() { _ = c.conn.Close() }()

	replies := make(chan any, 64)
	written := make(chan error, 1)
	go func() { written <- writeLines(out, replies, nil) }()
	replies <- hello{CSDS: lis.Addr().String()}

	ctx, cancel := context.WithCancel(context.Background())
	var pending sync.WaitGroup
	lines := json.NewDecoder(bufio.NewReader(in))
	for {
		var cmd command
		if err = lines.Decode(&cmd); err != nil {
			break
		}
		pending.Go(func() { replies <- c.run(ctx, cmd) })
	}
	cancel()
	pending.Wait()
	close(replies)
	if err == io.EOF {
		err = nil
	}
	if werr := <-written; err == nil {
		err = werr
	}
	return err
}

// run carries out one command.
func (c channel) run(ctx context.Context, cmd command) reply {
	if cmd.TimeoutUS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(cmd.TimeoutUS)*time.Microsecond)
		defer cancel()
	}
	re := reply{ID: cmd.ID}
	var err error
	switch cmd.Op {
	case "ready":
		err = c.Ready(ctx)
	case "send":
		var a Answer
		a, err = c.Send(ctx, Request{Path: cmd.Path, Header: cmd.Header})
		re.Label = a.Label
	default:
		err = status.Errorf(codes.Unimplemented, "unknown op %q", cmd.Op)
	}
	if err != nil {
		s := status.Convert(err)
		re.Code, re.Error = s.Code(), s.Message()
	}
	return re
}

// writeLines encodes each value as a line until values closes or stop does. It
// flushes when no more is waiting. After an error it only drains.
func writeLines[T any](out io.Writer, values <-chan T, stop <-chan struct{}) error {
	buf := bufio.NewWriter(out)
	enc := json.NewEncoder(buf)
	var err error
	for {
		select {
		case <-stop:
			return err
		case v, ok := <-values:
			if !ok {
				return err
			}
			if err != nil {
				continue
			}
			err = enc.Encode(v)
			if err == nil && len(values) == 0 {
				err = buf.Flush()
			}
		}
	}
}
