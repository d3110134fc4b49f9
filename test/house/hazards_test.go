package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var hazardCode = regexp.MustCompile(`Hazard\{\s*Code: "([a-z-]+)"`)

// TestHazardsAreDocumented finds every hazard code in the source, and its
// section in docs/hazards.md.
func TestHazardsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "hazards.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, dir := range []string{"planner", "cmd/sluice"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range hazardCode.FindAllSubmatch(src, -1) {
				found++
				if !strings.Contains(string(page), "\n## "+string(m[1])+"\n") {
					t.Errorf("%s: hazard %s has no section in docs/hazards.md", file, m[1])
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d hazards found in the source: has their form changed?", found)
	}
}
