package compile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// crowd is a tree with very many files in one directory, beside those of another.
type crowd struct {
	fs.FS
	n int
}

func (c crowd) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "crowd" {
		entries, err := fs.ReadDir(c.FS, name)
		if name == "." {
			entries = append(entries, fs.FileInfoToDirEntry(member{"crowd", fs.ModeDir}))
		}
		return entries, err
	}
	entries := make([]fs.DirEntry, c.n)
	for i := range entries {
		entries[i] = fs.FileInfoToDirEntry(member{fmt.Sprintf("f%06d.txt", i), 0})
	}
	return entries, nil
}

type member struct {
	name string
	mode fs.FileMode
}

func (m member) Name() string      { return m.name }
func (member) Size() int64         { return 1 }
func (m member) Mode() fs.FileMode { return m.mode }
func (member) ModTime() time.Time  { return time.Time{} }
func (m member) IsDir() bool       { return m.mode.IsDir() }
func (member) Sys() any            { return nil }

// TestRealSizes: what is too large by far ends in one clear error, and soon.
func TestRealSizes(t *testing.T) {
	ok := "package a\n\ngroups: edge: {client: \"envoy\", match: id: \"edge-*\"}\n"
	sparse := func(t *testing.T, files map[string]string, big string) fs.FS {
		dir := t.TempDir()
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, big), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, big), 200<<20); err != nil {
			t.Fatal(err)
		}
		return os.DirFS(dir)
	}
	for name, c := range map[string]struct {
		tree       func(t *testing.T) fs.FS
		code, want string
	}{
		"100,000 files": {func(*testing.T) fs.FS {
			return crowd{fstest.MapFS{"a.cue": &fstest.MapFile{Data: []byte(ok)}}, 100_000}
		}, "too-large", "more than 50000 files"},
		"a file of 200 MB": {func(t *testing.T) fs.FS {
			return sparse(t, map[string]string{"a.cue": ok}, "b.cue")
		}, "too-large", "b.cue: the file is larger than 4194304 bytes"},
		"200 MB to embed": {func(t *testing.T) fs.FS {
			return sparse(t, map[string]string{"a.cue": "@extern(embed)\n\n" + ok + "_x: _ @embed(file=\"b.json\")\n"}, "b.json")
		}, "too-large", "cannot read b.json: larger than 4194304 bytes"},
		"deep": {func(*testing.T) fs.FS {
			return fstest.MapFS{"a.cue": &fstest.MapFile{Data: []byte(ok + "_x: " + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + "\n")}}
		}, "syntax", "nesting depth"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := compile.Fleet(t.Context(), c.tree(t), compile.Options{Limits: compile.Limits{Deadline: 20 * time.Second}})
			var ds schema.Diagnostics
			if !errors.As(err, &ds) || len(ds) != 1 || ds[0].Code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.600v", err)
			}
			t.Logf("%.300v, after %v", err, time.Since(began))
		})
	}
}
