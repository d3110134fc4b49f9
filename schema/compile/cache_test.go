package compile_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema/compile"
)

// TestCache: whatever a tree becomes, a cache says what no cache says.
func TestCache(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	base := fstest.MapFS{
		"cue.mod/module.cue": file("module: \"example.com/a@v0\"\nlanguage: version: \"v0.17.0\"\n"),
		"env/env.cue":        file("package env\n\nsluice: base: true\n_port: *80 | int\ngroups: g: {client: \"envoy\", match: id: \"x\"}\nlisteners: w: {groups: [\"g\"], bind: \"0.0.0.0:\\(_port)\"}\nroutes: r: {listeners: [\"w\"], hosts: [\"*\"], rules: [{match: prefix: \"/\", service: \"lib\"}]}\n"),
		"env/prod/p.cue":     file("package env\n\n_port: 81\n"),
		"lib/l.cue":          file("package lib\n\nsluice: base: true\n#Addr: \"10.0.0.1:80\"\n"),
		"svc/s.cue":          file("@extern(embed)\n\npackage svc\n\nimport \"example.com/a/lib\"\n\nservices: lib: endpoints: [{address: lib.#Addr}]\nresources: clusters: raw: _ @embed(file=\"raw.yaml\")\n"),
		"svc/raw.yaml":       file("type: STATIC\n"),
	}
	steps := []map[string]string{
		{},
		{"env/env.cue": strings.Replace(string(base["env/env.cue"].Data), "*80", "*8080", 1)},
		{"env/prod/p.cue": "package env\n\n_port: 82\n"},
		{"lib/l.cue": "package lib\n\nsluice: base: true\n#Addr: \"10.0.0.2:80\"\n"},
		{"svc/raw.yaml": "type: STRICT_DNS\n"},
		{"svc/s.cue": string(base["svc/s.cue"].Data) + "\n// moved\n"},
		{"svc/s.cue": "\n\n" + string(base["svc/s.cue"].Data)},
		{"lib/l.cue": "package lib\n\n#Addr: 5\n"},
		{"env/b.cue": "package env\n\nservices: other: dns: \"a:1\"\n"},
		{"cue.mod/module.cue": "module: \"example.com/b@v0\"\nlanguage: version: \"v0.17.0\"\n"},
	}
	dir := t.TempDir()
	memory := compile.NewCache("")
	for round := range 2 {
		for i, step := range steps {
			tree := maps.Clone(base)
			for name, data := range step {
				tree[name] = file(data)
			}
			say := func(o compile.Options) string {
				o.InProcess = true
				f, err := compile.Fleet(t.Context(), tree, o)
				return outcome(t, f, err)
			}
			want := say(compile.Options{})
			if d := cmp.Diff(want, say(compile.Options{Cache: memory})); d != "" {
				t.Errorf("round %d, step %d, in memory: %s", round, i, d)
			}
			if d := cmp.Diff(want, say(compile.Options{Cache: compile.NewCache(dir)})); d != "" {
				t.Errorf("round %d, step %d, on disk: %s", round, i, d)
			}
		}
		if err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return os.Truncate(p, 40) // the second round finds a damaged disk
		}); err != nil {
			t.Fatal(err)
		}
	}
}
