package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-xds/sluice/examples"
)

// TestExamples: each example is valid, half of its rules are tested, it renders
// something for each group, and the page of examples names it.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := fs.ReadDir(examples.FS, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		t.Run(d.Name(), func(t *testing.T) {
			if !strings.Contains(string(page), "](../examples/"+d.Name()+")") {
				t.Errorf("docs/examples.md does not name %s", d.Name())
			}
			dir := filepath.Join("../../examples", d.Name())
			sluice(t, "validate", dir)
			sluice(t, "test", "--fail-under", "50", dir)
			var doc rendering
			if err := json.Unmarshal(sluice(t, "render", "--origins", "-o", "json", dir), &doc); err != nil {
				t.Fatal(err)
			}
			for _, g := range doc.Groups {
				if len(g.Resources) == 0 {
					t.Errorf("group %s is sent nothing", g.Name)
				}
				for _, r := range g.Resources {
					if len(r.Origins) == 0 || !strings.HasPrefix(r.Origins[0].At, "examples/") {
						t.Errorf("%s %s: no line: %v", r.Type, r.Name, r.Origins)
					}
				}
			}
		})
	}
}

// sluice runs a command that must succeed, and gives what it prints.
func sluice(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, talk bytes.Buffer
	if code := run(args, &out, &talk); code != 0 {
		t.Errorf("sluice %s: exit code %d\n%s%s", strings.Join(args, " "), code, out.String(), talk.String())
	}
	return out.Bytes()
}
