package compile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const referenceFile = "../../docs/reference/config.md"

// TestReference holds docs/reference/config.md against the schema, from which it
// is generated: SLUICE_UPDATE=1 go test -run TestReference ./schema/compile.
func TestReference(t *testing.T) {
	want := reference(t)
	if os.Getenv("SLUICE_UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(referenceFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(referenceFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the schema says: run SLUICE_UPDATE=1 go test -run TestReference ./schema/compile", referenceFile)
	}
}

// referenceOrder is that of the reference: what an author meets first stands first. What
// it does not list follows, by name.
var referenceOrder = []string{"#Group", "#Listener", "#Routes", "#Rule", "#Match", "#Service", "#Endpoint", "#Secret", "#Resources", "#Patches", "#Test", "#Settings"}

func reference(t *testing.T) string {
	defs := definitionsOf(t)
	slices.SortStableFunc(defs, func(a, b definition) int {
		rank := func(d definition) int {
			if i := slices.Index(referenceOrder, d.name); i >= 0 {
				return i
			}
			return len(referenceOrder)
		}
		if rank(a) != rank(b) {
			return rank(a) - rank(b)
		}
		return strings.Compare(a.name, b.name)
	})
	var b strings.Builder
	b.WriteString(`# Configuration reference

<!-- Generated from schema/*.cue by TestReference in schema/compile: do not edit. -->

A package of a sluice repository is CUE and begins like this:

` + "```cue" + `
package shop

import "github.com/sluice-xds/sluice/schema"
` + "```" + `

It may hold these fields, and beside them only what is hidden (` + "`_x`" + `) or a definition (` + "`#x`" + `):

| field | what it holds |
|---|---|
`)
	for _, name := range []string{"groups", "listeners", "routes", "services", "secrets", "resources", "patches", "tests", "sluice"} {
		c := strings.ReplaceAll(constraints[name], "sluiceschema.", "")
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, linked(c))
	}
	b.WriteString("\nThe key of a map is the name. Where a text says \"one of\", exactly one must be given. A field marked * is required.\n")
	for _, d := range defs {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", strings.TrimPrefix(d.name, "#"), d.doc)
		if d.of != "" {
			fmt.Fprintf(&b, "\n%s\n", linked(d.of))
			continue
		}
		b.WriteString("\n| field | type | what | example |\n|---|---|---|---|\n")
		for _, f := range d.fields {
			star := ""
			if f.required {
				star = " *"
			}
			fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", f.name, star, linked(f.typ), cell(f.doc), code(f.example))
		}
	}
	return b.String()
}

var definitionName = regexp.MustCompile(`#[A-Za-z]+`)

// linked writes a type as code, with links to the definitions that it names.
func linked(typ string) string {
	names := definitionName.FindAllString(typ, -1)
	if len(names) == 0 {
		return code(typ)
	}
	var b strings.Builder
	rest := typ
	for _, name := range names {
		before, after, _ := strings.Cut(rest, name)
		if before = strings.TrimSpace(before); before != "" {
			b.WriteString(code(before) + " ")
		}
		short := strings.TrimPrefix(name, "#")
		fmt.Fprintf(&b, "[%s](#%s)", short, strings.ToLower(short))
		rest = after
	}
	if rest = strings.TrimSpace(rest); rest != "" {
		b.WriteString(" " + code(rest))
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(s, "|", `\|`) + "`"
}

func cell(s string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(s) }
