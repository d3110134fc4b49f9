package compile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-xds/sluice/schema"
)

// town is a configuration of several owners: two groups of their own each, a
// service that the first two share, routes that one owner adds to a listener of
// another, an environment that a directory inherits.
var town = map[string]string{
	"a/a.cue":      "package a\n\ngroups: a: {client: \"envoy\", match: id: \"a-*\"}\nlisteners: \"a-web\": {groups: [\"a\"], bind: \"0.0.0.0:80\"}\nroutes: \"a-all\": {listeners: [\"a-web\"], hosts: [\"*\"], rules: [{match: prefix: \"/\", service: \"shared\"}]}\n",
	"b/b.cue":      "package b\n\ngroups: b: {client: \"grpc\", match: id: \"b-*\", external: [\"boot\"]}\nlisteners: \"b-dial\": {groups: [\"b\"], target: \"b.mesh\"}\nroutes: \"b-all\": {listeners: [\"b-dial\"], hosts: [\"b.mesh\"], rules: [{match: prefix: \"/x\", service: \"boot\"}, {match: prefix: \"/\", split: {shared: 1, \"b-own\": 2}}]}\nservices: \"b-own\": dns: \"b.example.com:80\"\n",
	"c/c.cue":      "package c\n\ngroups: c: {client: \"envoy\", match: id: \"c-*\"}\nlisteners: \"c-web\": {groups: [\"c\"], bind: \"0.0.0.0:80\"}\n",
	"c/more/r.cue": "package more\n\nroutes: \"c-more\": {listeners: [\"c-web\"], hosts: [\"c.example.com\"], rules: [{match: prefix: \"/\", service: \"c-own\"}], allow: dangling: \"comes later\"}\n",
	"c/own/s.cue":  "package own\n\n_port: 8080\nservices: \"c-own\": endpoints: [{address: \"10.0.0.1:\\(_port)\"}]\n",
	"s/s.cue":      "package s\n\nservices: shared: endpoints: [{address: \"10.0.0.9:80\"}]\n",
	"e/e.cue":      "package e\n\nsluice: base: true\n_name: string\ngroups: \"\\(_name)\": {client: \"envoy\", match: id: \"\\(_name)-*\"}\nlisteners: \"\\(_name)\": {groups: [_name], bind: \"0.0.0.0:81\"}\nroutes: \"\\(_name)\": {listeners: [_name], hosts: [\"*\"], rules: [{match: prefix: \"/\", respond: status: 204}]}\n",
	"e/p/e.cue":    "package e\n\n_name: \"prod\"\n",
}

func townOf(change map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	files := maps.Clone(town)
	maps.Copy(files, change)
	for name, data := range files {
		if data != "" {
			tree[name] = &fstest.MapFile{Data: []byte(data)}
		}
	}
	return tree
}

// TestSalvage: what is wrong in a package freezes the groups that it is, or may
// be, a part of.
func TestSalvage(t *testing.T) {
	edit := func(file, old, to string) map[string]string {
		if !strings.Contains(town[file], old) {
			t.Fatalf("%s has no %q", file, old)
		}
		return map[string]string{file: strings.Replace(town[file], old, to, 1)}
	}
	for _, c := range []struct {
		name   string
		change map[string]string
		frozen string // all others go on; "all" is an error
	}{
		{"a value", edit("a/a.cue", "bind: \"0.0.0.0:80\"", "bind: 80"), "a"},
		{"no CUE", edit("c/c.cue", "groups: c", "groups: c ["), "c"},
		{"routes for another's listener", edit("c/more/r.cue", "prefix: \"/\"", "prefix: \"x\""), "c"},
		{"a service that others use", edit("s/s.cue", "10.0.0.9:80", "nowhere"), "a b"},
		{"a service that may dangle", edit("c/own/s.cue", "address", "adress"), "all"}, // its names may be computed
		{"a service that is written out, and may dangle", map[string]string{"c/own/s.cue": "package own\n\nservices: \"c-own\": endpoints: [{adress: \"10.0.0.1:80\"}]\n"}, "c"},
		{"a computed name", map[string]string{"x/x.cue": "package x\n\nservices: \"a\\(5)\": dns: 5\n"}, "all"},
		{"what is inherited", edit("e/e.cue", "groups:", "grups:"), "all"},
		{"a clash of names", map[string]string{"x/x.cue": "package x\n\nservices: \"b-own\": dns: \"x:1\"\n"}, "b"},
		{"a clash of hosts", map[string]string{"x/x.cue": "package x\n\nroutes: x: {listeners: [\"a-web\"], hosts: [\"*\"], rules: [{match: prefix: \"/\", respond: status: 200}]}\n"}, "a"},
		{"a patch", map[string]string{"x/x.cue": "package x\n\npatches: clusters: \"b-own\": nothing: 5\n"}, "b"},
		{"nobody's words", map[string]string{"x/x.cue": "package x\n\nservices: lonely: dns: 5\n"}, ""},
		{"a file that begins with no package", map[string]string{"x/x.cue": "services: \"b-own\": dns: \"x:1\"\n"}, "b"},
		{"a file that is no CUE at all", map[string]string{"x/x.cue": "b-own {"}, "b"},
		{"the module", map[string]string{"cue.mod/module.cue": "module: 5\n"}, "all"},
		{"an import", map[string]string{"x/x.cue": "package x\n\nimport \"example.com/y\"\n\nservices: y.services\n"}, "all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := Options{InProcess: true, Salvage: true}
			whole, err := Fleet(t.Context(), townOf(nil), opts)
			if err != nil || len(whole.Groups) != 4 || len(whole.Frozen)+len(whole.Broken) != 0 {
				t.Fatal(whole, err)
			}
			if f, err := Fleet(t.Context(), townOf(c.change), Options{InProcess: true}); err == nil {
				t.Fatalf("without Salvage: %v", f.Groups)
			}
			f, err := Fleet(t.Context(), townOf(c.change), opts)
			if c.frozen == "all" {
				if err == nil {
					t.Errorf("groups %v", f.Groups)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var frozen []string
			for _, name := range []string{"a", "b", "c", "prod"} {
				why := f.FrozenBy(name)
				if why != nil {
					frozen = append(frozen, name)
				}
				if (why == nil) != (f.Group(name) != nil) {
					t.Errorf("group %s: frozen by %v, and %v", name, why, f.Group(name))
				}
			}
			if got := strings.Join(frozen, " "); got != c.frozen {
				t.Errorf("frozen: %q, want %q: %v", got, c.frozen, f.Broken)
			}
			unharmed(t, whole, f)
		})
	}
}

// unharmed wants each group that goes on to have all that it had.
func unharmed(t *testing.T, whole, f *schema.Fleet) {
	t.Helper()
	for _, g := range f.Groups {
		for was := range whole.Group(g.Name).Snapshot.All() {
			if is := g.Snapshot.Get(was.Key); is == nil || is.Version != was.Version {
				t.Errorf("group %s: %s is %v, was %v", g.Name, was.Key, is, was)
			}
		}
	}
}

// TestSalvageNeverTakesAway: however a package is damaged, a group that is not
// frozen has all that it had. Absence is never deletion.
func TestSalvageNeverTakesAway(t *testing.T) {
	opts := Options{InProcess: true, Salvage: true}
	whole, err := Fleet(t.Context(), townOf(nil), opts)
	if err != nil {
		t.Fatal(err)
	}
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	rng := rand.New(rand.NewPCG(3, 4))
	went, froze := 0, 0
	for range rounds {
		name := slices.Sorted(maps.Keys(town))[rng.IntN(len(town))]
		bad := damaged(rng, fstest.MapFS{name: &fstest.MapFile{Data: []byte(town[name])}})
		change := map[string]string{name: string(bad[name].Data)}
		if rng.IntN(3) == 0 { // and moved
			change["moved/"+name], change[name] = change[name], ""
		}
		if _, err := Fleet(t.Context(), townOf(change), Options{InProcess: true}); err == nil {
			continue // it says something else now
		}
		f, err := Fleet(t.Context(), townOf(change), opts)
		if err != nil {
			continue
		}
		if froze++; len(f.Frozen)+len(f.Broken) == 0 {
			t.Errorf("nothing is frozen by %q", change)
		}
		went += len(f.Groups)
		if unharmed(t, whole, f); t.Failed() {
			t.Fatal(fmt.Sprintf("%q", change), f.Broken)
		}
	}
	if froze == 0 || went == 0 {
		t.Fatal("nothing was tested")
	}
	t.Logf("%d times some groups froze, and %d others went on", froze, went)
}
