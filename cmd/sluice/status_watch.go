package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
)

// watch shows the status until ctx ends: in place on a terminal, else one line
// for each thing that changed. A server that is away is waited for.
func (a *app) watch(ctx context.Context, c *adminClient, format string) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	w := watcher{a: a, format: format, said: map[string]string{}}
	w.whole = format == "json" || format == "yaml"
	w.redraw = !w.whole && terminal(a.out)
	for first := true; ; first = false {
		st, err := c.status(ctx)
		var away *unreachable
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || !errors.As(err, &away)):
			return err
		case err != nil:
			w.line("server", "server", "away: "+away.why)
		default:
			w.line("server", "", "")
			if err := w.show(st); err != nil {
				return err
			}
		}
		select {
		case <-time.After(statusEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

type watcher struct {
	a      *app
	format string // of -o
	whole  bool   // the document, and not what changed
	redraw bool
	rows   int               // of the last drawing
	said   map[string]string // the last line of each subject
	last   string            // drawing or document
}

func (w *watcher) show(st *reconcile.Status) error {
	switch {
	case w.whole:
		return w.document(st)
	case w.redraw:
		return w.draw(statusTable(st, w.format == "wide"))
	}
	seen := []string{"server"}
	say := func(subject, kind, text string) {
		seen = append(seen, subject)
		w.line(subject, kind, text)
	}
	for i := range st.Groups {
		g := &st.Groups[i]
		text := fmt.Sprintf("%s  %s  %s", rolloutCell(wayTo(g)), commitCell(g), g.State)
		if s := stageCell(g); s != "-" {
			text += "  " + s
		}
		text += "  " + atWords(g)
		if n := nacks(st, g.Name); n > 0 {
			text += fmt.Sprintf("  %d NACK", n)
		}
		if g.Why != "" {
			text += "  " + oneLine(g.Why)
		}
		say("group "+g.Name, g.Name, text)
	}
	if st.Stopping {
		say("stopping", "server", "is stopping: its nodes keep what they have, and come back when it does")
	}
	for _, r := range st.Refused {
		say("node "+r.Node, "refused", r.Node+"  "+oneLine(r.Why))
	}
	if st.Rejected != nil {
		say("rejected", "rejected", short(st.Rejected.Commit)+"  "+oneLine(st.Rejected.Why))
	}
	if st.Source.Error != "" {
		say("source", "source", oneLine(st.Source.Error))
	}
	for subject := range w.said {
		if !slices.Contains(seen, subject) {
			delete(w.said, subject)
		}
	}
	return nil
}

// draw puts a text where the last one stands. Long lines are cut and not wrapped,
// so that a line is a row.
func (w *watcher) draw(text string) error {
	if text == w.last {
		return nil
	}
	up := ""
	if w.rows > 0 {
		up = fmt.Sprintf("\x1b[%dA\x1b[J", w.rows)
	}
	w.rows, w.last = strings.Count(text, "\n"), text
	_, err := io.WriteString(w.a.out, up+"\x1b[?7l"+text+"\x1b[?7h")
	return err
}

// line prints what is news of a subject.
func (w *watcher) line(subject, kind, text string) {
	if w.said[subject] == text || w.whole || w.redraw {
		return
	}
	w.said[subject] = text
	if text != "" {
		fmt.Fprintf(w.a.out, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), kind, text)
	}
}

func oneLine(s string) string { return clean(strings.Join(strings.Fields(s), " ")) }

// document prints the status as one line of JSON or a document of YAML, if more
// changed than the time.
func (w *watcher) document(st *reconcile.Status) error {
	bare := *st
	bare.At, bare.Source.PolledAt = time.Time{}, time.Time{}
	key, err := json.Marshal(bare)
	if err != nil || string(key) == w.last {
		return err
	}
	w.last = string(key)
	if w.format == "yaml" {
		text, err := yamlOf(st)
		if err == nil {
			_, err = io.WriteString(w.a.out, "---\n"+text)
		}
		return err
	}
	return json.NewEncoder(w.a.out).Encode(st)
}
