package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want run, serve or fleet")
	}
	f := flag.NewFlagSet(args[0], flag.ExitOnError)
	n := f.Int("n", 1000, "connections")
	sizeName := f.String("size", "a", "what a node holds: a or b")
	kind := f.String("engine", "sluice", "engine to serve")
	addr := f.String("addr", "", "server of the fleet")
	delta := f.Bool("delta", false, "incremental")
	updates := f.Int("updates", 20, "endpoint changes")
	only := f.String("only", "", "engines to run, with commas")
	out := f.String("json", "", "file for the figures")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	s, ok := sizes[*sizeName]
	if !ok {
		return fmt.Errorf("no size %q: want a or b", *sizeName)
	}
	switch args[0] {
	case "serve":
		return serve(*kind, s)
	case "fleet":
		return fleet(*addr, *n, *delta, s)
	case "run":
		return bench(*n, *sizeName, *updates, *only, *out)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// figures of one engine and variant.
type figures struct {
	Engine  string
	Delta   bool
	Clients int
	Size    string
	Storm   time.Duration // all connected and holding everything
	StormMB int64         // resident after it
	StormUS float64       // server CPU a node
	IdleKB  float64       // resident a node, after a collection
	LastMS  float64       // an update's last ACK, median
	UpdUS   float64       // server CPU of an update a node
	Allocs  float64       // of an update a node
	Bytes   float64
	Threads float64 // goroutines a node
}

func bench(n int, sizeName string, updates int, only, out string) error {
	var all []figures
	for _, e := range []struct {
		engine string
		delta  bool
	}{
		{"raw", true},
		{"sluice", true},
		{"gcp-linear", true},
		{"gcp-snapshot", true},
		{"raw", false},
		{"sluice", false},
		{"gcp-snapshot", false},
	} {
		if only != "" && !slices.Contains(strings.Split(only, ","), e.engine) {
			continue
		}
		f, err := measure(e.engine, e.delta, n, sizeName, updates)
		if err != nil {
			return fmt.Errorf("%s: %w", e.engine, err)
		}
		all = append(all, f)
	}
	show(all)
	if out == "" {
		return nil
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, b, 0o644)
}

// measure runs one engine and a fleet, each in a process of its own.
func measure(engine string, delta bool, n int, sizeName string, updates int) (f figures, err error) {
	server, err := start("serve", "-engine", engine, "-size", sizeName)
	if err != nil {
		return f, err
	}
	defer server.stop()
	var up report
	if err := server.read(&up); err != nil {
		return f, err
	}
	before, err := server.ask("stat")
	if err != nil {
		return f, err
	}
	fleet, err := start("fleet", "-addr", up.Addr, "-n", strconv.Itoa(n), "-size", sizeName, "-delta="+strconv.FormatBool(delta))
	if err != nil {
		return f, err
	}
	defer fleet.stop()
	var ready answered
	if err := fleet.read(&ready); err != nil {
		return f, err
	}
	after, err := server.ask("stat")
	if err != nil {
		return f, err
	}
	per := func(d time.Duration, k int) float64 { return float64(d.Microseconds()) / float64(k) }
	f = figures{Engine: engine, Delta: delta, Clients: n, Size: sizeName, Storm: ready.Spent, StormMB: after.RSS >> 20, StormUS: per(after.CPU-before.CPU, n)}
	idle, err := server.ask("gc")
	if err != nil {
		return f, err
	}
	f.IdleKB = float64(idle.RSS-before.RSS) / 1024 / float64(n)
	f.Threads = float64(idle.Routines-before.Routines) / float64(n)
	var last []float64
	start, err := server.ask("stat")
	if err != nil {
		return f, err
	}
	for range updates {
		up, err := server.ask("update")
		if err != nil {
			return f, err
		}
		fmt.Fprintln(fleet.in, "next")
		var a answered
		if err := fleet.read(&a); err != nil {
			return f, err
		}
		last = append(last, float64(a.Last.Sub(up.Updated).Microseconds())/1000)
	}
	end, err := server.ask("stat")
	if err != nil {
		return f, err
	}
	slices.Sort(last)
	f.LastMS = last[len(last)/2]
	f.UpdUS = per(end.CPU-start.CPU, n*updates)
	f.Allocs = float64(end.Mallocs-start.Mallocs) / float64(n*updates)
	f.Bytes = float64(end.Bytes-start.Bytes) / float64(n*updates)
	return f, nil
}

func show(all []figures) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "engine\tvariant\tnodes\tsize\tstorm s\tMB\tµs/node\tidle KiB/node\tgoroutines/node\tlast ACK ms\tµs/update\tallocs\tB\t× raw\t")
	for _, f := range all {
		variant := map[bool]string{true: "delta", false: "sotw"}[f.Delta]
		ratio := "-"
		for _, r := range all {
			if r.Engine == "raw" && r.Delta == f.Delta && r.UpdUS > 0 {
				ratio = fmt.Sprintf("%.2f", f.UpdUS/r.UpdUS)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%.2f\t%d\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%s\t\n", f.Engine, variant, f.Clients, f.Size,
			f.Storm.Seconds(), f.StormMB, f.StormUS, f.IdleKB, f.Threads, f.LastMS, f.UpdUS, f.Allocs, f.Bytes, ratio)
	}
	w.Flush()
}

// child is a process of this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

func (c *child) read(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%v ended: %w", c.cmd.Args[1:], err)
	}
	return json.Unmarshal(line, v)
}

func (c *child) ask(word string) (r report, err error) {
	if _, err := fmt.Fprintln(c.in, word); err != nil {
		return r, err
	}
	return r, c.read(&r)
}

// stop ends the child by closing its input, and then by its process.
func (c *child) stop() {
	c.in.Close()
	done := make(chan struct{})
	go func() { c.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		c.cmd.Process.Kill()
		<-done
	}
}
