package compile_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// TestChecks: each code has an example that is reported with it, word for word,
// and its part of docs/checks.md, which is made from the example. A case has the
// example's files, what to do in its comment, and in "want" what is reported.
func TestChecks(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Checks\n\nWhat `sluice validate` and the server say of a configuration, by code. An entry can allow some of the\n" +
		"checks, each with the reason: `allow: \"unused-service\": \"comes tomorrow\"`.\n\n" +
		"<!-- Made by go test ./schema/compile -run TestChecks -update. -->\n")
	for _, c := range compile.Codes() {
		file := "testdata/checks/" + c.Name + ".txtar"
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Errorf("%s has no example: %v", c.Name, err)
			continue
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s%s %s\n", c.Name, capital(c.Severity.String()), map[bool]string{true: "; can be allowed."}[c.Allow]+map[bool]string{false: "."}[c.Allow], c.Meaning)
		if len(ar.Files) > 0 {
			said := reported(t, ar)
			check(t, ar, file, said)
			if !strings.Contains(said, "("+c.Name+")") {
				t.Errorf("%s is not reported, but\n%s", c.Name, said)
			}
			example(&page, ar, said)
		}
		todo, _, _ := strings.Cut(strings.TrimSpace(string(ar.Comment)), "\npath: ")
		fmt.Fprintf(&page, "\n%s\n", todo)
	}
	known := map[string]bool{}
	for _, c := range compile.Codes() {
		known[c.Name] = true
	}
	files, _ := filepath.Glob("testdata/checks/*.txtar")
	for _, file := range files {
		if !known[strings.TrimSuffix(filepath.Base(file), ".txtar")] {
			t.Errorf("%s is of no code", file)
		}
	}
	const name = "../../docs/checks.md"
	old, err := os.ReadFile(name)
	if string(old) == page.String() {
		return
	}
	if !*update {
		t.Errorf("docs/checks.md is not made from this (go test ./schema/compile -run TestChecks -update): %v\n%s", err, cmp.Diff(string(old), page.String()))
	} else if err := os.WriteFile(name, []byte(page.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// reported is what is said of an example: errors, or else warnings.
func reported(t *testing.T, ar *txtar.Archive) string {
	t.Helper()
	f, err := compile.Fleet(t.Context(), treeOf(ar), optionsOf(ar))
	var ds schema.Diagnostics
	if err == nil {
		ds = f.Warnings
	} else if !errors.As(err, &ds) {
		t.Fatal(err)
	}
	return ds.Error() + "\n"
}

// example shows an archive's own files, but for what all of them have.
func example(page *strings.Builder, ar *txtar.Archive, said string) {
	for _, f := range ar.Files {
		if f.Name == "want" || path.Base(f.Name) == "base.cue" || len(f.Data) < 20 {
			continue
		}
		fmt.Fprintf(page, "\n```cue\n// %s\n%s```\n", f.Name, f.Data)
	}
	fmt.Fprintf(page, "\n```text\n%s```\n", said)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
