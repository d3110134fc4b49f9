package reconcile

import (
	"context"
	"flag"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// TestMain lets what the tests compile have workers, as the server's has.
func TestMain(m *testing.M) {
	compile.WorkerMain()
	flag.Parse()
	os.Exit(m.Run())
}

// TestHostileCommits: a commit that would eat all time or memory, or that reaches
// for the host, ends in one clear error, and the server goes on: every node keeps
// what it has, and gets the next good commit.
func TestHostileCommits(t *testing.T) {
	if testing.Short() {
		t.Skip("starts workers that run into their bounds: left out with -short")
	}
	if raced {
		t.Skip("bounds the memory of workers: left out with -race, which takes much of its own")
	}
	r := idleRig(t)
	cache := compile.NewCache("")
	r.opts.Compile = func(ctx context.Context, tree fs.FS, commit string) (*schema.Fleet, error) {
		return compile.Fleet(ctx, tree, compile.Options{
			Commit: commit, Cache: cache, Salvage: true, Limits: compile.Limits{Memory: 300 << 20, Deadline: 2 * time.Second},
		})
	}
	first := r.mergeFiles(owners("f1", "e1"))
	r.start()
	r.read(first)
	front := r.connect("front-1")
	front.sees("front → f1, f1@10.0.0.1:80")
	for _, c := range []struct{ name, file, src, code string }{
		{"a range", "h/h.cue", "package h\n\nimport \"list\"\n\n_x: list.Range(0, 1e9, 1)\n", "evaluation-limit"},
		{"doubling", "h/h.cue", "package h\n\n_a: \"" + strings.Repeat("x", 1<<16) + "\"\n_b: _a+_a\n_c: _b+_b\n_d: _c+_c\n_e: _d+_d\n_f: _e+_e\n_g: _f+_f\n_h: _g+_g\n_i: _h+_h\n_j: _i+_i\n_k: _j+_j\n_l: _k+_k\n_m: _l+_l\n_n: _m+_m\n", "evaluation-limit"},
		{"the host's files", "h/h.cue", "@extern(embed)\n\npackage h\n\n_x: _ @embed(file=\"../../../../etc/passwd\", type=text)\n", "cue"},
		{"a registry's module", "h/h.cue", "package h\n\nimport \"example.com/other\"\n\n_x: other.x\n", "import"},
		{"a replacement", "cue.mod/module.cue", "module: \"example.com/a@v0\"\nlanguage: version: \"v99.0.0\"\n", "module-file"},
	} {
		files := owners("f1", "e1")
		files[c.file] = c.src
		commit := r.mergeFiles(files)
		st := r.until(c.name, func(st *Status) bool { return st.Rejected != nil && st.Rejected.Commit == commit })
		if n := strings.Count(st.Rejected.Why, "("); !strings.Contains(st.Rejected.Why, "("+c.code+")") || n > 2 || strings.Contains(st.Rejected.Why, "root:") {
			t.Errorf("%s: rejected with %q", c.name, st.Rejected.Why)
		}
		front.sees("front → f1, f1@10.0.0.1:80")
	}
	last := r.mergeFiles(owners("f2", "e1"))
	r.done("front", last)
	front.sees("front → f2, f2@10.0.0.1:80")
}
