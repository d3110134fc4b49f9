package compile

import (
	"path/filepath"
	"testing"
	"unicode/utf8"

	"cuelang.org/go/cue/parser"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sluice-xds/sluice/schema"
)

// FuzzSyntax: whatever is in a file that cannot be parsed, one error is said of it,
// with a position in the file and a hint that can be printed.
func FuzzSyntax(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, in := range ar.Files {
			if takesPart(filepath.Base(in.Name)) {
				f.Add(in.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := parser.ParseFile("a.cue", data, parser.ParseComments)
		if err == nil {
			return
		}
		s := &source{tree: &memFS{files: map[string]*memFile{}, dirs: newDirs()}}
		s.tree.put("a.cue", data)
		ds := s.readable(cueDiagnostics(err, "syntax", schema.Pos{File: "a.cue"}))
		if len(ds) != 1 || ds[0].Code != "syntax" || ds[0].Pos.File != "a.cue" {
			t.Fatalf("said: %v", ds)
		}
		if utf8.Valid(data) && !utf8.ValidString(ds[0].String()) {
			t.Errorf("not to be printed: %q", ds[0])
		}
	})
}
