package main

import (
	"fmt"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// An operator's morning, in a real terminal: a rollout that a node refuses is seen,
// its words and the line are read, it is tried again in vain, the fix is merged, and
// the fleet converges. Meanwhile the server is killed and comes back, and the
// terminal shrinks.
func TestTopInTmux(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	node := connect(t, running.XDS, "edge-1")
	connect(t, running.XDS, "edge-2")
	await(t, `^edge .*converged +- +2 +2 +2 +0$`, "status", "--server", f.socket)

	p := newPane(t, 100, 30, []string{"TERM=xterm-256color"}, "top", "--server", f.socket)
	p.shows(`sluice  `+first[:7], `● live`, `> +r-1 +`+first[:7]+` +edge +1/1 .*2/2 .*✔ converged`)
	node.refuse(schema.Routes, "virtual host 'shop' is no good")
	second := f.shift(50, 50)
	p.shows(`✖ halted`, `NACK  edge-1  routes`, `virtual host 'shop' is no good`, `→ shop.cue:\d+`, `EVENTS`)
	p.picture("top-fleet")
	p.keys("Enter")
	p.shows(`r-2 › `+second[:7]+`  edge`, `✖ [01]/2`, `> edge-1 +routes .*✖ nacked`)
	p.picture("top-rollout")
	p.keys("Enter")
	p.shows(`r-2 › edge › edge-1`, `routes .*✖ nacked`, `NACK  routes`)
	p.keys("/", "routes", "Enter")
	p.shows(`^ -   cart: 90, cart-v2: 10`, `^ \+   cart: 50, cart-v2: 50`, `shop.cue:\d+`)
	p.picture("top-node")

	// Retry asks first, and is in vain.
	p.keys("R")
	p.shows(`edge at `+second[:7]+`, 2 nodes: `+second[:7]+` is tried again`, `retry 1 group, 2 nodes\?`)
	p.keys("n")
	p.shows(`nothing was done`)
	node.refuse(schema.Routes, "still no good")
	p.keys("R")
	p.shows(`retry 1 group`)
	p.keys("y")
	p.shows(`still no good`)

	// The fix is merged; the node has been mended, and the fleet converges.
	node.no.Store(nil)
	third := f.shift(80, 20)
	p.keys("Left", "Left", "Left")
	p.shows(`> +r-3 +` + third[:7] + ` +edge .*2/2 .*✔ converged`)

	// The server goes, and comes back, under the open UI.
	stop()
	p.shows(`○ away`, `what is shown is old`)
	running, stop = f.serve()
	defer stop()
	p.shows(`● live`, `server +the server has started`)
	connect(t, running.XDS, "edge-1")
	connect(t, running.XDS, "edge-2")
	await(t, `^edge .*converged +- +2 +2 +2 +0$`, "status", "--server", f.socket)
	fourth := f.shift(70, 30)
	p.shows(`> +r-4 +` + fourth[:7] + ` +edge .*✔ converged`)

	for _, size := range [][2]int{{40, 10}, {30, 8}, {300, 80}} {
		p.run("resize-window", "-x", fmt.Sprint(size[0]), "-y", fmt.Sprint(size[1]))
		if size[0] == 30 {
			p.shows(`the terminal is 30×8`)
			continue
		}
		p.shows(`edge .*✔ converged`)
	}
	p.keys("?")
	p.shows(`asks first`)
	p.keys("x", "q")
	p.shows(`^exit code 0$`)
}

// Without colour nothing is lost, and where there is no terminal, or a dumb one, each
// event is a line.
func TestTopFallbacks(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	connect(t, running.XDS, "edge-1")
	await(t, `^edge .*converged +- +1 +1 +1 +0$`, "status", "--server", f.socket)
	p := newPane(t, 90, 20, []string{"TERM=xterm-256color", "NO_COLOR=1"}, "top", "--server", f.socket)
	p.shows(`✔ converged`)
	if colours := p.run("capture-pane", "-p", "-e"); matches(`\x1b\[[0-9;]*3[0-7]m`, colours) {
		t.Errorf("NO_COLOR has colours: %q", colours)
	}
	p.keys("q")
	p.shows(`^exit code 0$`)
	dumb := newPane(t, 90, 20, []string{"TERM=dumb"}, "top", "--server", f.socket)
	dumb.shows(`^[0-9:]{8}  converged  edge  r-1  `+first[:7], `^[0-9:]{8}  node +edge  edge-1  connected`)
	wants(t, cli(t, 0, "top", "--server", f.socket, "--timeout", "1s"), `^[0-9:]{8}  source +r-1  `+first[:7]+`  change 0  \(A. Author\)$`)
}

// A server that is killed leaves its socket behind. The next one takes it over, the
// open UI goes on, and a pause has outlived the kill.
func TestTopServerKilled(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	kill := f.process()
	p := newPane(t, 100, 24, []string{"TERM=xterm-256color"}, "top", "--server", f.socket)
	p.shows(`> +r-1 +` + first[:7] + ` +edge .*✔ converged`)
	p.keys("H")
	p.shows(`edge at `+first[:7]+`, 0 nodes: nothing new is served`, `pause 1 group, 0 nodes\?`)
	p.keys("y")
	p.shows(`intent .*edge .*pause: nothing new is served`)
	kill()
	p.shows(`○ away`)
	defer f.process()()
	p.shows(`● live`, `paused by .*: the next commit waits`)
	second := f.shift(50, 50)
	p.shows(`edge .*‖ paused`)
	p.keys("C")
	p.shows(`resume 1 group`)
	p.keys("y")
	p.shows(`> +r-2 +` + second[:7] + ` +edge .*✔ converged`)
	p.keys("q")
	p.shows(`^exit code 0$`)
}
