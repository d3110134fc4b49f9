package main

import (
	"strings"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// A plan for a group that is halted, or was aborted, says so, and what leads it on.
// What was refused is not sent again by a merge: what a retry would do is told as
// that, and not as "0 to add".
func TestPlanOfAHaltedGroup(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	node := connect(t, running.XDS, "edge-1")
	await(t, `^edge .*converged +- +1 +1 +1 +0$`, "status", "--server", f.socket)
	node.refuse(schema.Routes, "virtual host 'shop' is no good")
	second := f.shift(50, 50)
	await(t, `^halted`, "status", "--server", f.socket)
	plan := func(args ...string) string {
		t.Helper()
		out := cli(t, 0, append([]string{"plan", "-q", "--server", f.socket, f.repo}, args...)...)
		if strings.Contains(out, "sends nothing") {
			t.Errorf("a stage without content in\n%s", out)
		}
		return out
	}
	halted := `^Groups   edge is halted at ` + second[:7] + `, stage routes: node edge-1: routes refused: virtual host 'shop' is no good$`
	retry := []string{`^Stage 1  routes$`, `^  ~ route +shop  \(route table web\) +shop.cue:17$`, `^    -   cart: 90, cart-v2: 10$`, `^    \+   cart: 50, cart-v2: 50$`}
	wants(t, plan(), append(retry, `^`+first[:7]+` → `+second[:7]+` `,
		`^Halted at stage routes: this is what was refused, and no stage is opened until it changes\. A retry would send$`,
		halted, `^           this is what was refused: it waits for a change, or sluice retry edge$`,
		`^Plan: nothing is sent: edge waits for a change, or a retry\.$`)...)
	wants(t, plan("-o", "markdown"), `^nothing is sent: edge waits for a change, or a retry\.$`, `^Halted at stage routes: this is what was refused, .* A retry would send:$`)
	wants(t, plan("-o", "json"), `"retry": true`, `"halted": \{`, `"stage": "routes",`, `"why": "routes refused: virtual host 'shop' is no good"`)

	// A fix is led to from what nodes may hold. Hosts go at once, whatever is halted.
	wants(t, plan("--to", first), halted, `^           what its nodes may hold of `+second[:7]+` is reckoned with$`,
		`^    sends what a node lacks of it, and waits for cluster cart, usable endpoints cart$`,
		`^Plan: 0 resources to add, 1 to change, 0 to prune, in 2 stages over 1 node\.$`)
	must(t, replaceIn(f.file(), `10.0.1.10:8080`, `10.0.1.12:8080`))
	wants(t, plan(), append(retry, `^Live     at once, in no stage$`,
		`^Plan: 0 resources to add, 1 to change, 0 to prune, in 0 stages over 1 node; edge waits for a change, or a retry\.$`)...)
	must(t, replaceIn(f.file(), `10.0.1.12:8080`, `10.0.1.10:8080`))

	// The same of what was aborted; the way back is refused first.
	cli(t, 0, "abort", "--server", f.socket, "--yes")
	await(t, `on the way back from `+second[:7], "status", "--server", f.socket)
	wants(t, plan(), append(retry, `^Groups   edge is halted at `+first[:7]+`, stage routes: node edge-1: `,
		`^           edge was aborted with just this, and walks back to `+first[:7]+`; then it waits for a change, or sluice retry edge$`)...)
	node.no.Store(nil)
	wants(t, cli(t, 0, "retry", "--server", f.socket, "--yes"), `the walk back to `+first[:7]+` is tried again: .*; `+second[:7]+` stays parked$`)
	await(t, `^edge .*parked`, "status", "--server", f.socket)
	wants(t, plan(), append(retry, `^This was aborted, and no stage is opened until it changes\. A retry would send$`,
		`^Groups   edge was aborted with just this: it waits for a change, or sluice retry edge$`,
		`^Plan: nothing is sent: edge waits for a change, or a retry\.$`)...)
	wants(t, plan("--to", first), `^No changes\.`)
	wants(t, cli(t, 0, "retry", "--server", f.socket, "--yes"), `^edge +r-2 +`+second[:7]+` `)
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", second)
}
