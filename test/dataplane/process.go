package dataplane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// stopGrace is how long a child may take to end after its input ended.
const stopGrace = 2 * time.Second

// GRPCGoProcess runs each grpc-go client in a child process: this binary again,
// which must call Main first. Its View is read from CSDS.
type GRPCGoProcess struct{}

// Name implements Driver.
func (GRPCGoProcess) Name() string { return "grpc-go-process" }

// Start implements Driver.
func (GRPCGoProcess) Start(ctx context.Context, b Bootstrap, target string) (Node, error) {
	if !hooked.Load() {
		return nil, fmt.Errorf("cannot start node %s: this program does not call dataplane.Main first", b.NodeID)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", b.NodeID, err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(childEnv(b), targetEnv+"="+target)
	return startProcess(ctx, cmd, b.NodeID)
}

// childEnv is this environment with b as the only xDS bootstrap. A bootstrap
// file would win over the contents, so it goes.
func childEnv(b Bootstrap) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GRPC_XDS_BOOTSTRAP") && !strings.HasPrefix(kv, targetEnv+"=") {
			env = append(env, kv)
		}
	}
	return append(env, "GRPC_XDS_BOOTSTRAP_CONFIG="+string(b.JSON()))
}

// process is a Node behind the control protocol. Its reader goroutine owns the
// end of the child: it waits for the process and closes done.
type process struct {
	id       string
	cmd      *exec.Cmd
	stdin    io.Closer
	commands chan command
	csds     *grpc.ClientConn // nil if the client has none
	stop     sync.Once
	stopping chan struct{} // closed by Stop: no command is written after it
	done     chan struct{} // closed when the process is gone
	written  chan struct{} // closed when the writer ended
	stderr   tail

	mu      sync.Mutex
	last    uint64
	pending map[uint64]chan reply
}

// startProcess starts cmd and reads its hello.
func startProcess(ctx context.Context, cmd *exec.Cmd, id string) (*process, error) {
	p := &process{
		id: id, cmd: cmd,
		commands: make(chan command, 64),
		stopping: make(chan struct{}),
		done:     make(chan struct{}),
		written:  make(chan struct{}),
		pending:  map[uint64]chan reply{},
	}
	cmd.Stderr = &p.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", id, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", id, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", id, err)
	}
	p.stdin = stdin
	greeted := make(chan hello, 1)
	go p.read(stdout, greeted)
	go func() {
		defer close(p.written)
		_ = writeLines(stdin, p.commands, p.stopping) // a broken pipe: the reader sees the end
	}()
	select {
	case h := <-greeted:
		if h.CSDS == "" {
			return p, nil
		}
		p.csds, err = grpc.NewClient(h.CSDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	case <-p.done:
		err = fmt.Errorf("it ended: %s", p.stderr.String())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("cannot start node %s: %w", id, err)
	}
	return p, nil
}

// read hands each reply to its caller. At the end of the output it waits for
// the process.
func (p *process) read(stdout io.Reader, greeted chan<- hello) {
	defer close(p.done)
	lines := json.NewDecoder(bufio.NewReader(stdout))
	var h hello
	err := lines.Decode(&h)
	if err == nil {
		greeted <- h
	}
	for err == nil {
		var re reply
		if err = lines.Decode(&re); err != nil {
			break
		}
		p.mu.Lock()
		to := p.pending[re.ID]
		delete(p.pending, re.ID)
		p.mu.Unlock()
		if to != nil {
			to <- re
		}
	}
	_ = p.stdin.Close() // a child that writes nonsense must end too
	if err != io.EOF {
		_ = p.cmd.Process.Kill()
	}
	_ = p.cmd.Wait() // how it ended is of no interest: its end is the report
}

// do sends one command and waits for its reply.
func (p *process) do(ctx context.Context, c command) (reply, error) {
	to := make(chan reply, 1)
	p.mu.Lock()
	p.last++
	c.ID = p.last
	p.pending[c.ID] = to
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.pending, c.ID)
		p.mu.Unlock()
	}()
	if d, ok := ctx.Deadline(); ok {
		c.TimeoutUS = max(1, time.Until(d).Microseconds())
	}
	commands := p.commands
	for {
		select {
		case commands <- c:
			commands = nil
		case re := <-to:
			if re.Code != codes.OK {
				return re, status.Error(re.Code, re.Error)
			}
			return re, nil
		case <-ctx.Done():
			return reply{}, status.FromContextError(ctx.Err()).Err()
		case <-p.stopping:
			return reply{}, errStopped
		case <-p.done:
			return reply{}, errStopped
		}
	}
}

var errStopped = errors.New("the node's process has ended")

func (p *process) ID() string { return p.id }

// PID is that of the child process.
func (p *process) PID() int { return p.cmd.Process.Pid }

func (p *process) Ready(ctx context.Context) error {
	if _, err := p.do(ctx, command{Op: "ready"}); err != nil {
		return fmt.Errorf("cannot wait for node %s: %w", p.id, err)
	}
	return nil
}

func (p *process) Send(ctx context.Context, r Request) (Answer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	re, err := p.do(ctx, command{Op: "send", Path: r.Path, Header: r.Header})
	return Answer{Label: re.Label}, err
}

func (p *process) View(ctx context.Context) ([]Held, error) {
	if p.csds == nil {
		return nil, fmt.Errorf("cannot view node %s: %w", p.id, errors.ErrUnsupported)
	}
	return fetchView(ctx, p.csds)
}

// Stop ends the child's input, and kills the child if that does not end it.
func (p *process) Stop() {
	p.stop.Do(func() {
		close(p.stopping)
		_ = p.stdin.Close()
		if p.csds != nil {
			_ = p.csds.Close()
		}
		kill := time.AfterFunc(stopGrace, func() { _ = p.cmd.Process.Kill() })
		<-p.done
		kill.Stop()
		<-p.written
	})
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
