// Command benchcompile measures how long a configuration of many services takes
// from tree to fleet, beside `cue export` of the same files, in one run. Each row
// is a process of its own, so that its memory is its own: what the table calls
// peak is the largest resident set of the process and of its workers.
//
//	go run ./test/benchcompile -n 10000 -json FILE
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// row is one measurement. Times are seconds, memory MiB.
type row struct {
	What     string  `json:"what"`
	Services int     `json:"services"`
	Wall     float64 `json:"wall_s"`
	CPU      float64 `json:"cpu_s"`
	Peak     float64 `json:"peak_mib"`
	// Ratios are CPU and peak of the peer over these: above 1 is better than it.
	CPURatio  float64 `json:"cpu_ratio,omitempty"`
	PeakRatio float64 `json:"peak_ratio,omitempty"`
	// Of a warm row: seconds from tree to fleet after one change, and their share
	// of checks, where it was told apart.
	P50 float64 `json:"p50_s,omitempty"`
	Max float64 `json:"max_s,omitempty"`
}

func main() {
	compile.WorkerMain()
	log.SetFlags(0)
	n := flag.Int("n", 10_000, "how many services, with five routes each")
	out := flag.String("json", "", "also write the rows as JSON to this file")
	mode := flag.String("mode", "", "what a process of the benchmark does: cold or a kind of change")
	flag.Parse()
	var err error
	switch *mode {
	case "":
		err = measure(*n, *out)
	case "cold":
		_, err = compile.Fleet(context.Background(), os.DirFS(flag.Arg(0)), compile.Options{})
	default:
		err = warm(flag.Arg(0), *mode)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func measure(n int, out string) error {
	dir, err := os.MkdirTemp("", "sluice-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cue := filepath.Join(dir, "cue")
	if err := command("go", "build", "-o", cue, "cuelang.org/go/cmd/cue"); err != nil {
		return fmt.Errorf("cannot build cue: %w", err)
	}
	var rows []row
	for _, kind := range []string{"many", "one"} {
		for _, n := range sizes(kind, n) {
			tree := filepath.Join(dir, fmt.Sprintf("%s-%d", kind, n))
			if err := generate(tree, kind, n); err != nil {
				return err
			}
			pair, err := beside(cue, tree, kind, n)
			if err != nil {
				return err
			}
			rows = append(rows, pair...)
			if kind == "one" {
				continue
			}
			for _, change := range changes {
				r, err := run(fmt.Sprintf("warm: %s", change.name), n, nil, "", self(), "-mode", change.name, tree)
				if err != nil {
					return err
				}
				rows = append(rows, r)
			}
		}
	}
	show(rows)
	if out == "" {
		return nil
	}
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(data, '\n'), 0o644)
}

// sizes are those of one kind of tree: a single package at three, to see that it
// grows as they do.
func sizes(kind string, n int) []int {
	if kind == "one" {
		return []int{n / 10, n / 5, n * 3 / 10} // a file may have 4 MiB
	}
	return []int{n}
}

// generate writes a tree, and the module that plain cue needs.
func generate(dir, kind string, n int) error {
	args := []string{"run", "./examples/generator", "-n", fmt.Sprint(n)}
	if kind == "one" {
		args = append(args, "-single")
	}
	if err := command("go", append(args, dir)...); err != nil {
		return fmt.Errorf("cannot generate: %w", err)
	}
	module := "module: \"example.com/bench@v0\"\nlanguage: version: \"v0.17.0\"\n"
	at := filepath.Join(dir, "cue.mod/pkg", strings.TrimSuffix(schema.ModulePath, "@v0"), "schema")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	files, err := fs.Glob(schema.CUE, "*.cue")
	for _, name := range files {
		data, readErr := schema.CUE.ReadFile(name)
		err = cmp.Or(err, readErr, os.WriteFile(filepath.Join(at, name), data, 0o644))
	}
	return cmp.Or(err, os.WriteFile(filepath.Join(dir, "cue.mod/module.cue"), []byte(module), 0o644))
}

// beside measures a cold compilation and cue's export.
func beside(cue, tree, kind string, n int) ([]row, error) {
	what := map[string]string{"many": "a package each", "one": "one package"}[kind]
	ours, err := run("sluice, "+what, n, nil, "", self(), "-mode", "cold", tree)
	if err != nil {
		return nil, err
	}
	peer, err := run("cue export, "+what, n, []string{"CUE_CACHE_DIR=" + filepath.Join(tree, "../cache")}, tree, cue, "export", "./...")
	if err != nil {
		return nil, err
	}
	ours.CPURatio, ours.PeakRatio = peer.CPU/ours.CPU, peer.Peak/ours.Peak
	return []row{ours, peer}, nil
}

// run measures a process. What it says on its output as JSON is taken into the row.
func run(what string, n int, env []string, dir, name string, args ...string) (row, error) {
	c := exec.Command(name, args...)
	c.Env, c.Dir = append(os.Environ(), env...), dir
	var said, wrong strings.Builder
	c.Stderr = &wrong
	c.Stdout = io.Discard
	if strings.HasPrefix(what, "warm") {
		c.Stdout = &said
	}
	began := time.Now()
	if err := c.Run(); err != nil {
		return row{}, fmt.Errorf("%s: %w: %.500s", what, err, wrong.String())
	}
	r := row{
		What: what, Services: n, Wall: time.Since(began).Seconds(),
		CPU: (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds(), Peak: peakOf(c.ProcessState),
	}
	if said.Len() > 0 {
		if err := json.Unmarshal([]byte(said.String()), &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func self() string {
	name, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	return name
}

func command(name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	return c.Run()
}

func show(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what\tservices\twall s\tCPU s\tpeak MiB\tcue CPU ×\tcue peak ×\tone change ms, p50\tmax\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.0f\t%s\t%s\t%s\t%s\t\n", r.What, r.Services, r.Wall, r.CPU, r.Peak,
			number(r.CPURatio, 1), number(r.PeakRatio, 1), number(r.P50*1000, 1), number(r.Max*1000, 1))
	}
	w.Flush()
	fmt.Println("\nGoals for 10,000 services, a package each: cold 6 s of CPU and 400 MiB; one service changed 50 ms.")
}

func number(v float64, digits int) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.*f", digits, v)
}
