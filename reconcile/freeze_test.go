package reconcile

import (
	"fmt"
	"strings"
	"testing"
)

// owners is a mesh in which each group is a package of an owner's own, and the
// shared service another.
func owners(front, edge string) map[string]string {
	one := func(name, client, listener, rule string) string {
		return fmt.Sprintf(`package %[1]s

import "github.com/sluice-xds/sluice/schema"

groups: %[1]s: schema.#Group & {client: %[2]q, match: id: "%[1]s-*", rollout: drain: "0s"}
listeners: %[1]s: schema.#Listener & {groups: [%[1]q], %[3]s}
routes: %[1]s: schema.#Routes & {listeners: [%[1]q], hosts: ["shop.mesh"], rules: [{match: prefix: "/", service: %[4]q}]}
services: %[4]q: schema.#Service & {endpoints: [{address: "10.0.0.1:80"}]}
`, name, client, listener, rule)
	}
	return map[string]string{
		"front/front.cue": one("front", "grpc", `target: "shop.mesh"`, front),
		"edge/edge.cue":   one("edge", "envoy", `bind: "0.0.0.0:8080"`, edge),
	}
}

// TestFrozen: one owner's mistake freezes their own groups, and no other (rule
// R9); also of the second commit in a row, and after a restart.
func TestR9Frozen(t *testing.T) {
	for name, mistake := range map[string]struct{ old, new, code string }{
		"wrong value":       {"bind: \"0.0.0.0:8080\"", "bind: 8080", "value"},
		"no CUE":            {"routes: edge: schema.#Routes & {", "routes: edge: schema.#Routes & ", "syntax"},
		"dangling":          {"service: \"e1\"", "service: \"e2\"", "dangling"},
		"moved and removed": {"groups: edge: schema.#Group & {client: \"envoy\"", "groups: edge: schema.#Group & {client: \"envoi\"", "value"},
	} {
		t.Run(name, func(t *testing.T) {
			r := idleRig(t)
			first := r.mergeFiles(owners("f1", "e1"))
			r.start()
			r.read(first)
			front, edge := r.connect("front-1"), r.connect("edge-1")
			front.sees("front → f1, f1@10.0.0.1:80")
			edge.sees("edge → e1, e1@10.0.0.1:80")
			r.done("edge", first)

			broken := func(front string) map[string]string {
				files := owners(front, "e1")
				was := files["edge/edge.cue"]
				files["edge/edge.cue"] = strings.ReplaceAll(was, mistake.old, mistake.new)
				if files["edge/edge.cue"] == was {
					t.Fatal("nothing is broken")
				}
				if strings.HasPrefix(name, "moved") {
					files["elsewhere/e.cue"] = files["edge/edge.cue"]
					delete(files, "edge/edge.cue")
				}
				return files
			}
			for i, to := range []string{"f2", "f3"} {
				commit := r.mergeFiles(broken(to))
				st := r.done("front", commit)
				front.sees(fmt.Sprintf("front → %s, %s@10.0.0.1:80", to, to))
				g := st.group("edge")
				if g.State != Frozen || g.Base != first || g.Frozen == nil || g.Frozen.Commit != commit ||
					!strings.Contains(g.Why, "("+mistake.code+")") || !strings.Contains(g.Why, ".cue:") || st.Rejected != nil {
					t.Fatalf("edge is %+v", g)
				}
				edge.sees("edge → e1, e1@10.0.0.1:80")
				if i > 0 {
					break
				}
				front.close()
				edge.close()
				r.stop()
				r.start()
				r.done("front", commit)
				if g := r.state("edge", Frozen).group("edge"); g.Base != first || g.Frozen.Commit != commit {
					t.Fatalf("after the restart edge is %+v", g)
				}
				front.dial(r)
				edge.dial(r)
				r.connect("edge-2").sees("edge → e1, e1@10.0.0.1:80")
			}
			last := r.mergeFiles(owners("f3", "e2"))
			r.done("front", last)
			if g := r.done("edge", last).group("edge"); g.Frozen != nil {
				t.Errorf("edge is %+v", g)
			}
			edge.sees("edge → e2, e2@10.0.0.1:80")
		})
	}
}

// TestFrozenWaits: a group that comes after a frozen one waits for it.
func TestR9FrozenWaits(t *testing.T) {
	r := idleRig(t)
	all := func(front, edge, more string) map[string]string {
		files := owners(front, edge)
		files["edge/edge.cue"] = strings.Replace(files["edge/edge.cue"], `drain: "0s"`, `{drain: "0s", after: ["front"]}`, 1)
		files["more/more.cue"] = fmt.Sprintf("package more\n\nroutes: more: {listeners: [\"front\"], hosts: [%s], rules: [{match: prefix: \"/\", service: %q}]}\n", more, front)
		return files
	}
	first := r.mergeFiles(all("f1", "e1", `"more.mesh"`))
	r.start()
	r.read(first)
	edge := r.connect("edge-1")
	edge.sees("edge → e1, e1@10.0.0.1:80")
	r.done("edge", first)
	r.read(r.mergeFiles(all("f2", "e2", "5")))
	r.state("front", Frozen)
	if g := r.state("edge", Waiting).group("edge"); g.Base != first || g.Why != "waits for group front, which is frozen" {
		t.Errorf("edge is %+v", g)
	}
	edge.sees("edge → e1, e1@10.0.0.1:80")
	last := r.mergeFiles(all("f2", "e2", `"more.mesh"`))
	r.done("edge", last)
	edge.sees("edge → e2, e2@10.0.0.1:80")
}

// edgeRig is a server of owners, and a node of the group edge that holds their
// first commit.
func edgeRig(t *testing.T) (r *rig, edge *node, first string) {
	r = idleRig(t)
	first = r.mergeFiles(owners("f1", "e1"))
	r.start()
	r.read(first)
	edge = r.connect("edge-1")
	edge.sees("edge → e1, e1@10.0.0.1:80")
	r.done("edge", first)
	return r, edge, first
}

// emptied are owners whose edge leads to a service without endpoints.
func emptied(service string) map[string]string {
	files := owners("f2", service)
	files["edge/edge.cue"] = strings.Replace(files["edge/edge.cue"], `[{address: "10.0.0.1:80"}]`, "[]", 1)
	return files
}

// TestP09HazardFreezes: what has no safe path is not rolled out. The group's nodes
// keep what they have, also after a restart, until the hazard is mended, or allowed
// where it stands; other groups go on.
func TestP09HazardFreezes(t *testing.T) {
	r, edge, first := edgeRig(t)
	empty := emptied("e2")
	second := r.mergeFiles(empty)
	r.done("front", second)
	wantFrozen := func() {
		t.Helper()
		g := r.state("edge", Frozen).group("edge")
		if g.Base != first || g.Target != "" || g.Frozen == nil || g.Frozen.Commit != second ||
			!strings.Contains(g.Why, "edge/edge.cue:8") || !strings.Contains(g.Why, "(empty-cluster)") || !strings.Contains(g.Why, `allow: "empty-cluster"`) {
			t.Fatalf("edge is %+v", g)
		}
		edge.sees("edge → e1, e1@10.0.0.1:80")
	}
	wantFrozen()
	edge.close()
	r.stop()
	r.start()
	r.done("front", second)
	wantFrozen()
	edge.dial(r)
	r.until("the node", func(st *Status) bool { return st.group("edge").Connected == 1 })

	allowed := owners("f2", "e2")
	allowed["edge/edge.cue"] = strings.Replace(empty["edge/edge.cue"], "endpoints: []", `endpoints: [], allow: "empty-cluster": "they come later today"`, 1)
	third := r.mergeFiles(allowed)
	r.read(third)
	if g := r.until("the rollout of what is allowed", func(st *Status) bool { return st.group("edge").Target == third }).group("edge"); g.Frozen != nil {
		t.Errorf("edge is %+v", g)
	}
	last := r.mergeFiles(owners("f2", "e2"))
	r.done("edge", last)
	edge.sees("edge → e2, e2@10.0.0.1:80")
}

// TestP14LastEndpoint: endpoints go out at once, so a commit that takes the last one
// away is not served, unless that is allowed; the group is frozen, others go on.
func TestP14LastEndpoint(t *testing.T) {
	r, edge, first := edgeRig(t)
	empty := emptied("e1")
	second := r.mergeFiles(empty)
	r.done("front", second)
	wantFrozen := func() {
		t.Helper()
		if g := r.state("edge", Frozen).group("edge"); g.Base != first || !strings.Contains(g.Why, "edge/edge.cue:8") || !strings.Contains(g.Why, "loses its last endpoint") {
			t.Fatalf("edge is %+v", g)
		}
		edge.sees("edge → e1, e1@10.0.0.1:80")
	}
	wantFrozen()
	edge.close()
	r.stop()
	r.start()
	r.done("front", second)
	edge.dial(r)
	wantFrozen()
	r.connect("edge-2").sees("edge → e1, e1@10.0.0.1:80") // which holds nothing yet

	other := owners("f2", "e1")
	other["edge/edge.cue"] = strings.Replace(other["edge/edge.cue"], "10.0.0.1:80", "10.0.0.2:80", 1)
	r.done("edge", r.mergeFiles(other))
	edge.sees("edge → e1, e1@10.0.0.2:80")
}
