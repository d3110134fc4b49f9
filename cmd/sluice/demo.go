package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/test/dataplane"
)

// Sizes of the demo.
const (
	demoClients  = 3
	demoRate     = 600  // requests a second of each client
	demoPhase    = 5500 // requests before the next change
	demoRequests = 20000
	demoDeadline = time.Minute
)

// wrongOrderFailures is what the wrong order must show at least, or the demo
// cannot see failures.
const wrongOrderFailures = 50

func newDemoCommand(a *app) *cobra.Command {
	var wrong, ui bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Roll three changes out over a whole fleet in this process, under load",
		Long: `Starts a Git repository, the server and a fleet of real gRPC xDS nodes in this
process, with constant load from every client, and merges three changes: 10 % of
the requests to v2, all of them to v2, and v1 removed. It fails unless every
request was answered.

With --wrong-order the old cluster is removed 200 ms before the route moves: what
happens without a plan. With --ui, on a terminal, sluice top is open over it.`,
		Example: "  sluice demo\n  sluice demo --ui\n  sluice demo --wrong-order",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ui && terminal(a.out) {
				return a.demoUI(cmd.Context(), wrong)
			}
			return runDemo(cmd.Context(), cmd.OutOrStdout(), wrong)
		},
	}
	c.Flags().BoolVar(&wrong, "wrong-order", false, "remove the old cluster before the route moves, and count the failures")
	c.Flags().BoolVar(&ui, "ui", false, "watch it in sluice top, if stdout is a terminal")
	return c
}

// demo is a fleet in one process.
type demo struct {
	out    io.Writer
	began  time.Time
	merged time.Time // the newest change
	wrong  bool
	dir    string
	repo   *reconcile.Scratch
	server serverRunning
	mesh   mesh
	nodes  []dataplane.Node
	run    *dataplane.Run
	route  dataplane.Answers
	stops  []func()      // in the order of starting
	up     chan struct{} // if there is one, closed when the server answers
}

func runDemo(ctx context.Context, out io.Writer, wrong bool) error {
	d := &demo{out: out, began: time.Now(), wrong: wrong}
	d.route.Only("v1")
	defer d.stop()
	return d.play(ctx)
}

// play shows everything, and leaves the fleet as it is then.
func (d *demo) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoDeadline)
	defer cancel()
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("cannot start the demo: %w", err)
	}
	total, err := d.changes(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the demo did not end within %s: %w", demoDeadline, err)
	}
	if err != nil {
		return err
	}
	return d.verdict(total)
}

func (d *demo) stop() {
	for i := len(d.stops) - 1; i >= 0; i-- {
		d.stops[i]()
	}
}

// say prints a line with the time since the start.
func (d *demo) say(format string, args ...any) {
	line := fmt.Sprintf("%6.2fs  %s", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
	fmt.Fprintln(d.out, strings.TrimRight(line, " "))
}

// start brings the whole fleet up, serving v1 alone.
func (d *demo) start(ctx context.Context) error {
	var err error
	if d.dir, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return err
	}
	d.stops = append(d.stops, func() { os.RemoveAll(d.dir) })
	if d.repo, err = reconcile.NewScratch(filepath.Join(d.dir, "config.git")); err != nil {
		return err
	}
	groups, err := groupsOnly()
	if err != nil {
		return err
	}
	if _, err := d.repo.Merge("two groups, and nothing to serve", groups); err != nil {
		return err
	}
	if err := d.serve(); err != nil {
		return err
	}
	if d.up != nil {
		close(d.up)
	}
	if err := d.backends(); err != nil {
		return err
	}
	files, err := d.mesh.files(100, 0)
	if err != nil {
		return err
	}
	if _, err := d.repo.Merge("everything to v1", files); err != nil {
		return err
	}
	d.say("git     %s", d.repo.URL())
	d.say("server  %s", d.server.XDS)
	if err := d.clients(ctx); err != nil {
		return err
	}
	d.say("fleet   2 groups: frontends (%d gRPC clients), backends (%d xDS gRPC servers)", demoClients, len(d.mesh.v1)+len(d.mesh.v2))
	load := &dataplane.Load{
		Nodes: d.nodes, Rate: demoRate, Workers: 4, Allow: d.route.Allow,
		Requests: func(int) dataplane.Request { return dataplane.Request{Path: "/shop.Cart/Add"} },
	}
	d.run = load.Start(ctx)
	return nil
}

// serve starts the server in this process and waits until it answers.
func (d *demo) serve() error {
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan serverRunning, 1), make(chan error, 1)
	go func() {
		ended <- runServer(ctx, serverConfig{
			Repo: d.repo.URL(), Store: filepath.Join(d.dir, "store"), Socket: filepath.Join(d.dir, "sluice.sock"),
			Listen: "127.0.0.1:0", Poll: 50 * time.Millisecond, AckWait: 10 * time.Second,
			Plan: d.plan(), Ready: func(r serverRunning) { ready <- r },
		})
	}()
	select {
	case d.server = <-ready:
		d.stops = append(d.stops, func() { cancel(); <-ended })
		return nil
	case err := <-ended:
		cancel()
		return err
	}
}

func (d *demo) plan() func(schema.State, *schema.Target) *schema.Path {
	if d.wrong {
		return wrongOrder
	}
	return planner.NewPath
}

// backends starts two proxyless xDS servers of each version. They are not
// serving before their listeners have come from the control plane.
func (d *demo) backends() error {
	for i, label := range []string{"v1", "v1", "v2", "v2"} {
		b := dataplane.Bootstrap{Server: d.server.XDS, NodeID: fmt.Sprintf("cart-%s-%d", label, i%2+1), Cluster: "cart", Zone: "zone-a"}
		s, err := dataplane.NewServer(b, "127.0.0.1:0", label)
		if err != nil {
			return err
		}
		d.stops = append(d.stops, s.Stop)
		if label == "v1" {
			d.mesh.v1 = append(d.mesh.v1, s.Addr())
		} else {
			d.mesh.v2 = append(d.mesh.v2, s.Addr())
		}
	}
	return nil
}

func (d *demo) clients(ctx context.Context) error {
	for i := range demoClients {
		b := dataplane.Bootstrap{Server: d.server.XDS, NodeID: fmt.Sprintf("frontend-%d", i+1), Cluster: "frontend", Zone: "zone-a"}
		n, err := dataplane.GRPCGo{}.Start(ctx, b, "xds:///cart.mesh")
		if err != nil {
			return err
		}
		d.stops = append(d.stops, n.Stop)
		d.nodes = append(d.nodes, n)
	}
	for _, n := range d.nodes {
		if err := n.Ready(ctx); err != nil {
			return fmt.Errorf("client %s is not ready: %w", n.ID(), err)
		}
	}
	return nil
}

// change is one merge of the demo.
type change struct {
	subject      string
	v1, v2       int // weights; -1: the service does not exist
	during, then []string
}

var demoChanges = []change{
	{"10 % of the requests to v2", 90, 10, []string{"v1", "v2"}, []string{"v1", "v2"}},
	{"every request to v2", 0, 100, []string{"v1", "v2"}, []string{"v2"}},
	{"v1 removed", -1, 100, []string{"v2"}, []string{"v2"}},
}

// changes merges the changes one after another, each after a phase of load.
func (d *demo) changes(ctx context.Context) (dataplane.Tally, error) {
	if err := d.phase(ctx); err != nil {
		return dataplane.Tally{}, err
	}
	for i, c := range demoChanges {
		files, err := d.mesh.files(c.v1, c.v2)
		if err != nil {
			return dataplane.Tally{}, err
		}
		d.route.Only(c.during...)
		d.merged = time.Now()
		commit, err := d.repo.Merge(c.subject, files)
		if err != nil {
			return dataplane.Tally{}, err
		}
		d.say("")
		d.say("merge %d/%d  %.7s  %s", i+1, len(demoChanges), commit, c.subject)
		if err := d.follow(ctx, commit); err != nil {
			return dataplane.Tally{}, err
		}
		d.route.Only(c.then...)
		d.run.Mark()
		if err := d.phase(ctx); err != nil {
			return dataplane.Tally{}, err
		}
	}
	return d.run.Stop(), nil
}

// phase lets a number of requests pass, and says what became of them.
func (d *demo) phase(ctx context.Context) error {
	before := d.run.Tally()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now := d.run.Tally()
		if n := now.Requests - before.Requests; n >= demoPhase {
			v2 := now.ByLabel["v2"] - before.ByLabel["v2"]
			d.say("  load     %5d requests  %d failed  v2 %5.1f %%   p50 %s  p99 %s", n, now.Failures-before.Failures,
				100*float64(v2)/float64(max(1, n)), round(now.P50), round(now.P99))
			d.mesh.shares = append(d.mesh.shares, float64(v2)/float64(max(1, n)))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// follow prints each stage of each group as its nodes acknowledge it, until the
// commit has converged and everything left over is pruned.
func (d *demo) follow(ctx context.Context, commit string) error {
	seen := map[string]string{}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		st := d.server.Loop.Status()
		if st.Rejected != nil && st.Rejected.Commit == commit {
			return fmt.Errorf("commit %.7s was rejected: %s", commit, st.Rejected.Why)
		}
		done := len(st.Groups) > 0
		for _, g := range st.Groups {
			if err := d.progress(g, commit, seen); err != nil {
				return err
			}
			done = done && g.Base == commit && g.State == reconcile.Converged && g.Done == g.Connected
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// progress prints what is new of a group.
func (d *demo) progress(g reconcile.GroupStatus, commit string, seen map[string]string) error {
	if g.Halt != nil && g.Halt.Commit == commit {
		return fmt.Errorf("group %s halted: node %s: %s", g.Name, g.Halt.Node, g.Halt.Cause)
	}
	if g.Base != commit && g.Target != commit {
		return nil
	}
	news := func(key, line string) {
		if seen[g.Name+key] != line {
			seen[g.Name+key] = line
			d.say("  %s", line)
		}
	}
	if g.OpenedAt.Before(d.merged) {
		news("unchanged", fmt.Sprintf("%-10s has nothing to change", g.Name))
		return nil
	}
	for _, s := range g.Stages {
		if s.Acked > 0 {
			news(s.Stage.String(), fmt.Sprintf("%-10s %-10s %d/%d nodes", g.Name, s.Stage, s.Acked, s.Of))
		}
	}
	if g.Base == commit {
		news("converged", fmt.Sprintf("%-10s converged  %d/%d nodes", g.Name, g.AtTarget, g.Connected))
	}
	return nil
}

// verdict sums up, and fails unless the demo showed what it is to show.
func (d *demo) verdict(total dataplane.Tally) error {
	d.say("")
	d.say("%d requests, %d failed", total.Requests, total.Failures)
	for text, n := range total.Errors {
		d.say("  %5d  %s", n, strings.ReplaceAll(text, "\n", " "))
	}
	if d.wrong {
		if total.Failures < wrongOrderFailures {
			return fmt.Errorf("the wrong order showed %d failures: want at least %d", total.Failures, wrongOrderFailures)
		}
		d.say("This is what the wrong order costs. Run the demo without --wrong-order to see the plan.")
		return nil
	}
	switch share := d.mesh.shares; {
	case total.Failures > 0:
		return fmt.Errorf("%d of %d requests failed", total.Failures, total.Requests)
	case total.Requests < demoRequests:
		return fmt.Errorf("only %d requests were made: want %d", total.Requests, demoRequests)
	case share[1] < 0.08 || share[1] > 0.12:
		return fmt.Errorf("after the first change v2 had %.1f %% of the requests: want 10 ± 2 %%", 100*share[1])
	case share[3] != 1:
		return fmt.Errorf("after the last change v2 had %.2f %% of the requests: want all", 100*share[3])
	}
	return nil
}
