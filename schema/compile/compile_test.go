package compile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"cuelang.org/go/cmd/cue/cmd"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// TestCUEAgrees runs CUE's own command: what this package accepts in the
// examples, plain CUE accepts too, by the module at the root of the repository.
func TestCUEAgrees(t *testing.T) {
	t.Chdir("../..")
	for _, args := range [][]string{
		{"vet", "-c", "./examples/..."},
		{"vet", "./schema"},
		{"fmt", "--check", "./schema", "./examples/..."},
	} {
		if said, err := cue(t, args...); err != nil {
			t.Errorf("cue %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
}

// cue runs CUE's own command.
func cue(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	c, err := cmd.New(args)
	if err != nil {
		t.Fatal(err)
	}
	c.SetOut(&out)
	c.SetErr(&out)
	err = c.Run(t.Context())
	return out.String(), err
}

// TestCUEAgreesOnGoldens: plain CUE accepts every golden that this package does,
// with the schema where sluice schema vendor puts it. The one that has a module of
// its own depends on another, which plain CUE would download.
func TestCUEAgreesOnGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	const module, vendored = "cue.mod/module.cue", "cue.mod/pkg/github.com/sluice-xds/sluice/schema/"
	for _, name := range files {
		ar, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tree := map[string][]byte{}
		for _, f := range ar.Files {
			tree[f.Name] = f.Data
		}
		if tree[module] != nil {
			continue
		}
		tree[module] = []byte("module: \"fleet.example@v0\"\nlanguage: version: \"v0.17.0\"\n")
		schemas, err := fs.Glob(schema.CUE, "*.cue")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range schemas {
			if tree[vendored+s], err = schema.CUE.ReadFile(s); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range tree {
				full := filepath.Join(dir, filepath.FromSlash(name))
				if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(full, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			args := []string{"vet", "-c", "./..."}
			if bytes.Contains(txtar.Format(ar), []byte("base: true")) {
				args[1] = "-c=false" // plain CUE does not know that nobody serves it by itself
			}
			if said, err := cue(t, args...); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// shuffled gives directories in a random order.
type shuffled struct{ fs.FS }

func (s shuffled) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	return entries, err
}

// TestDeterministic: equal content gives equal fleets and equal errors (rule
// C11), whatever order files come in and fields stand in.
func TestDeterministic(t *testing.T) {
	tree := generate(40)
	first, err := compile.Fleet(t.Context(), tree, inProcess)
	if err != nil {
		t.Fatal(err)
	}
	bad := fstest.MapFS{}
	for name, f := range tree {
		bad[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(string(f.Data), "protocol:", "protocl:"))}
	}
	_, firstErr := compile.Fleet(t.Context(), bad, inProcess)
	for range 5 {
		f, err := compile.Fleet(t.Context(), shuffled{tree}, inProcess)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(outcome(t, first, nil), outcome(t, f, nil)); d != "" {
			t.Fatal(d)
		}
		for i := range f.Groups {
			if !f.Groups[i].Snapshot.Equal(first.Groups[i].Snapshot) || !f.Live.Equal(first.Live) {
				t.Fatalf("group %s differs", f.Groups[i].Name)
			}
		}
		if _, err := compile.Fleet(t.Context(), shuffled{bad}, inProcess); err.Error() != firstErr.Error() {
			t.Fatal(cmp.Diff(firstErr.Error(), err.Error()))
		}
	}
}

// TestOrderOfFields: order of fields, files and sets is no meaning (rule C4).
func TestOrderOfFields(t *testing.T) {
	compileOne := func(src ...string) *schema.Fleet {
		tree := fstest.MapFS{}
		for i, s := range src {
			tree[fmt.Sprintf("f%d.cue", i)] = &fstest.MapFile{Data: []byte("package a\n" + s)}
		}
		f, err := compile.Fleet(t.Context(), tree, inProcess)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	group := "groups: edge: {client: \"envoy\", match: id: \"e\"}\nlisteners: web: {groups: [\"edge\"], bind: \"0.0.0.0:80\"}\n"
	a := compileOne(group,
		`services: {a: dns: "a.b:1", b: dns: "b.b:1"}
		routes: r: {listeners: ["web"], hosts: ["x", "y"], rules: [{match: prefix: "/", split: {a: 1, b: 2}}]}`)
	b := compileOne(
		`routes: r: {rules: [{split: {b: 2, a: 1}, match: prefix: "/"}], hosts: ["y", "x"], listeners: ["web"]}`,
		`services: {b: dns: "b.b:1", a: dns: "a.b:1"}`, group)
	if a.Groups[0].Snapshot.Version() != b.Groups[0].Snapshot.Version() {
		t.Error("the order of fields changes versions")
	}
}

// TestHermetic: nothing outside of the tree can be read.
func TestHermetic(t *testing.T) {
	root := t.TempDir()
	write := func(name, data string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("secret.txt", "top-secret")
	write("outside/x.cue", "package x\n\nleak: \"top-secret\"\n")
	ok := "package a\n\ngroups: edge: {client: \"envoy\", match: id: \"x\"}\n"

	for name, c := range map[string]struct {
		files map[string]string
		links map[string]string
		want  string
	}{
		"embed above": {
			files: map[string]string{"a.cue": "@extern(embed)\n\n" + ok + "_x: _ @embed(file=\"../secret.txt\", type=text)\n"},
			want:  "parent directory",
		},
		"embed absolute": {
			files: map[string]string{"a.cue": "@extern(embed)\n\n" + ok + "_x: _ @embed(file=" + fmt.Sprintf("%q", filepath.Join(root, "secret.txt")) + ", type=text)\n"},
			want:  "relative",
		},
		"embed through a link": {
			files: map[string]string{"a.cue": "@extern(embed)\n\n" + ok + "_x: _ @embed(file=\"link.txt\", type=text)\n"},
			links: map[string]string{"link.txt": "../secret.txt"},
			want:  "symbolic link",
		},
		"a linked package": {
			files: map[string]string{"a.cue": ok},
			links: map[string]string{"sub": "../outside"},
			want:  "symbolic link",
		},
		"a linked file": {
			files: map[string]string{"a.cue": ok},
			links: map[string]string{"b.cue": "../outside/x.cue"},
			want:  "symbolic link",
		},
		"a replacement": {
			files: map[string]string{
				"cue.mod/module.cue":       "module: \"example.com/a@v0\"\nlanguage: version: \"v0.17.0\"\ndeps: \"example.com/x@v0\": v: \"v0.1.0\"\n",
				"cue.mod/local-module.cue": "deps: \"example.com/x@v0\": replaceWith: \"../outside\"\n",
				"a.cue":                    strings.Replace(ok, "\n\n", "\n\nimport \"example.com/x\"\n\n", 1) + "_x: x.leak\n",
			},
			want: "not in this repository",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("repo", strings.ReplaceAll(name, " ", "-"))
			for file, data := range c.files {
				write(filepath.Join(dir, file), data)
			}
			for link, target := range c.links {
				if err := os.Symlink(filepath.Join("..", target), filepath.Join(root, dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			_, err := compile.Fleet(t.Context(), os.DirFS(filepath.Join(root, dir)), inProcess)
			var ds schema.Diagnostics
			if !errors.As(err, &ds) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "top-secret") {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestLimits: each bound ends in one clear error.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits compile.Limits
		want   string
	}{
		"files": {compile.Limits{Files: 2}, "more than 2 files"},
		"file":  {compile.Limits{File: 50}, "larger than 50 bytes"},
		"total": {compile.Limits{Total: 200}, "larger than 200 bytes"},
	} {
		_, err := compile.Fleet(t.Context(), generate(5), compile.Options{Limits: c.limits, InProcess: true})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compile.Fleet(ctx, generate(3), inProcess); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestOwnRepository: this repository's examples compile from its root too, where
// the schema is a package of the same module.
func TestOwnRepository(t *testing.T) {
	root := fstest.MapFS{}
	for _, dir := range []string{"cue.mod", "schema", "examples"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(p, "testdata") {
				return err
			}
			data, err := os.ReadFile(p)
			root[filepath.ToSlash(strings.TrimPrefix(p, filepath.FromSlash("../../")))] = &fstest.MapFile{Data: data}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range exampleNames(t) {
		whole, err := compile.Fleet(t.Context(), root, compile.Options{Path: "examples/" + name, InProcess: true})
		if err != nil {
			t.Fatal(err)
		}
		alone, err := compile.Fleet(t.Context(), os.DirFS("../../examples/"+name), inProcess)
		if err != nil {
			t.Fatal(err)
		}
		for i := range alone.Groups {
			if !alone.Groups[i].Snapshot.Equal(whole.Groups[i].Snapshot) {
				t.Errorf("%s: group %s differs", name, alone.Groups[i].Name)
			}
		}
	}
}

// TestRawWords: the words that stand beside a raw resource's own fields are no
// fields of any.
func TestRawWords(t *testing.T) {
	for _, typ := range schema.AllTypes() {
		fields := envoy.New(typ).ProtoReflect().Descriptor().Fields()
		for _, word := range []protoreflect.Name{"groups", "allow"} {
			if fields.ByName(word) != nil {
				t.Errorf("%s has a field %q", typ, word)
			}
		}
	}
}

// TestSchemaForm holds rule C3: no matchN, which breaks closedness.
func TestSchemaForm(t *testing.T) {
	files, err := fs.Glob(schema.CUE, "*.cue")
	if err != nil || len(files) == 0 {
		t.Fatal("no schema", err)
	}
	for _, name := range files {
		data, err := schema.CUE.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, banned := range []string{"matchN", " or(", "list."} {
			if strings.Contains(string(data), banned) {
				t.Errorf("%s uses %s", name, banned)
			}
		}
	}
}

// TestPositions: no diagnostic of a golden case stands in the schema (rule C8).
func TestPositions(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.txtar")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, want, _ := strings.Cut(string(data), "-- want --"); strings.Contains(want, ".sluice") {
			t.Errorf("%s: a position inside the loader's own files", file)
		}
	}
	if len(files) < 30 {
		t.Errorf("only %d bad inputs", len(files))
	}
}

// TestFleetIsPlain: what tools show of groups is stable JSON.
func TestFleetIsPlain(t *testing.T) {
	f, err := compile.Fleet(t.Context(), generate(3), compile.Options{Commit: "c", InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	if f.Commit != "c" || len(f.Groups) != 1 || f.Groups[0].Drain >= 0 {
		t.Errorf("%+v", f.Groups)
	}
	if _, err := json.Marshal(f.Groups); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(f.Group("none"), (*schema.Group)(nil)) {
		t.Error("a group that is not there")
	}
}
