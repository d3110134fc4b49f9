package main

import (
	"fmt"
	"time"
)

const (
	progressAfter = 400 * time.Millisecond // what is done sooner goes without a word
	progressEvery = 200 * time.Millisecond
	eraseLine     = "\r\x1b[K"
)

// during does something that may take long. On a terminal, stderr says what and
// for how long already, until it is done.
func (a *app) during(what string, do func() error) error {
	if a.quiet || !terminal(a.err) {
		return do()
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		began, shown := time.Now(), false
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				if shown {
					fmt.Fprint(a.err, eraseLine)
				}
				return
			case now := <-tick.C:
				if took := now.Sub(began); took >= progressAfter {
					shown = true
					fmt.Fprintf(a.err, "%s%s … %.1f s", eraseLine, what, took.Seconds())
				}
			}
		}
	}()
	defer func() { close(done); <-gone }()
	return do()
}
