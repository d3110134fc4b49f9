package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// demoUI plays the demo under the UI. What the demo says goes into one line of the
// UI, and is printed when that is quit; if the demo has not ended then, it is
// stopped.
func (a *app) demoUI(ctx context.Context, wrong bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := &demoLines{}
	d := &demo{out: said, began: time.Now(), wrong: wrong, up: make(chan struct{})}
	d.route.Only("v1")
	defer d.stop()
	played := make(chan error, 1)
	go func() { played <- d.play(ctx) }()
	var err error
	select {
	case err = <-played: // it did not come up
	case <-d.up:
		topErr := a.top(ctx, newAdminClient(d.server.Socket), said.follow)
		said.follow(nil)
		cancel()
		if err = <-played; errors.Is(err, context.Canceled) {
			d.say("stopped: the UI was quit before the demo had ended")
			err = nil
		}
		err = errors.Join(topErr, err)
	}
	if _, e := a.out.Write(said.all()); err == nil {
		err = e
	}
	return err
}

// demoLines keeps what the demo says, and tells the UI the newest of it.
type demoLines struct {
	mu   sync.Mutex
	text bytes.Buffer
	ui   *tea.Program
}

func (l *demoLines) follow(p *tea.Program) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ui = p
}

func (l *demoLines) all() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Bytes()
}

// Write takes a line of the demo's.
func (l *demoLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	ui := l.ui
	l.text.Write(b)
	l.mu.Unlock()
	if line := strings.TrimSpace(string(b)); ui != nil && strings.Contains(line, "  ") {
		_, words, _ := strings.Cut(line, "  ")
		if words = oneLine(words); words != "" {
			ui.Send(noteMsg(words))
		}
	}
	return len(b), nil
}
