package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// figures of one engine and variant.
type figures struct {
	Engine  string `json:"engine"`
	Delta   bool   `json:"delta"`
	Clients int    `json:"clients"`
	Groups  int    `json:"groups"`
	Size    string `json:"size"`

	StormS  float64 `json:"storm_s"`        // until all are connected and hold everything
	StormMB int64   `json:"storm_mb"`       // resident after it
	StormUS float64 `json:"storm_cpu_us"`   // server CPU a node
	IdleKiB float64 `json:"idle_kib"`       // resident a node, after a collection
	Threads float64 `json:"goroutines"`     // a node
	LastMS  float64 `json:"update_ms"`      // from an update to its last ACK, median
	UpdUS   float64 `json:"update_cpu_us"`  // server CPU of an update a node
	Allocs  float64 `json:"update_allocs"`  // of an update a node
	Bytes   float64 `json:"update_bytes"`   // allocated
	RollMS  float64 `json:"rollout_ms"`     // of five stages, median
	RollUS  float64 `json:"rollout_cpu_us"` // a node
	BackMS  float64 `json:"reconnect_ms"`   // until the server has heard all again
	BackUS  float64 `json:"reconnect_cpu_us"`
	BackB   float64 `json:"reconnect_bytes"` // sent to a node that holds everything

	// Raw relates the figures to those of raw, of the same variant, nodes and size.
	Raw map[string]float64 `json:"to_raw"`
}

func (f *figures) variant() string {
	if f.Delta {
		return "delta"
	}
	return "sotw"
}

// measure runs one engine and a fleet, each in a process of its own.
func (f *figures) measure(updates, rollouts int) error {
	groups := "-groups=" + strconv.Itoa(f.Groups)
	server, err := start("serve", "-engine", f.Engine, "-size", f.Size, groups)
	if err != nil {
		return err
	}
	defer server.stop()
	var up report
	if err := server.read(&up); err != nil {
		return err
	}
	before, err := server.ask("stat")
	if err != nil {
		return err
	}
	fleet, err := start("fleet", "-addr", up.Addr, "-n", strconv.Itoa(f.Clients), "-size", f.Size, groups,
		"-rollouts", strconv.Itoa(rollouts), "-delta="+strconv.FormatBool(f.Delta))
	if err != nil {
		return err
	}
	defer fleet.stop()
	var ready answered
	if err := fleet.read(&ready); err != nil {
		return err
	}
	after, err := server.ask("stat")
	if err != nil {
		return err
	}
	f.StormS, f.StormMB, f.StormUS = ready.Spent.Seconds(), after.RSS>>20, f.per(before, after, 1)
	idle, err := server.ask("gc")
	if err != nil {
		return err
	}
	f.IdleKiB = float64(idle.RSS-before.RSS) / 1024 / float64(f.Clients)
	f.Threads = float64(idle.Routines-before.Routines) / float64(f.Clients)
	last, from, to, err := f.repeat(server, fleet, "update", updates)
	if err != nil {
		return err
	}
	f.LastMS, f.UpdUS = last, f.per(from, to, updates)
	f.Allocs = float64(to.Mallocs-from.Mallocs) / float64(f.Clients*updates)
	f.Bytes = float64(to.Bytes-from.Bytes) / float64(f.Clients*updates)
	last, from, to, err = f.repeat(server, fleet, "rollout", rollouts)
	if err != nil {
		return err
	}
	f.RollMS, f.RollUS = last, f.per(from, to, rollouts)
	return f.reconnect(server, fleet)
}

// per is the server's CPU between two reports, for a node and a time, in µs.
func (f *figures) per(from, to report, times int) float64 {
	return float64((to.CPU - from.CPU).Microseconds()) / float64(f.Clients*times)
}

// repeat has the server do something to all nodes, again and again. It returns the
// median of the times until the last ACK, in ms.
func (f *figures) repeat(server, fleet *child, what string, times int) (ms float64, from, to report, err error) {
	if from, err = server.ask("stat"); err != nil {
		return 0, from, to, err
	}
	var all []float64
	for range times {
		if _, err := fmt.Fprintln(fleet.in, what); err != nil {
			return 0, from, to, err
		}
		did, err := server.ask(what)
		if err != nil {
			return 0, from, to, err
		}
		var a answered
		if err := fleet.read(&a); err != nil {
			return 0, from, to, err
		}
		all = append(all, float64(a.Last.Sub(did.Updated).Microseconds())/1000)
	}
	to, err = server.ask("stat")
	if len(all) > 0 {
		slices.Sort(all)
		ms = all[len(all)/2]
	}
	return ms, from, to, err
}

// reconnect has all clients come back with what they hold, and waits until the
// server has heard the requests of all.
func (f *figures) reconnect(server, fleet *child) error {
	from, err := server.ask("stat")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(fleet.in, "stat"); err != nil {
		return err
	}
	var had, has answered
	if err := fleet.read(&had); err != nil {
		return err
	}
	began := time.Now()
	if _, err := fmt.Fprintln(fleet.in, "reconnect"); err != nil {
		return err
	}
	if err := fleet.read(&has); err != nil {
		return err
	}
	// A stream's end counts as one more.
	for want := from.Requests + int64(f.Clients*(1+len(allURLs))); ; {
		to, err := server.ask("stat")
		if err != nil {
			return err
		}
		if to.Requests >= want {
			f.BackMS, f.BackUS = float64(time.Since(began).Microseconds())/1000, f.per(from, to, 1)
			break
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("the server has heard %d requests of %d after a minute", to.Requests-from.Requests, want-from.Requests)
		}
	}
	if _, err := fmt.Fprintln(fleet.in, "stat"); err != nil {
		return err
	}
	if err := fleet.read(&has); err != nil {
		return err
	}
	f.BackB = float64(has.Bytes-had.Bytes) / float64(f.Clients)
	return nil
}

// relate fills in the ratios to raw.
func relate(all []figures) {
	for i := range all {
		f := &all[i]
		for _, r := range all {
			if r.Engine != "raw" || r.Delta != f.Delta || r.Clients != f.Clients || r.Groups != f.Groups || r.Size != f.Size {
				continue
			}
			f.Raw = map[string]float64{}
			for name, pair := range map[string][2]float64{
				"storm": {f.StormS, r.StormS}, "update_cpu": {f.UpdUS, r.UpdUS}, "update": {f.LastMS, r.LastMS},
				"rollout": {f.RollMS, r.RollMS}, "reconnect": {f.BackMS, r.BackMS}, "idle": {f.IdleKiB, r.IdleKiB},
			} {
				if pair[1] > 0 {
					f.Raw[name] = pair[0] / pair[1]
				}
			}
		}
	}
}

func show(out io.Writer, all []figures) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "engine\tvariant\tnodes\tgroups\tsize\tstorm s\t×\tMB\tidle KiB\tgoroutines\tupdate µs\t×\tms\tallocs\tB\trollout ms\t×\treconnect ms\t×\tB\t")
	for _, f := range all {
		x := func(name string) string {
			if v, ok := f.Raw[name]; ok {
				return fmt.Sprintf("%.2f", v)
			}
			return "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%.2f\t%s\t%d\t%.0f\t%.1f\t%.1f\t%s\t%.1f\t%.1f\t%.0f\t%.0f\t%s\t%.0f\t%s\t%.0f\t\n",
			f.Engine, f.variant(), f.Clients, f.Groups, f.Size, f.StormS, x("storm"), f.StormMB, f.IdleKiB, f.Threads,
			f.UpdUS, x("update_cpu"), f.LastMS, f.Allocs, f.Bytes, f.RollMS, x("rollout"), f.BackMS, x("reconnect"), f.BackB)
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
