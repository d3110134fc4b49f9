package compile_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema/compile"
)

// hashed is a tree that knows the hashes of its directories, as Git's do.
type hashed struct{ fstest.MapFS }

func (h hashed) TreeHash(dir string) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(h.MapFS)) {
		if dir == "." || strings.HasPrefix(name, dir+"/") {
			fmt.Fprintf(sum, "%q %q\n", name, h.MapFS[name].Data)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// village is a configuration of many parts, as files.
func village() map[string]string {
	files := map[string]string{
		"base/base.cue": "package base\n\ngroups: {\n\tedge: {client: \"envoy\", match: id: \"edge-*\", versions: [\"1.36\"]}\n\tmesh: {client: \"grpc\", match: id: \"mesh-*\", external: [\"boot\"]}\n}\nlisteners: {\n\tweb: {groups: [\"edge\"], bind: \"0.0.0.0:80\"}\n\tdb: {groups: [\"edge\"], bind: \"0.0.0.0:5432\", protocol: \"tcp\"}\n\tdial: {groups: [\"mesh\"], target: \"shop.mesh\"}\n}\n",
		"db/db.cue":     "package db\n\nservices: db: {\n\tdns: \"db.example.com:5432\"\n\tprotocol: \"tcp\"\n}\nroutes: db: {listeners: [\"db\"], hosts: [\"*\"], tcp: service: \"db\"}\n",
		"fail/f.cue":    "package fail\n\nservices: both: failover: [\"s0\", \"s1\"]\nroutes: both: {\n\tlisteners: [\"web\"]\n\thosts: [\"both.example.com\"]\n\trules: [{match: prefix: \"/\", service: \"both\"}]\n}\n",
		"lone/l.cue":    "package lone\n\nservices: unused: dns: \"u.example.com:80\"\n",
		"patch/p.cue":   "package patch\n\npatches: clusters: s2: per_connection_buffer_limit_bytes: 32768\n",
		"raw/raw.cue":   "package raw\n\nresources: clusters: legacy: {\n\ttype: \"STATIC\"\n\tload_assignment: cluster_name: \"legacy\"\n}\nroutes: raw: {listeners: [\"web\"], hosts: [\"raw.example.com\"], rules: [{match: prefix: \"/\", service: \"legacy\"}]}\n",
		"env/env.cue":   "package env\n\nsluice: base: true\n_zone: string\nservices: \"env-\\(_zone)\": endpoints: [{address: \"10.1.0.1:80\", zone: _zone}]\nroutes: \"env-\\(_zone)\": {listeners: [\"web\"], hosts: [\"\\(_zone).example.com\"], rules: [{match: prefix: \"/\", service: \"env-\\(_zone)\"}]}\n",
		"env/a/a.cue":   "package env\n\n_zone: \"a\"\n",
		"README.md":     "words\n",
	}
	files["base/base.cue"] += "listeners: tls: {groups: [\"edge\"], bind: \"0.0.0.0:81\", https_redirect: true}\n"
	for i := range 3 {
		files[fmt.Sprintf("own/%d/o.cue", i)] = fmt.Sprintf(`package own

services: o%[1]d: {
	endpoints: [
		{address: "10.3.0.%[1]d:80"},
	]
	protocol: "http2"
}
routes: o%[1]d: {
	listeners: ["web", "dial", "tls"]
	hosts: ["o%[1]d.example.com", "o%[1]d.mesh"]
	rules: [
		{match: path: "/o", service: "o%[1]d"},
		{match: prefix: "/", service: "o%[1]d", timeout: "2s"},
	]
}
`, i)
	}
	files["own/2/o.cue"] = strings.Replace(files["own/2/o.cue"], "\tprotocol", "\trename: \"safe\"\n\tprotocol", 1)
	for i := range 6 {
		files[fmt.Sprintf("s/%d/s.cue", i)] = fmt.Sprintf(`package s

services: s%[1]d: {
	endpoints: [
		{address: "10.0.0.%[1]d:80"},
	]
	protocol: "http2"
}
routes: s%[1]d: {
	listeners: ["web", "dial"]
	hosts: ["s%[1]d.example.com", "shop.mesh"]
	priority: %[1]d
	rules: [
		{match: headers: "x-to": "s%[1]d", match: prefix: "/", service: "s%[1]d"},
		{match: prefix: "/s%[1]d", split: {s%[1]d: 90, db: 10}},
	]
}
tests: s%[1]d: {
	request: {host: "s%[1]d.example.com", path: "/", headers: "x-to": "s%[1]d"}
	expect: service: "s%[1]d"
}
`, i)
	}
	for _, name := range []string{"s/3/s.cue", "s/4/s.cue"} {
		files[name] = strings.Replace(files[name], "\tprotocol", "\trename: \"safe\"\n\tprotocol", 1)
	}
	return files
}

// edits are what people do to files, and what they do wrong.
var edits = []struct{ old, new string }{
	{":80\"}", ":81\"}"},
	{":81\"}", ":80\"}"},
	{"\t\t{address", "\t\t{address: \"10.9.9.9:1\"},\n\t\t{address"},
	{"\t\t{address: \"10.9.9.9:1\"},\n", ""},
	{"package s\n", "package s\n\n// moved\n"},
	{"\n// moved\n", ""},
	{"protocol: \"http2\"", "lb: \"ring_hash\""},
	{"lb: \"ring_hash\"", "lb: \"maglev\""},
	{"lb: \"maglev\"", "protocol: \"http2\""},
	{"protocol: \"http2\"", "protocol: \"http3\""},
	{"\"http3\"", "\"http2\""},
	{"protocol: \"http2\"", "breakers: connections: 5"},
	{"breakers: connections: 5", "protocol: \"http2\""},
	{"protocol: \"http2\"", "tls: sni: \"a.example.com\""},
	{"tls: sni: \"a.example.com\"", "protocol: \"http2\""},
	{"protocol: \"http2\"", "outliers: {}"},
	{"outliers: {}", "protocol: \"http2\""},
	{"services: s1:", "services: t1:"},
	{"services: t1:", "services: s1:"},
	{"dns: \"db.example.com:5432\"", "endpoints: [{address: \"10.2.0.1:5432\"}]"},
	{"endpoints: [{address: \"10.2.0.1:5432\"}]", "dns: \"db.example.com:5432\""},
	{"dns: \"db.example.com:5432\"", "dns: \"db2.example.com:5432\"\n\tdns_type: \"logical\""},
	{"dns: \"db2.example.com:5432\"\n\tdns_type: \"logical\"", "dns: \"db.example.com:5432\""},
	{"dns: \"u.example.com:80\"", "dns: \"v.example.com:80\""},
	{"dns: \"v.example.com:80\"", "dns: \"u.example.com:80\""},
	{"dns: \"u.example.com:80\"\n", "{dns: \"u.example.com:80\", allow: \"unused-service\": \"later\"}\n"},
	{", allow: \"unused-service\": \"later\"}", "}"},
	{"package lone\n", "package lone\n\n"},
	{"package lone\n\n", "package lone\n"},
	{"[\"s0\", \"s1\"]", "[\"s1\", \"s0\"]"},
	{"[\"s1\", \"s0\"]", "[\"s0\", \"s1\"]"},
	{"\"s1\"]", "\"both\"]"},
	{"\"both\"]", "\"s1\"]"},
	{"expect: service: \"s", "expect: status: 404 // \"s"},
	{"expect: status: 404 // \"s", "expect: service: \"s"},
	{"path: \"/\"", "path: \"/x\""},
	{"path: \"/x\"", "path: \"/\""},
	{"prefix: \"/s", "path: \"/s"},
	{"path: \"/s", "prefix: \"/s"},
	{"32768", "65536"},
	{"65536", "32768"},
	{"10.1.0.1", "10.1.0.2"},
	{"10.1.0.2", "10.1.0.1"},
	{"words", "other words"},
	{"other words", "words"},
	{"hosts: [\"s", "hosts: [\"*.s"},
	{"hosts: [\"*.s", "hosts: [\"s"},
	{"1.36", "1.30"},
	{"1.30", "1.36"},
	{"\tprotocol: \"http2\"\n", "\tprotocol: \"http2\"\n\trename: \"safe\"\n"},
	{"\tprotocol: \"http2\"\n\trename: \"safe\"\n", "\tprotocol: \"http2\"\n"},
	{"\tprotocol: \"http2\"\n", "\tprotocol: \"http2\"\n\tallow: \"cluster-swap\": \"fine\"\n"},
	{"allow: \"cluster-swap\": \"fine\"", "allow: \"empty-cluster\": \"fine\""},
	{"allow: \"empty-cluster\": \"fine\"", "lb: \"round_robin\""},
	{"timeout: \"2s\"", "timeout: \"3s\""},
	{"timeout: \"3s\"", "timeout: \"2s\""},
	{", timeout: \"2s\"", ""},
	{"match: path: \"/o\"", "match: path: \"/p\""},
	{"match: path: \"/p\"", "match: prefix: \"/\""},
	{"match: prefix: \"/\"", "match: path: \"/o\""},
	{"\trules: [\n", "\trules: [\n\t\t{match: path: \"/more\", split: {db: 1}},\n"},
	{"\t\t{match: path: \"/more\", split: {db: 1}},\n", ""},
	{"\trules: [\n", "\trules: [\n\t\t{match: path: \"/first\", respond: status: 204},\n"},
	{"\t\t{match: path: \"/first\", respond: status: 204},\n", ""},
	{"\t\t{match: path: \"/o\",", "\t\t{match: path: \"/again\", mirror: service: \"db\", "},
	{"\t\t{match: path: \"/again\", mirror: service: \"db\", ", "\t\t{match: path: \"/o\", cors: origins: [\"x\"], "},
	{"cors: origins: [\"x\"], ", ""},
	{"services:", "services: {"},
	{"services: {s", "services: s"},
	{"services: { ", "services: "},
}

// TestAdvance: what is made from the last fleet is what is made from nothing:
// resources, lines, tests, warnings and errors, through a long life of edits.
func TestAdvance(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	if _, err := compile.Fleet(t.Context(), filesOf(village()), inProcess); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 5))
		files := village()
		cache := compile.NewCache("")
		good, sound := 0, files
		for range rounds {
			files = maps.Clone(files)
			for range 1 + rng.IntN(2)*rng.IntN(2) {
				change(rng, files)
			}
			tree := filesOf(files)
			opts := compile.Options{InProcess: true}
			want, wantErr := compile.Fleet(t.Context(), tree, opts)
			opts.Cache = cache
			got, gotErr := compile.Fleet(t.Context(), hashed{tree}, opts)
			if d := cmp.Diff(outcome(t, want, wantErr), outcome(t, got, gotErr)); d != "" {
				t.Fatalf("from nothing -, from the last +\n%s", d)
			}
			if gotErr != nil {
				if rng.IntN(5) > 0 { // somebody takes it back
					files = sound
				}
				continue
			}
			sound = files
			good++
			for i := range want.Groups {
				if a, b := want.Groups[i].Snapshot, got.Groups[i].Snapshot; a.ID() != b.ID() || a.Len() != b.Len() {
					t.Fatalf("group %s: the snapshots differ", want.Groups[i].Name)
				}
			}
			if d := cmp.Diff(want.Allow, got.Allow); d != "" {
				t.Fatalf("allowed hazards: %s", d)
			}
			if want.Live.ID() != got.Live.ID() {
				t.Fatal("the live bodies differ")
			}
		}
		if cache.Steps() < good/5 || good < rounds/4 {
			t.Errorf("%d of %d good trees were made from the last, of %d", cache.Steps(), good, rounds)
		}
		t.Logf("%d of %d good trees were made from the last, of %d", cache.Steps(), good, rounds)
	}
}

// TestAdvanceRoute: new rules of routes that share no host are put into their
// tables, and lead to the same fleet as a compilation of all.
func TestAdvanceRoute(t *testing.T) {
	for _, e := range []struct {
		file, old, new string
		steps          int
	}{
		{"own/1/o.cue", `"2s"`, `"3s"`, 1},
		{"own/1/o.cue", "rules: [\n", "rules: [\n\n\t\t{match: path: \"/first\", respond: status: 204, redirect: https: true},\n", 0},
		{"own/1/o.cue", "rules: [\n", "rules: [\n\n\t\t{match: path: \"/first\", service: \"o1\", timeout: \"1s\"},\n", 1},
		{"own/2/o.cue", "rules: [\n", "rules: [\n\t\t{match: path: \"/first\", service: \"o2\"},\n", 1},
		{"own/1/o.cue", "\t\t{match: path: \"/o\", service: \"o1\"},\n", "", 1},
		{"own/1/o.cue", `path: "/o"`, `prefix: "/"`, 0},                              // the next is never reached
		{"own/1/o.cue", `path: "/o", service: "o1"`, `path: "/o", service: "o0"`, 0}, // a service loses a route
		{"own/1/o.cue", `path: "/o"`, `path: "/o", cors: origins: ["x"]`, 0},         // no field of a match
		{"own/1/o.cue", `service: "o1"},`, `service: "o1", cors: origins: ["x"]},`, 0},
		{"own/1/o.cue", `"o1.example.com"`, `"o11.example.com"`, 0},
		{"s/1/s.cue", `prefix: "/s1"`, `prefix: "/t1"`, 0}, // a host of several
	} {
		files := village()
		opts := compile.Options{InProcess: true, Cache: compile.NewCache("")}
		if _, err := compile.Fleet(t.Context(), hashed{filesOf(files)}, opts); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(files[e.file], e.old) {
			t.Fatalf("%s has no %s", e.file, e.old)
		}
		files[e.file] = strings.Replace(files[e.file], e.old, e.new, 1)
		got, gotErr := compile.Fleet(t.Context(), hashed{filesOf(files)}, opts)
		want, wantErr := compile.Fleet(t.Context(), filesOf(files), inProcess)
		if d := cmp.Diff(outcome(t, want, wantErr), outcome(t, got, gotErr)); d != "" {
			t.Errorf("%s to %s: from nothing -, from the last +\n%s", e.old, e.new, d)
		}
		for i := 0; wantErr == nil && i < len(want.Groups); i++ {
			if a, b := want.Groups[i].Snapshot, got.Groups[i].Snapshot; a.ID() != b.ID() {
				t.Errorf("%s to %s: the snapshots of %s differ", e.old, e.new, want.Groups[i].Name)
			}
		}
		if steps := opts.Cache.Steps(); steps != e.steps {
			t.Errorf("%s to %s: %d steps, want %d", e.old, e.new, steps, e.steps)
		}
	}
}

func filesOf(files map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for name, data := range files {
		tree[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return tree
}

// change does one of the edits.
func change(rng *rand.Rand, files map[string]string) {
	names := slices.Sorted(maps.Keys(files))
	switch rng.IntN(30) {
	case 0:
		delete(files, names[rng.IntN(len(names))])
		return
	case 1:
		files["new/n.cue"] = "package n\n\nservices: n: dns: \"n.example.com:80\"\n"
		return
	case 2:
		delete(files, "new/n.cue")
		return
	}
	for range 200 {
		name, e := names[rng.IntN(len(names))], edits[rng.IntN(len(edits))]
		if data := files[name]; strings.Contains(data, e.old) {
			files[name] = strings.Replace(data, e.old, e.new, 1)
			return
		}
	}
}
