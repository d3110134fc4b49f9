package dataplane

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Environment of a server of the C core.
const (
	listenEnv = "SLUICE_DATAPLANE_LISTEN"
	labelEnv  = "SLUICE_DATAPLANE_LABEL"
)

// A CCoreServer is a proxyless gRPC server on the C core: a child process, and an
// xDS node that asks for the Listener of its address. It answers every method
// with its label. A goroutine waits for the process and closes done.
type CCoreServer struct {
	addr  string
	cmd   *exec.Cmd
	stdin io.Closer
	stop  sync.Once
	done  chan struct{}
	out   tail
}

// NewCCoreServer starts a server at listen, whose port is not 0. It does not wait
// until the server is serving.
func NewCCoreServer(b Bootstrap, listen, label string) (*CCoreServer, error) {
	s, err := newCCoreServer(b, listen, label)
	if err != nil {
		return nil, fmt.Errorf("cannot start server %s: %w", b.NodeID, err)
	}
	return s, nil
}

func newCCoreServer(b Bootstrap, listen, label string) (*CCoreServer, error) {
	script, err := inRepository("test/clients/ccore_server.py")
	if err != nil {
		return nil, err
	}
	s := &CCoreServer{addr: listen, done: make(chan struct{})}
	s.cmd = exec.Command(python, filepath.Base(script))
	s.cmd.Dir = filepath.Dir(script)
	s.cmd.Env = append(childEnv(b), listenEnv+"="+listen, labelEnv+"="+label)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // it is told to end, or WaitServing finds that it has
	}()
	return s, nil
}

// Addr is the host:port that the server listens on.
func (s *CCoreServer) Addr() string { return s.addr }

// WaitServing returns when a client could connect: the server itself does not say.
func (s *CCoreServer) WaitServing(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with this function
		select {
		case <-s.done:
			cancel(fmt.Errorf("%w: %s", errStopped, s.out.String()))
		case <-ctx.Done():
		}
	}()
	c, err := dial("passthrough:///" + s.addr)
	if err != nil {
		return fmt.Errorf("cannot reach server %s: %w", s.addr, err)
	}
	defer func() { _ = c.conn.Close() }()
	if err := c.Ready(ctx); err != nil {
		return fmt.Errorf("server %s is not serving: %w", s.addr, err)
	}
	return nil
}

// Stop ends the server's input, and kills it if that does not end it.
func (s *CCoreServer) Stop() {
	s.stop.Do(func() {
		_ = s.stdin.Close()
		kill := time.AfterFunc(stopGrace, func() { _ = s.cmd.Process.Kill() })
		<-s.done
		kill.Stop()
	})
}
