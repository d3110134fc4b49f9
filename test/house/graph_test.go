package house

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/sluice-xds/sluice"
	root   = "../.."
)

// layers says which of our own packages a package may import. A row covers what
// is below it too, down to a row of its own; inside a row all is allowed.
// schema/compile, planner and ads are siblings: only reconcile joins them.
var layers = graph{
	"schema":         {},
	"schema/envoy":   {"schema"},
	"schema/compile": {"schema", "schema/envoy"},
	"planner":        {"schema", "schema/envoy"},
	"ads":            {"schema"},
	"reconcile":      {"schema", "schema/envoy", "schema/compile", "planner", "ads"},
	"cmd/sluice":     {"schema", "schema/envoy", "schema/compile", "planner", "ads", "reconcile", "examples", "test/dataplane"},
	"examples":       {},
	"test":           {"schema", "schema/envoy", "schema/compile", "planner", "ads", "reconcile", "examples", "test/dataplane"},
	"test/dataplane": {}, // knows xDS from outside only
	"test/fleet":     {}, // the same
	"test/house":     {},
	"test/skips":     {},
}

// homes says who may import a library: a heavy one has one home. The longest
// prefix of an import path counts, and a library without a row is refused.
// Test files are free, except for what has no home at all.
var homes = graph{
	"cuelang.org/go":                               {"schema/compile"},
	"github.com/go-git/go-git":                     {"reconcile"},
	"github.com/go-git/go-billy":                   {"reconcile"},
	"go.etcd.io/bbolt":                             {"reconcile"},
	"github.com/hashicorp/go-memdb":                {"ads"},
	"google.golang.org/grpc":                       {"ads", "cmd/sluice", "test/dataplane", "test/fleet"},
	"github.com/spf13/cobra":                       {"cmd/sluice"},
	"github.com/spf13/pflag":                       {"cmd/sluice"},
	"github.com/aymanbagabas/go-udiff":             {"cmd/sluice"},
	"github.com/prometheus/client_golang":          {"cmd/sluice"},
	"charm.land":                                   {"cmd/sluice"},
	"github.com/charmbracelet":                     {"cmd/sluice"},
	"golang.org/x/term":                            {"cmd/sluice"},
	"google.golang.org/protobuf":                   {"schema/envoy", "schema/compile", "planner", "ads", "reconcile", "cmd/sluice", "test"},
	"google.golang.org/genproto/googleapis/rpc":    {"ads", "test/fleet"}, // google.rpc.Status of a NACK
	"github.com/cncf/xds/go":                       {"schema/envoy", "schema/compile", "planner", "ads"},
	"github.com/envoyproxy/go-control-plane/envoy": {"schema/envoy", "schema/compile", "planner", "ads", "reconcile", "cmd/sluice", "test"},
	"github.com/envoyproxy/go-control-plane/pkg":   {}, // the peer: in a nested module under test/ alone
}

// pureImports are what a package without I/O, clock or goroutine has no use for.
var pureImports = []string{
	"context", "crypto/rand", "io/fs", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2",
	"net", "net/http", "os", "os/exec", "os/signal", "os/user", "path/filepath", "runtime",
	"sync", "sync/atomic", "syscall",
}

// graph maps a path, and what is below it, to a list of our packages.
type graph map[string][]string

// row is the longest key that is path or above it.
func (g graph) row(path string) (key string, ok bool) {
	for key = path; ; key = key[:strings.LastIndexByte(key, '/')] {
		if _, ok := g[key]; ok {
			return key, true
		}
		if !strings.Contains(key, "/") {
			return "", false
		}
	}
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// check says what is wrong with a graph of packages, in their order.
func check(pkgs []listed) []string {
	var wrong []string
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		home, known := layers.row(from)
		if !known {
			wrong = append(wrong, from+" has no row in the table of layers")
			continue
		}
		for _, to := range p.Imports {
			if why := checkImport(home, to); why != "" {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", from, to, why))
			}
		}
		for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
			if lib, ok := homes.row(to); ok && len(homes[lib]) == 0 {
				wrong = append(wrong, fmt.Sprintf("a test of %s imports %s: nothing may", from, to))
			}
		}
	}
	return wrong
}

// checkImport says why a package of the row home may not import to.
func checkImport(home, to string) string {
	if home == "planner" && slices.Contains(pureImports, to) {
		return "the planner is pure"
	}
	if first, _, _ := strings.Cut(to, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	if ours, ok := strings.CutPrefix(to, module+"/"); ok {
		target, known := layers.row(ours)
		switch {
		case !known:
			return "that has no row in the table of layers"
		case target != home && !slices.Contains(layers[home], target):
			return fmt.Sprintf("%s may import %s", home, list(layers[home]))
		}
		return ""
	}
	lib, known := homes.row(to)
	switch {
	case !known:
		return "that has no row in the table of homes"
	case !slices.ContainsFunc(homes[lib], func(h string) bool { return home == h || strings.HasPrefix(home, h+"/") }):
		return fmt.Sprintf("the home of %s is %s", lib, list(homes[lib]))
	}
	return ""
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// Both systems are listed: a file for one of them alone is not seen on the other.
func TestGraph(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		t.Run(goos, func(t *testing.T) {
			pkgs, err := goList(goos)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(pkgs, func(p listed) bool { return p.ImportPath == module+"/schema" }) {
				t.Fatalf("go list found %d packages, and not schema among them", len(pkgs))
			}
			for _, w := range check(pkgs) {
				t.Error(w)
			}
		})
	}
}

func goList(goos string) ([]listed, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("cannot list packages: %w\n%s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("cannot list packages: %w", err)
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		switch err := dec.Decode(&p); {
		case err == io.EOF:
			return pkgs, nil
		case err != nil:
			return nil, fmt.Errorf("cannot read go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}

// The tables name what exists in them: a row that misspells a package allows
// nothing, and would never be noticed.
func TestTables(t *testing.T) {
	for _, g := range []graph{layers, homes} {
		for key, allowed := range g {
			for _, a := range allowed {
				if _, ok := layers[a]; !ok {
					t.Errorf("%s: allows %s, which has no row in the table of layers", key, a)
				}
			}
		}
	}
	var visit func(pkg string, above []string)
	visit = func(pkg string, above []string) {
		if slices.Contains(above, pkg) {
			t.Fatalf("the layers allow a cycle: %s", strings.Join(append(above, pkg), " → "))
		}
		for _, to := range layers[pkg] {
			if to != pkg {
				visit(to, append(slices.Clone(above), pkg))
			}
		}
	}
	for pkg := range layers {
		visit(pkg, nil)
	}
}

// Each break of the rules is seen, and what keeps them is not.
func TestCheck(t *testing.T) {
	const gcp = "github.com/envoyproxy/go-control-plane/"
	for _, c := range []struct{ from, to, want string }{
		{"schema", "fmt", ""},
		{"schema", "sync", ""},
		{"schema", module + "/ads", "schema imports " + module + "/ads: schema may import nothing"},
		{"schema", gcp + "envoy/config/core/v3", "schema imports " + gcp + "envoy/config/core/v3: the home of " + gcp + "envoy is " + list(homes[gcp+"envoy"])},
		{"schema/envoy", module + "/schema", ""},
		{"schema/envoy", module + "/schema/compile", "schema/envoy imports " + module + "/schema/compile: schema/envoy may import schema"},
		{"schema/envoy", gcp + "envoy/config/core/v3", ""},
		{"schema/compile", "cuelang.org/go/cue", ""},
		{"schema/compile/lower", "cuelang.org/go/cue", ""},
		{"planner", "cuelang.org/go/cue", "planner imports cuelang.org/go/cue: the home of cuelang.org/go is schema/compile"},
		{"planner", module + "/ads", "planner imports " + module + "/ads: planner may import schema, schema/envoy"},
		{"planner", "time", ""},
		{"planner", "os", "planner imports os: the planner is pure"},
		{"planner", "sync/atomic", "planner imports sync/atomic: the planner is pure"},
		{"planner/gate", "net", "planner/gate imports net: the planner is pure"},
		{"ads", module + "/planner", "ads imports " + module + "/planner: ads may import schema"},
		{"ads", "github.com/hashicorp/go-memdb", ""},
		{"ads", "google.golang.org/grpc/codes", ""},
		{"ads", gcp + "pkg/server/v3", "ads imports " + gcp + "pkg/server/v3: the home of " + gcp + "pkg is nothing"},
		{"ads", gcp + "pkg/cache/v3", "ads imports " + gcp + "pkg/cache/v3: the home of " + gcp + "pkg is nothing"},
		{"reconcile", "github.com/go-git/go-git/v5/plumbing", ""},
		{"reconcile", "google.golang.org/grpc", "reconcile imports google.golang.org/grpc: the home of google.golang.org/grpc is ads, cmd/sluice, test/dataplane, test/fleet"},
		{"reconcile", module + "/cmd/sluice", "reconcile imports " + module + "/cmd/sluice: reconcile may import " + list(layers["reconcile"])},
		{"cmd/sluice", module + "/test/dataplane", ""},
		{"cmd/sluice", "github.com/spf13/cobra", ""},
		{"cmd/sluice", "example.com/new", "cmd/sluice imports example.com/new: that has no row in the table of homes"},
		{"cmd/sluice", module + "/util", "cmd/sluice imports " + module + "/util: that has no row in the table of layers"},
		{"util", "fmt", "util has no row in the table of layers"},
		{"test/dataplane", module + "/schema", "test/dataplane imports " + module + "/schema: test/dataplane may import nothing"},
		{"test/dataplane", gcp + "envoy/service/status/v3", ""},
		{"test/sim", module + "/planner", ""},
	} {
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		got := check([]listed{{ImportPath: module + "/" + c.from, Imports: []string{c.to}}})
		if !slices.Equal(got, want) {
			t.Errorf("%s → %s:\n got %q\nwant %q", c.from, c.to, got, want)
		}
	}

	got := check([]listed{{
		ImportPath:   module + "/ads",
		TestImports:  []string{"pgregory.net/rapid", gcp + "pkg/cache/v3"},
		XTestImports: []string{module + "/planner", gcp + "pkg/server/v3"},
	}})
	want := []string{
		"a test of ads imports " + gcp + "pkg/cache/v3: nothing may",
		"a test of ads imports " + gcp + "pkg/server/v3: nothing may",
	}
	if !slices.Equal(got, want) {
		t.Errorf("test files:\n got %q\nwant %q", got, want)
	}
}
