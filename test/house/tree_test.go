package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// top are the entries of the top level. Those that begin with a dot are free.
var top = []string{
	"cmd", "reconcile", "schema", "planner", "ads", "examples", "cue.mod", "test", "docs", "deploy",
	"go.mod", "go.sum", "Makefile", "LICENSE",
	"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
	"bin", "sluice", // built, and ignored by Git
}

// vague are names that say nothing of what a package is for.
var vague = []string{
	"util", "utils", "common", "helper", "helpers", "types", "manager", "managers", "misc",
}

// pure are the folders whose package doc promises no clock and no goroutine.
var pure = []string{"planner", "schema"}

// clock is what the time package reads the clock or waits with.
var clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(top, e.Name()) {
			t.Errorf("%s stands at the top level, where it is not in the list", e.Name())
		}
	}
}

// Every Go file of the module is read here, which is also how `go test` knows that
// the result of this package is stale: what `go list` reads in TestGraph it cannot see.
func TestFiles(t *testing.T) {
	files := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(name, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		files++
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, w := range checkFile(filepath.ToSlash(rel), src) {
			t.Error(w)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Fatal("no Go file was found")
	}
}

// skipDir leaves out what is not of this module.
func skipDir(name, base string) bool {
	if name == root {
		return false
	}
	if base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err == nil
}

// checkFile says what is wrong with one file; name is its slash path below the root.
func checkFile(name string, src []byte) []string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return []string{fmt.Sprintf("cannot parse: %v", err)}
	}
	var wrong []string
	say := func(n ast.Node, format string, args ...any) {
		p := fset.Position(n.Pos())
		wrong = append(wrong, fmt.Sprintf("%s:%d: ", p.Filename, p.Line)+fmt.Sprintf(format, args...))
	}
	folder := path.Dir(name)
	if pkg := strings.TrimSuffix(file.Name.Name, "_test"); slices.Contains(vague, pkg) {
		say(file.Name, "package %s: the name says nothing of what it is for", pkg)
	}
	if base := path.Base(folder); slices.Contains(vague, base) {
		say(file.Name, "folder %s: the name says nothing of what it is for", base)
	}
	mustBePure := slices.Contains(pure, folder) && !strings.HasSuffix(name, "_test.go")
	timeName := importName(file, "time")
	if mustBePure && timeName == "." {
		say(file.Name, "imports time as a dot: its calls cannot be seen")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if unfinished(n) {
				say(n, "panics where code is missing")
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if mustBePure && ok && x.Name == timeName && slices.Contains(clock, n.Sel.Name) {
				say(n, "%s is pure: time is a parameter, not time.%s", folder, n.Sel.Name)
			}
		case *ast.GoStmt:
			if mustBePure {
				say(n, "%s is pure: it starts no goroutine", folder)
			}
		}
		return true
	})
	return wrong
}

// importName is what a file calls an imported package; empty if it does not import it.
func importName(file *ast.File, pkg string) string {
	for _, i := range file.Imports {
		if i.Path.Value != `"`+pkg+`"` {
			continue
		}
		if i.Name != nil {
			return i.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// unfinished reports whether a call is a panic that stands for code to be written.
func unfinished(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.Ident)
	if !ok || f.Name != "panic" || len(call.Args) != 1 {
		return false
	}
	found := false
	ast.Inspect(call.Args[0], func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text := strings.ToLower(strings.Trim(lit.Value, "\"`"))
			for _, sign := range []string{"todo", "fixme", "not implemented", "unimplemented", "not yet"} {
				found = found || strings.Contains(text, sign)
			}
		}
		return true
	})
	return found
}

func TestCheckFile(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"planner/a.go", "package planner\nimport \"time\"\nvar D = time.Second\nfunc F(now time.Time) { panic(\"no such stage\") }", ""},
		{"planner/a.go", "package planner\nimport \"time\"\nvar N = time.Now()", "planner/a.go:3: planner is pure: time is a parameter, not time.Now"},
		{"planner/a.go", "package planner\nimport clk \"time\"\nvar N = clk.Since", "planner/a.go:3: planner is pure: time is a parameter, not time.Since"},
		{"planner/a.go", "package planner\nimport . \"time\"\nvar N = Now()", "planner/a.go:1: imports time as a dot: its calls cannot be seen"},
		{"planner/a.go", "package planner\nfunc F() { go F() }", "planner/a.go:2: planner is pure: it starts no goroutine"},
		{"schema/a.go", "package schema\nfunc F() { go F() }", "schema/a.go:2: schema is pure: it starts no goroutine"},
		{"planner/a_test.go", "package planner\nimport \"time\"\nvar N = time.Now()", ""},
		{"ads/a.go", "package ads\nimport \"time\"\nvar N = time.Now()\nfunc F() { go F() }", ""},
		{"ads/a.go", "package ads\nfunc F() { panic(\"TODO: later\") }", "ads/a.go:2: panics where code is missing"},
		{"ads/a.go", "package ads\nfunc F() { panic(e(`not implemented`)) }", "ads/a.go:2: panics where code is missing"},
		{"ads/a.go", "package common", "ads/a.go:1: package common: the name says nothing of what it is for"},
		{"ads/a_test.go", "package util_test", "ads/a_test.go:1: package util: the name says nothing of what it is for"},
		{"ads/types/a.go", "package kinds", "ads/types/a.go:1: folder types: the name says nothing of what it is for"},
	} {
		if got := strings.Join(checkFile(c.name, []byte(c.src)), "; "); got != c.want {
			t.Errorf("%s\n%s\n got %q\nwant %q", c.name, c.src, got, c.want)
		}
	}
	if got := checkFile("ads/a.go", []byte("package")); len(got) != 1 {
		t.Errorf("a file that does not parse: got %q, want one complaint", got)
	}
}
