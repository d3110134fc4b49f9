package compile

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// workerVariable is set in the environment of a worker.
const workerVariable = "SLUICE_WORKER"

// hosting is set once WorkerMain was called in a process that is no worker: its
// executable can be run as one.
var hosting atomic.Bool

// WorkerMain turns the process into a worker, and never returns, if it was
// started as one. It must be the first call of main, and of a TestMain in whose
// package something compiles; without it evaluation stays in the process, where
// nothing bounds it.
func WorkerMain() {
	if os.Getenv(workerVariable) != "1" {
		hosting.Store(true)
		return
	}
	if err := work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sluice worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// job is what a worker is told first: the tree and its own bounds.
type job struct {
	Module, Schema     string
	Files              map[string][]byte
	Unreadable         map[string]string // files that cannot be read, and why
	Registry, Vendored map[string]string
	Memory             int64
}

// order is one batch.
type order struct{ Pkgs []orderedPkg }

type orderedPkg struct{ Dir, Name, File string }

// work evaluates the batches that come in and sends each package as soon as it
// is done, so that the parent knows which one it was if the worker dies.
func work(in io.Reader, out io.Writer) error {
	debug.SetGCPercent(300)
	runtime.GOMAXPROCS(1) // there is a worker for each core
	dec := gob.NewDecoder(bufio.NewReader(in))
	var j job
	if err := dec.Decode(&j); err != nil {
		return err
	}
	if j.Memory > 0 {
		debug.SetMemoryLimit(j.Memory / 4 * 3)
		if err := limitMemory(j.Memory); err != nil {
			return err
		}
	}
	s := j.source()
	w := bufio.NewWriter(out)
	for {
		var o order
		if err := dec.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		refs := make([]pkgRef, len(o.Pkgs))
		for i, p := range o.Pkgs {
			refs[i] = pkgRef{p.Dir, p.Name, p.File}
		}
		var failed error
		evalBatch(context.Background(), s, refs, func(_ int, p pkg) {
			data := p.encode()
			if _, err := w.Write(append(binary.AppendUvarint(nil, uint64(len(data))), data...)); err != nil {
				failed = err
			} else if err := w.Flush(); err != nil {
				failed = err
			}
		})
		if failed != nil {
			return failed
		}
	}
}

// source is the tree in the worker.
func (j *job) source() *source {
	tree := &memFS{files: map[string]*memFile{}, dirs: newDirs()}
	for name, data := range j.Files {
		tree.put(name, data)
	}
	for name, why := range j.Unreadable {
		tree.put(name, nil)
		tree.files[name].broken = why
	}
	tree.seal()
	return &source{tree: tree, module: j.Module, schema: j.Schema, registry: j.Registry, vendored: j.Vendored}
}
