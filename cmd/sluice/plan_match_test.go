package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Who is in a group may change without a resource. A plan names the nodes, and so
// does the status after the merge.
func TestPlanMatch(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	connect(t, running.XDS, "edge-1")
	connect(t, running.XDS, "edge-2")
	await(t, `^edge .* converged +- +2 +2 +2 +0$`, "status", "--server", f.socket)

	file := filepath.Join(f.repo, "shop.cue")
	before, err := os.ReadFile(file)
	must(t, err)
	plan := func(code int) string {
		t.Helper()
		return cli(t, code, "plan", "--detailed-exitcode", "--server", f.socket, f.repo)
	}
	wants(t, plan(0), `^No changes\. 2 of 2 nodes acked `+first[:7]+`\.$`)
	must(t, replaceIn(file, `match: id: "edge-*"`, `match: id: "edge-[2-9]"`))
	wants(t, plan(exitChanges), `^No changes of resources\. 2 of 2 nodes acked `+first[:7]+`\.$`,
		`^Groups   edge: 1 node will be in no group, configured as now: edge-1  shop.cue:7$`)
	must(t, replaceIn(file, "groups: edge:", "groups: rim: {client: \"envoy\", match: id: \"edge-1\"}\ngroups: edge:"))
	wants(t, plan(exitChanges), `^Groups   edge: 1 node will be in another group: edge-1 in rim  shop.cue:8$`)

	must(t, os.WriteFile(file, before, 0o600))
	must(t, replaceIn(file, `match: id: "edge-*"`, `match: id: "edge-[3-9]"`))
	wants(t, plan(exitChanges), `^Groups   edge: 2 nodes will be in no group, configured as now: edge-\d, edge-\d  shop.cue:7$`)
	second := commit(t, f.repo)
	cli(t, 0, "sync", "--server", f.socket)
	await(t, `^edge +r-2 +`+second[:7]+` .* converged +- +2 +2 +0 +0$`, "status", "--server", f.socket)
	wants(t, cli(t, 0, "status", "--server", f.socket),
		`^refused  node edge-1 of group edge: no group matches node "edge-1" .*; it keeps what it has \(last seen `,
		`^refused  node edge-2 of group edge: `)
	wants(t, plan(0), `^No changes\. 0 of 2 nodes acked `, `^Nodes    edge  edge-1 \(at `+first[:7]+`\) is refused: no group matches`)
}
