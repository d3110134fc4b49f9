package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// Times of the servers under test.
const (
	pollEvery = 50 * time.Millisecond
	ackWait   = 10 * time.Second
)

// control is a control plane that serves a repository.
type control interface {
	status(context.Context) (*reconcile.Status, error)
	stop()
}

// freeAddr is an address that nothing listens on, chosen up front so that a
// server can come back to it.
func freeAddr(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// process is `sluice serve` as a child. It may be killed and started again.
type process struct {
	repo, dir, addr, socket string
	more                    []string // flags
	http                    *http.Client
	log                     log

	mu   sync.Mutex
	cmd  *exec.Cmd
	dead chan struct{} // closed when cmd has ended and was waited for
}

func newProcess(repo, dir, addr string) *process {
	p := &process{repo: repo, dir: dir, addr: addr, socket: filepath.Join(dir, "s.sock")}
	var d net.Dialer
	p.http = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", p.socket) },
	}}
	return p
}

func (p *process) store() string { return filepath.Join(p.dir, "store") }

// start starts the server and returns when it answers.
func (p *process) start(ctx context.Context) error {
	cmd := exec.Command(binary, "serve", "--repo", p.repo, "--listen", p.addr, "--socket", p.socket,
		"--store", p.store(), "--poll", pollEvery.String(), "--ack-wait", ackWait.String(),
		"--timeout", "30m") // should this process not live to stop it
	cmd.Args = append(cmd.Args, p.more...)
	cmd.Dir = p.dir // holds no settings
	cmd.Env = []string{"HOME=" + p.dir}
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start sluice: %w", err)
	}
	children.Lock()
	children.pids[cmd.Process.Pid] = true
	children.Unlock()
	fmt.Fprintf(&p.log, "--- process %d\n", cmd.Process.Pid)
	dead := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.dead = cmd, dead
	p.mu.Unlock()
	go func() { // ends with the process
		err := cmd.Wait()
		fmt.Fprintf(&p.log, "--- process %d ended: %v\n", cmd.Process.Pid, err)
		children.Lock()
		delete(children.pids, cmd.Process.Pid)
		children.Unlock()
		close(dead)
	}()
	return poll(ctx, func() (bool, error) {
		select {
		case <-dead:
			return false, errors.New("sluice ended as soon as it had begun")
		default:
		}
		_, err := p.status(ctx)
		return err == nil, nil
	})
}

// kill ends the server with SIGKILL, and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	cmd, dead := p.cmd, p.dead
	p.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill() // fails when it has ended
		<-dead
	}
}

func (p *process) stop() { p.kill() }

func (p *process) status(ctx context.Context) (*reconcile.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sluice/v1/status", nil)
	if err != nil {
		return nil, err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var st reconcile.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return nil, fmt.Errorf("cannot read the status %q: %w", body, err)
	}
	return &st, nil
}

// run runs another command of the binary and gives what it prints.
func (p *process) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = p.dir, []string{"HOME=" + p.dir}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// inProcess is a control plane in this process: the only way to give it a plan
// that is wrong.
type inProcess struct {
	loop *reconcile.Loop
	end  func()
}

func startInProcess(repo, dir, addr string, log io.Writer, plan func(schema.State, *schema.Target) *schema.Path) (*inProcess, error) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	store, err := reconcile.OpenStore(filepath.Join(dir, "store", "state.db"))
	if err != nil {
		lis.Close()
		return nil, err
	}
	source, err := reconcile.OpenGit(reconcile.GitOptions{URL: repo, Dir: filepath.Join(dir, "store", "repo")})
	if err != nil {
		lis.Close()
		store.Close()
		return nil, err
	}
	loop, err := reconcile.New(reconcile.Options{
		Source: source, Store: store, Log: slog.New(slog.NewTextHandler(log, nil)),
		Poll: pollEvery, Patience: ackWait, Plan: plan,
	})
	if err != nil {
		lis.Close()
		source.Close()
		store.Close()
		return nil, err
	}
	g := grpc.NewServer(append(ads.ServerOptions(), grpc.WaitForHandlers(true))...)
	loop.Server().Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = loop.Run(ctx) })
	running.Go(func() { _ = g.Serve(lis) })
	return &inProcess{loop, func() {
		g.Stop()
		cancel()
		running.Wait()
		source.Close()
		store.Close()
	}}, nil
}

func (s *inProcess) status(context.Context) (*reconcile.Status, error) { return s.loop.Status(), nil }
func (s *inProcess) stop()                                             { s.end() }

// log keeps the end of what a server writes.
type log struct {
	mu  sync.Mutex
	buf []byte
}

const logLimit = 16 << 10

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	if over := len(l.buf) - logLimit; over > 0 {
		l.buf = bytes.Clone(l.buf[over:])
	}
	return len(b), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
