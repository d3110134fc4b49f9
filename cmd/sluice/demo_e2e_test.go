//go:build e2e

package main

import "testing"

// The demo under the UI: the changes are seen, and what it has to say is printed
// when the UI is quit.
func TestDemoUI(t *testing.T) {
	p := newPane(t, 110, 60, []string{"TERM=xterm-256color"}, "demo", "--ui")
	p.shows(`demo  `, `frontends .*✔ converged`, `backends .*✔ converged`)
	p.shows(`source +r-[0-9]+  [0-9a-f]{7}  every request to v2`)
	p.shows(`demo  \d+ requests, 0 failed`)
	p.keys("q")
	p.shows(`merge 3/3 `, `\d+ requests, 0 failed$`, `^exit code 0$`)
}

// Quit early, it ends in order.
func TestDemoUIQuitEarly(t *testing.T) {
	p := newPane(t, 110, 30, []string{"TERM=xterm-256color"}, "demo", "--ui")
	p.shows(`backends .*✔ converged`)
	p.keys("q")
	p.shows(`stopped: the UI was quit before the demo had ended`, `^exit code 0$`)
}
