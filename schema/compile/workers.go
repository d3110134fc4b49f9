package compile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// bounds are those of the evaluation.
type bounds struct {
	command  []string // of a worker; none evaluates in this process
	memory   int64
	deadline time.Duration
}

func (o *Options) bounds() (bounds, error) {
	b := bounds{command: o.Worker, memory: o.Limits.Memory, deadline: o.Limits.Deadline}
	if b.memory == 0 {
		b.memory = 1 << 30
	}
	if b.deadline == 0 {
		b.deadline = 30 * time.Second
	}
	inside := os.Getenv(workerVariable) != "" // a worker never starts a worker
	switch {
	case o.InProcess || inside:
		b.command = nil
	case b.command == nil && hosting.Load():
		self, err := os.Executable()
		if err != nil {
			return b, fmt.Errorf("cannot find the executable for a worker: %w", err)
		}
		b.command = []string{self}
	}
	return b, nil
}

// worker is a process that evaluates packages, owned by one goroutine. It is
// started when it is first needed, and again after it died.
type worker struct {
	bounds
	job *job

	cmd    *exec.Cmd
	cancel context.CancelFunc
	in     io.WriteCloser
	enc    *gob.Encoder
	out    *bufio.Reader
	stderr *tail
	over   chan struct{} // closed when the watcher has ended
}

// evaluate evaluates a batch. Where the worker dies, the package that it was at
// is tried once more, alone, as those before may have taken the memory; if it
// dies again that package is the culprit. The rest goes on.
func (w *worker) evaluate(ctx context.Context, batch []pkgRef, done func(int, pkg)) error {
	for at := 0; at < len(batch); {
		n, err := w.run(ctx, batch[at:], func(i int, p pkg) { done(at+i, p) })
		at += n
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		var died *death
		if !errors.As(err, &died) {
			return err
		}
		alone := len(batch) == 1 && n == 0
		switch {
		case alone || died.late && n > 0: // its own time was over
			n = 0
		default:
			n, err = w.run(ctx, batch[at:at+1], func(_ int, p pkg) { done(at, p) })
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if n == 0 && !errors.As(err, &died) {
				return err
			}
		}
		if n == 0 {
			done(at, pkg{pkgRef: batch[at], bad: schema.Diagnostics{died.diagnostic(batch[at], w.bounds)}})
		}
		at++
	}
	return nil
}

// death is how a worker ended that was not told to.
type death struct {
	late   bool
	stderr string
	err    error
}

func (d *death) Error() string { return "the worker died: " + d.stderr }

func (d *death) diagnostic(p pkgRef, b bounds) schema.Diagnostic {
	out := schema.Diagnostic{
		Pos: schema.Pos{File: p.file}, Code: "evaluation-limit",
		Hint: "look for nested comprehensions, for large ranges, and for text that is repeated",
	}
	switch {
	case d.late:
		out.Message = fmt.Sprintf("package %q takes longer than %v to evaluate", p.name, b.deadline)
	case strings.Contains(d.stderr, "stack exceeds"):
		out.Message = fmt.Sprintf("package %q is nested too deeply to evaluate", p.name)
	case d.stderr == "" || strings.Contains(d.stderr, "memory"):
		out.Message = fmt.Sprintf("package %q needs more than %d MiB to evaluate", p.name, b.memory>>20)
	default:
		first, _, _ := strings.Cut(d.stderr, "\n")
		out.Message = fmt.Sprintf("CUE's evaluator failed on package %q: %s", p.name, first)
	}
	return out
}

// run sends one order and reads the packages until all are there or the worker
// has died. It returns how many came.
func (w *worker) run(ctx context.Context, batch []pkgRef, done func(int, pkg)) (int, error) {
	if w.cmd == nil {
		if err := w.start(ctx); err != nil {
			return 0, err
		}
	}
	var late sync.Once
	isLate := false
	timer := time.AfterFunc(w.deadline, func() { late.Do(func() { isLate = true }); w.cancel() })
	defer timer.Stop()
	var o order
	for _, p := range batch {
		o.Pkgs = append(o.Pkgs, orderedPkg{p.dir, p.name, p.file})
	}
	err := w.enc.Encode(o)
	for i := range batch {
		var p pkg
		if err == nil {
			p, err = w.next()
		}
		if err != nil {
			text, waited := w.end()
			late.Do(func() {}) // so that isLate is not written any more
			return i, &death{late: isLate, stderr: text, err: errors.Join(err, waited)}
		}
		timer.Reset(w.deadline)
		done(i, p)
	}
	return len(batch), nil
}

func (w *worker) next() (pkg, error) {
	size, err := binary.ReadUvarint(w.out)
	if err != nil {
		return pkg{}, err
	}
	if size > uint64(w.memory) {
		return pkg{}, errEncoding
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(w.out, data); err != nil {
		return pkg{}, err
	}
	return decodePkg(data)
}

func (w *worker) start(ctx context.Context) error {
	ctx, w.cancel = context.WithCancel(ctx)
	w.cmd = exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	w.cmd.Env = append(os.Environ(), workerVariable+"=1")
	w.stderr = &tail{}
	w.cmd.Stderr = w.stderr
	var out io.ReadCloser
	var err error
	if w.in, err = w.cmd.StdinPipe(); err == nil {
		out, err = w.cmd.StdoutPipe()
	}
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		w.cancel()
		w.cmd = nil
		return fmt.Errorf("cannot start a worker: %w", err)
	}
	w.over = make(chan struct{})
	go func(pid int, kill func()) {
		defer close(w.over)
		watchMemory(ctx, pid, w.memory, kill)
	}(w.cmd.Process.Pid, w.cancel)
	buf := bufio.NewWriter(w.in)
	w.out, w.enc = bufio.NewReader(out), gob.NewEncoder(flushing{buf})
	_ = w.enc.Encode(w.job) // if it died of this, the first answer will not come
	return nil
}

// end stops the worker, if it still runs, and returns the end of what it said.
func (w *worker) end() (string, error) {
	if w.cmd == nil {
		return "", nil
	}
	w.in.Close()
	w.cancel()
	err := w.cmd.Wait()
	<-w.over
	w.cmd = nil
	return w.stderr.String(), err
}

// flushing writes each of gob's messages out at once.
type flushing struct{ *bufio.Writer }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err == nil {
		err = f.Flush()
	}
	return n, err
}

// tail keeps the beginning of what a worker says as it dies: Go's reason stands
// there, before the stacks.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	if room := 4096 - t.Len(); room > 0 {
		t.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// jobOf is the tree as a worker gets it: all CUE files, and beside a package that
// embeds, what it could.
func (s *source) jobOf(b bounds) *job {
	j := &job{
		Module: s.module, Schema: s.schema, Registry: s.registry, Vendored: s.vendored, Memory: b.memory,
		Files: map[string][]byte{}, Unreadable: map[string]string{},
	}
	embeds := map[string]bool{}
	for p, f := range s.tree.files {
		if f.data != nil || f.lazy == "" {
			j.Files[p] = f.data
			if bytes.Contains(f.data, []byte("@embed")) {
				embeds[path.Dir(p)] = true
			}
		}
	}
	if len(embeds) == 0 {
		return j
	}
	for p, f := range s.tree.files {
		if f.data != nil || f.lazy == "" || !below(p, embeds) {
			continue
		}
		data, err := s.tree.read(f)
		if err != nil {
			j.Unreadable[p] = err.Error()
		} else {
			j.Files[p] = data
		}
	}
	return j
}

// below reports whether a file is in one of the directories, or deeper.
func below(p string, dirs map[string]bool) bool {
	for d := path.Dir(p); ; d = path.Dir(d) {
		if dirs[d] {
			return true
		}
		if d == "." {
			return false
		}
	}
}
