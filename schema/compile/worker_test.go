package compile_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

func TestMain(m *testing.M) {
	compile.WorkerMain()
	flag.Parse()
	os.Exit(m.Run())
}

// inProcess is for the many small trees of the other tests.
var inProcess = compile.Options{InProcess: true}

// computed is generate, but that only CUE can read it.
func computed(n int) fstest.MapFS {
	tree := generate(n)
	for _, f := range tree {
		f.Data = append(f.Data, "\n_unused: 1 + 1\n"...)
	}
	return tree
}

// TestWorkerAgrees: a worker says what this process says, of good and bad.
func TestWorkerAgrees(t *testing.T) {
	tree := computed(30)
	tree["services/s00003/s.cue"].Data = []byte(strings.ReplaceAll(string(tree["services/s00003/s.cue"].Data), "protocol:", "protocl:"))
	tree["broken/b.cue"] = &fstest.MapFile{Data: []byte("package b\n\nx: {")}
	tree["embed/e.cue"] = &fstest.MapFile{Data: []byte("@extern(embed)\n\npackage e\n\nresources: clusters: e: _ @embed(file=\"e.yaml\")\n_big: _ @embed(file=\"big.json\")\n")}
	tree["embed/e.yaml"] = &fstest.MapFile{Data: []byte("type: STATIC\n")}
	tree["embed/big.json"] = &fstest.MapFile{Data: []byte("\"" + strings.Repeat("x", 9000) + "\"")}
	small := compile.Limits{File: 8000}
	_, here := compile.Fleet(t.Context(), tree, compile.Options{InProcess: true, Limits: small})
	_, there := compile.Fleet(t.Context(), tree, compile.Options{Limits: small})
	if here == nil || there == nil || !strings.Contains(there.Error(), "protocl") || !strings.Contains(there.Error(), "larger than 8000 bytes") {
		t.Fatal(here, there)
	}
	if d := cmp.Diff(here.Error(), there.Error()); d != "" {
		t.Error(d)
	}
	a, err := compile.Fleet(t.Context(), computed(150), inProcess)
	if err != nil {
		t.Fatal(err)
	}
	b, err := compile.Fleet(t.Context(), computed(150), compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(outcome(t, a, nil), outcome(t, b, nil)); d != "" {
		t.Error(d)
	}
}

// TestHostile: what would eat all time or memory ends in one clear error that
// names the package, and the others are evaluated.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("starts workers that run into their bounds: left out with -short")
	}
	doubling := "_a0: \"xxxxxxxxxxxxxxxx\"\n"
	for i := range 40 {
		doubling += fmt.Sprintf("_a%d: _a%d + _a%d\n", i+1, i, i)
	}
	for name, c := range map[string]struct{ src, want string }{
		"comprehensions": {"_r: [for i in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] {i}]\n_x: [for a in _r for b in _r for c in _r for d in _r for e in _r for f in _r for g in _r for h in _r {a + b + c + d + e + f + g + h}]\n", "evaluation-limit"},
		"doubling":       {doubling, "evaluation-limit"},
		"range":          {"_x: list.Range(0, 1e9, 1)\n", "evaluation-limit"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := generate(3)
			head := "package h\n\n"
			if strings.Contains(c.src, "list.") {
				head += "import \"list\"\n\n"
			}
			tree["hostile/h.cue"] = &fstest.MapFile{Data: []byte(head + c.src)}
			tree["bad/b.cue"] = &fstest.MapFile{Data: []byte("package b\n\nservices: x: dsn: \"a:1\"\n")}
			_, err := compile.Fleet(t.Context(), tree, compile.Options{Limits: compile.Limits{Memory: 300 << 20, Deadline: 2 * time.Second}})
			var ds schema.Diagnostics
			if !errors.As(err, &ds) {
				t.Fatalf("got %v", err)
			}
			t.Log(err)
			if len(ds) != 2 || ds[0].Code != "unknown-field" || ds[1].Code != c.want || ds[1].Pos.File != "hostile/h.cue" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestWorkerCommand: a worker that cannot be had is an error, not a diagnostic.
func TestWorkerCommand(t *testing.T) {
	_, err := compile.Fleet(t.Context(), computed(1), compile.Options{Worker: []string{"/does/not/exist"}})
	var ds schema.Diagnostics
	if err == nil || errors.As(err, &ds) || !strings.Contains(err.Error(), "cannot start a worker") {
		t.Errorf("got %v", err)
	}
}
