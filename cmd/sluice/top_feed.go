package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-xds/sluice/reconcile"
)

// What the feed tells the model.
type (
	statusMsg struct{ status *reconcile.Status }
	eventsMsg []reconcile.Event
	awayMsg   struct{ why string }
)

const (
	feedPace    = 200 * time.Millisecond // the model hears of changes at most so often
	feedRetry   = 500 * time.Millisecond // between two tries to reach a server
	feedSilence = 3 * eventBeat          // a stream that says nothing for so long is dead
	feedLine    = 4 << 20                // the longest event, in bytes
)

// feed follows a server: its status, and after each change the events and the
// status again. It begins with what the server still knows, and goes on where it
// was when the server comes back.
type feed struct {
	client *adminClient
	send   func(tea.Msg)
	seq    uint64
}

// run follows until ctx ends.
func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		why := "the connection was lost"
		var away *unreachable
		switch {
		case errors.As(err, &away):
			why = away.why
		case err != nil && !errors.Is(err, io.EOF):
			why = err.Error()
		}
		f.send(awayMsg{oneLine(why)})
		select {
		case <-time.After(feedRetry):
		case <-ctx.Done():
		}
	}
}

// follow is one connection's life.
func (f *feed) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := f.client.statusOf(ctx, "none")
	if err != nil {
		return err
	}
	f.send(statusMsg{st})
	body, err := f.client.eventsAfter(ctx, f.seq)
	if err != nil {
		return err
	}
	defer body.Close()
	lines, ended := make(chan reconcile.Event), make(chan error, 1)
	go func() { ended <- readEvents(ctx, body, lines) }()
	defer func() { cancel(); body.Close(); <-ended }()
	var batch []reconcile.Event
	silence := time.NewTimer(feedSilence)
	defer silence.Stop()
	var pace <-chan time.Time
	for {
		select {
		case e := <-lines:
			silence.Reset(feedSilence)
			f.seq = max(f.seq, e.Seq)
			if e.Kind == eventHeartbeat {
				continue
			}
			if e.Kind == eventGap {
				f.seq = 0 // of another life of the server, perhaps
			}
			if batch = append(batch, e); pace == nil {
				pace = time.After(feedPace)
			}
		case <-pace:
			pace = nil
			f.send(eventsMsg(batch))
			batch = nil
			if st, err = f.client.statusOf(ctx, "none"); err != nil {
				return err
			}
			f.send(statusMsg{st})
		case err := <-ended:
			ended <- err
			if len(batch) > 0 {
				f.send(eventsMsg(batch))
			}
			return err
		case <-silence.C:
			return errors.New("the server says nothing")
		}
	}
}

func readEvents(ctx context.Context, r io.Reader, out chan<- reconcile.Event) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, feedLine)
	for lines.Scan() {
		var e reconcile.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return err
		}
		select {
		case out <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}
