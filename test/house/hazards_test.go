package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

var hazardCode = regexp.MustCompile(`Hazard\{\s*Code: "([a-z-]+)"|hs\.add\(\s*"([a-z-]+)"`)

// TestHazardsAreDocumented holds three lists together: the kinds of hazards in
// package schema, the codes in the source, and the sections of docs/hazards.md.
func TestHazardsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "hazards.md"))
	if err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for _, h := range schema.Hazards() {
		unused[h.Code] = true
		word := "Not blocking."
		if h.Blocking {
			word = "Blocking."
		}
		if !strings.Contains(string(page), "\n## "+h.Code+"\n\n"+word+" ") {
			t.Errorf("docs/hazards.md has no section %q that begins with %q", h.Code, word)
		}
	}
	for _, dir := range []string{"planner", "cmd/sluice"} {
		for code, file := range hazardCodes(t, dir) {
			delete(unused, code)
			if !strings.Contains(string(page), "\n## "+code+"\n") {
				t.Errorf("%s: hazard %s has no section in docs/hazards.md", file, code)
			}
			if _, ok := schema.HazardOf(code); !ok && dir == "planner" {
				t.Errorf("%s: hazard %s is not listed by schema.Hazards", file, code)
			}
		}
	}
	for code := range unused {
		t.Errorf("schema.Hazards lists %s, which no source reports", code)
	}
}

// hazardCodes finds the codes in the source of a package, with the file of each.
func hazardCodes(t *testing.T, dir string) map[string]string {
	codes := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range hazardCode.FindAllSubmatch(src, -1) {
			codes[string(m[1])+string(m[2])] = file
		}
	}
	return codes
}
