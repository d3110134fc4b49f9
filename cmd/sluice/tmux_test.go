package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pane is a terminal that a test looks at and types into: one of tmux, of a server
// of its own.
type pane struct {
	t      *testing.T
	socket string
}

// newPane runs this program in a terminal: the test binary stands in for it.
func newPane(t *testing.T, width, height int, env []string, args ...string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux here")
	}
	dir, err := os.MkdirTemp("", "tmux")
	must(t, err)
	p := &pane{t, filepath.Join(dir, "t")}
	bin := binary(t, dir)
	var quoted []string
	for _, a := range append([]string{bin}, args...) {
		quoted = append(quoted, "'"+a+"'")
	}
	command := "env " + strings.Join(env, " ") + " " + strings.Join(quoted, " ") + "; echo exit code $?; sleep 60"
	p.run("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), command)
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", p.socket, "kill-server").Run()
		os.RemoveAll(dir)
	})
	return p
}

// binary makes the test binary run as sluice: testscript.Main goes by the name.
func binary(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	bin := filepath.Join(dir, "sluice")
	must(t, os.Symlink(self, bin))
	return bin
}

// process runs a server as a process of its own, and returns how to kill it.
func (f *shopFleet) process() (kill func()) {
	f.t.Helper()
	c := exec.Command(binary(f.t, f.t.TempDir()), "serve", "--repo", f.repo, "--store", f.store, "--socket", f.socket, "--listen", "127.0.0.1:0", "--poll", "1h")
	var said bytes.Buffer
	c.Stderr = &said
	must(f.t, c.Start())
	kill = func() { _ = c.Process.Kill(); _ = c.Wait() }
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if st, err := newAdminClient(f.socket).statusOf(f.t.Context(), "none"); err == nil && len(st.Groups) > 0 {
			return kill
		}
		if time.Now().After(deadline) {
			kill()
			f.t.Fatalf("the server does not come up: %s", &said)
		}
	}
}

func (p *pane) run(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (p *pane) keys(keys ...string) { p.t.Helper(); p.run(append([]string{"send-keys"}, keys...)...) }

func (p *pane) screen() string { p.t.Helper(); return p.run("capture-pane", "-p") }

// shows waits until every expression matches the screen.
func (p *pane) shows(exprs ...string) string {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		screen, missing := p.screen(), ""
		for _, e := range exprs {
			if !regexp.MustCompile("(?m)" + e).MatchString(screen) {
				missing = e
			}
		}
		if missing == "" {
			return screen
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("no %q in\n%s", missing, bytes.TrimRight([]byte(screen), "\n"))
		}
	}
}
