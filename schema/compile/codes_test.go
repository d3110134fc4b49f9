package compile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCodes: the table holds the codes that the sources report, no more and no
// less, and each is in the expected output of some case.
func TestCodes(t *testing.T) {
	var listed []string
	for _, c := range Codes() {
		listed = append(listed, c.Name)
		if !strings.HasSuffix(c.Meaning, ".") && !strings.HasSuffix(c.Meaning, "it.") {
			t.Errorf("%s: the meaning is no sentence: %q", c.Name, c.Meaning)
		}
	}
	if !slices.IsSorted(listed) {
		t.Error("the table is not sorted")
	}
	reported := reportedCodes(t)
	for _, c := range listed {
		if !reported[c] {
			t.Errorf("nothing reports %s", c)
		}
	}
	for c := range reported {
		if !slices.Contains(listed, c) {
			t.Errorf("%s is not in the table", c)
		}
	}
	shown := map[string]bool{}
	files, _ := filepath.Glob("testdata/*/*.txtar")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)\(([a-z-]+)\)$`).FindAllStringSubmatch(string(data), -1) {
			shown[m[1]] = true
		}
	}
	// These need a tree that no archive can hold; other tests have them.
	for _, c := range []string{"internal", "irregular-file", "too-large", "read", "evaluation-limit", "load", "path"} {
		shown[c] = true
	}
	for _, c := range listed {
		if !shown[c] {
			t.Errorf("no case of testdata shows %s", c)
		}
	}
}

// reportedCodes finds the codes in the sources: in composite literals, in
// assignments, and in the calls that make diagnostics.
func reportedCodes(t *testing.T) map[string]bool {
	t.Helper()
	at := map[string]int{"error": 1, "say": 0, "refuse": 1, "warn": 1, "cueDiagnostics": 1}
	codes := map[string]bool{}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, err := strconv.Unquote(lit.Value)
			if err == nil && regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(s) {
				codes[s] = true
			}
		}
	}
	files, _ := filepath.Glob("*.go")
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "gen") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok && id.Name == "Code" {
					add(n.Value)
				}
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					sel, ok := l.(*ast.SelectorExpr)
					if ok && sel.Sel.Name == "Code" && i < len(n.Rhs) {
						add(n.Rhs[i])
					}
				}
			case *ast.ValueSpec:
				if n.Names[0].Name == "codeCUE" {
					add(n.Values[0])
				}
			case *ast.CallExpr:
				name := ""
				switch fun := n.Fun.(type) {
				case *ast.SelectorExpr:
					name = fun.Sel.Name
				case *ast.Ident:
					name = fun.Name
				}
				if i, ok := at[name]; ok && i < len(n.Args) {
					add(n.Args[i])
				}
			}
			return true
		})
	}
	return codes
}
