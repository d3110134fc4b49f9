package reconcile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5"
)

func TestOpenGitRefuses(t *testing.T) {
	r := newGitRepo(t)
	other, full := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	openGit(t, GitOptions{URL: "https://example.com/a", Dir: other})
	noError(t, os.WriteFile(filepath.Join(full, "notes"), nil, 0o600))
	r.push("main", "one")
	for _, c := range []struct {
		o     GitOptions
		words []string
	}{
		{GitOptions{URL: "ssh://git@host/x"}, []string{"not supported yet", "ssh://"}},
		{GitOptions{URL: "git@host:x.git"}, []string{"not supported yet"}},
		{GitOptions{URL: "git://host/x"}, []string{"not supported yet", "git://"}},
		{GitOptions{URL: "https://ada:hunter2@host/x"}, []string{"not supported yet", "credentials", "host"}},
		{GitOptions{URL: "https://host/x?token=hunter2"}, []string{"not supported yet", "query"}},
		{GitOptions{URL: "https://ada:hun/ter2@host/x"}, []string{"not supported yet"}},
		{GitOptions{URL: "file://host/x"}, []string{"not the URL of a repository"}},
		{GitOptions{URL: "./here"}, []string{"file:///path"}},
		{GitOptions{URL: r.dir, Branch: "a..b"}, []string{`"a..b"`, "branch"}},
		{GitOptions{URL: r.dir}, []string{"no directory"}},
		{GitOptions{URL: r.dir, Dir: other}, []string{"https://example.com/a", other, "remove"}},
		{GitOptions{URL: r.dir, Dir: full}, []string{"neither empty nor a clone"}},
		{GitOptions{URL: r.dir, Dir: r.dir}, []string{"repository of its own"}},
	} {
		g, err := OpenGit(c.o)
		if err == nil {
			noError(t, g.Close())
		}
		wantWords(t, err, c.words...)
		if strings.Contains(err.Error(), "hun") {
			t.Errorf("%q shows a password", err)
		}
	}
}

// The folder of a clone is named from wherever the server was started.
func TestOpenGitRelativeDir(t *testing.T) {
	r := newGitRepo(t)
	r.push("main", "one")
	work := filepath.Join(t.TempDir(), "work")
	noError(t, os.Mkdir(work, 0o700))
	t.Chdir(work)
	for _, dir := range []string{"clone", "../clone"} {
		openGit(t, GitOptions{URL: r.dir, Dir: dir})
		if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
			t.Errorf("clone in %s: %v", dir, err)
		}
	}
}

// A creation that was cut short is taken up again.
func TestOpenGitHalfMade(t *testing.T) {
	r := newGitRepo(t)
	dir := t.TempDir()
	_, err := git.PlainInit(dir, true)
	noError(t, err)
	pollGit(t, openGit(t, GitOptions{URL: r.dir, Dir: dir}), r.push("main", "one"), "one")
}
