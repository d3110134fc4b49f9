package reconcile

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// A work tree is a commit if what is compiled of it is: not if a file more, less or
// other is, whatever Git makes of it.
func TestSame(t *testing.T) {
	committed := map[string]string{
		"a.cue": "package a\n", "sub/b.cue": "package b\n", "notes.txt": "one\n", ".ci/c.cue": "package c\n", "x.yaml": "a: 1\n",
	}
	embedding := map[string]string{"a.cue": "@extern(embed)\npackage a\nx: _ @embed(file=x.yaml)\n"}
	for _, c := range []struct {
		name          string
		commit, write map[string]string
		remove        string
		want          bool
	}{
		{name: "clean", want: true},
		{name: "an edit", write: map[string]string{"sub/b.cue": "package bb\n"}},
		{name: "a new file", write: map[string]string{"sub/new.cue": "package b\n"}},
		{name: "an ignored file", write: map[string]string{".gitignore": "*.cue\n", "sub/new.cue": "package b\n"}},
		{name: "a lost file", remove: "sub/b.cue"},
		{name: "other files", write: map[string]string{"notes.txt": "two\n", "plan.json": "{}\n", ".ci/c.cue": "package d\n"}, want: true},
		{name: "clean, with files that are taken in", commit: embedding, want: true},
		{name: "a file that is taken in", commit: embedding, write: map[string]string{"x.yaml": "a: 2\n"}},
		{name: "a file that may be taken in", commit: embedding, write: map[string]string{"y.yaml": "a: 2\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newGitRepo(t)
			files := maps.Clone(committed)
			maps.Copy(files, c.commit)
			tree := r.mustOpen(
				r.dirEntry(".ci", r.file("c.cue", files[".ci/c.cue"])), r.file("a.cue", files["a.cue"]), r.file("notes.txt", files["notes.txt"]),
				r.dirEntry("sub", r.file("b.cue", files["sub/b.cue"])), r.file("x.yaml", files["x.yaml"]),
			)
			work := t.TempDir()
			maps.Copy(files, c.write)
			delete(files, c.remove)
			for name, data := range files {
				noError(t, os.MkdirAll(filepath.Join(work, filepath.Dir(name)), 0o700))
				noError(t, os.WriteFile(filepath.Join(work, name), []byte(data), 0o600))
			}
			got, err := tree.Same(os.DirFS(work))
			if err != nil || got != c.want {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}
