package compile_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-xds/sluice/examples"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
	"github.com/sluice-xds/sluice/schema/envoy"
)

var update = flag.Bool("update", false, "rewrite the expected outputs")

// TestGolden compiles each archive of testdata: its files are the tree, the
// file "want" is the exact outcome. A comment "path: P" compiles P alone.
func TestGolden(t *testing.T) {
	for _, dir := range []string{"bad", "good"} {
		files, err := filepath.Glob("testdata/" + dir + "/*.txtar")
		if err != nil || len(files) == 0 {
			t.Fatalf("no cases in %s: %v", dir, err)
		}
		for _, file := range files {
			t.Run(dir+"/"+strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
				t.Parallel()
				ar, err := txtar.ParseFile(file)
				if err != nil {
					t.Fatal(err)
				}
				f, err := compile.Fleet(t.Context(), treeOf(ar), optionsOf(ar))
				if (err != nil) != (dir == "bad") {
					t.Errorf("error: %v", err)
				}
				check(t, ar, file, outcome(t, f, err))
			})
		}
	}
}

// exampleNames are all examples, as they are listed for other packages.
func exampleNames(t *testing.T) []string {
	t.Helper()
	dirs, err := fs.ReadDir(examples.FS, ".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	return names
}

// TestExamples pins what the examples compile to.
func TestExamples(t *testing.T) {
	for _, name := range exampleNames(t) {
		t.Run(name, func(t *testing.T) {
			f, err := compile.Fleet(t.Context(), os.DirFS("../../examples/"+name), compile.Options{Commit: "abc", InProcess: true})
			if err != nil {
				t.Fatal(err)
			}
			file := "testdata/examples/" + name + ".txtar"
			ar, err := txtar.ParseFile(file)
			if err != nil {
				ar = new(txtar.Archive)
			}
			check(t, ar, file, outcome(t, f, nil))
		})
	}
}

func check(t *testing.T, ar *txtar.Archive, file, got string) {
	t.Helper()
	var rest []txtar.File
	want := ""
	for _, f := range ar.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		rest = append(rest, f)
	}
	if got == want {
		return
	}
	if !*update {
		t.Errorf("-want +got:\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		return
	}
	ar.Files = append(rest, txtar.File{Name: "want", Data: []byte(got)})
	if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
		t.Fatal(err)
	}
}

func treeOf(ar *txtar.Archive) fs.FS {
	tree := fstest.MapFS{}
	for _, f := range ar.Files {
		if f.Name != "want" {
			tree[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o644}
		}
	}
	return tree
}

func optionsOf(ar *txtar.Archive) compile.Options {
	o := inProcess
	for line := range strings.SplitSeq(string(ar.Comment), "\n") {
		if p, ok := strings.CutPrefix(line, "path: "); ok {
			o.Path = p
		}
	}
	return o
}

// outcome is the whole of a fleet, or of what is wrong, as text.
func outcome(t *testing.T, f *schema.Fleet, err error) string {
	t.Helper()
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	if len(f.Warnings) > 0 {
		fmt.Fprintf(&b, "warnings:\n%s\n\n", f.Warnings.Error())
	}
	for _, g := range f.Groups {
		head, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "group %s\n", head)
		for r := range g.Snapshot.All() {
			dump(t, &b, r, f.Provenance)
		}
		if d := g.Snapshot.Dangling(); len(d) > 0 {
			t.Errorf("group %s is not closed: %v", g.Name, d)
		}
		b.WriteByte('\n')
	}
	b.WriteString("live\n")
	for r := range f.Live.All() {
		dump(t, &b, r, f.Provenance)
	}
	for i, r := range compile.RunTests(f).Results {
		if i == 0 {
			b.WriteString("\ntests\n")
		}
		word := "ok"
		if !r.OK {
			word = "FAIL"
		}
		fmt.Fprintf(&b, "%s %q %s: group %q table %q route %q: want %s, got %s\n",
			word, r.Test.Name, r.Test.Pos, r.Group, r.Table, r.Route, r.Expected, r.Actual)
	}
	return b.String()
}

func dump(t *testing.T, b *strings.Builder, r *schema.Resource, p schema.Provenance) {
	t.Helper()
	fmt.Fprintf(b, "  %s", r.Key)
	for _, ref := range r.Refs {
		fmt.Fprintf(b, " -> %s %s", ref.Edge, ref.Key)
	}
	if r.Usable {
		b.WriteString(" usable")
	}
	b.WriteByte('\n')
	for _, o := range p[r.Key] {
		fmt.Fprintf(b, "    from %s %q %s at %s\n", o.Kind, o.Name, o.Field, o.Pos)
	}
	if r.Body == nil {
		return
	}
	msg, err := envoy.Unpack(r)
	if err != nil {
		t.Fatal(err)
	}
	// protojson's spaces are random on purpose: write it anew.
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(&indenter{b})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
}

type indenter struct{ b *strings.Builder }

func (w *indenter) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		w.b.WriteString("    " + line)
	}
	return len(p), nil
}
