package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
)

// eventBeat is how often a stream of events says that it lives. A reader that
// hears nothing for three of them should connect anew.
const eventBeat = 5 * time.Second

// eventPatience is how long a reader of events may read nothing, beats included.
const eventPatience = 2 * time.Minute

// The kinds that are of the stream, and not of the fleet.
const (
	eventHeartbeat = "heartbeat" // nothing happened
	eventGap       = "gap"       // events were lost: read the status
)

// events streams what happens as JSON lines, from after a cursor: the number of
// the last event that the reader has. Without one it begins with all that is kept.
// It ends with the client, or with the server.
func (a *admin) events(w http.ResponseWriter, r *http.Request) {
	after, err := cursor(r.URL.Query().Get("after"))
	if err != nil {
		answer(w, http.StatusBadRequest, adminError{err.Error()})
		return
	}
	beat := a.beat
	if b := r.URL.Query().Get("heartbeat"); b != "" {
		if beat, err = time.ParseDuration(b); err != nil || beat < 100*time.Millisecond || beat > time.Minute {
			answer(w, http.StatusBadRequest, adminError{fmt.Sprintf("heartbeat=%s: want a duration from 100ms to 1m", b)})
			return
		}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	// The stream outlasts the server's limit for a request, and a reader that does
	// not read ends it.
	alive := func() { _ = out.SetWriteDeadline(time.Now().Add(eventPatience)) }
	alive()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for first := true; ; first = false {
		list, lost, more := a.loop.Events(after)
		if lost {
			list = append([]reconcile.Event{{
				At: time.Now(), Kind: eventGap, Words: "events were lost, or are of another server: read /v1/status",
			}}, list...)
		}
		if first && len(list) == 0 {
			list = []reconcile.Event{heartbeat(after)}
		}
		for i := range list {
			if enc.Encode(&list[i]) != nil {
				return
			}
			after = max(after, list[i].Seq)
			if lost {
				after = list[i].Seq
			}
		}
		if len(list) > 0 && out.Flush() != nil {
			return
		}
		alive()
		select {
		case <-more:
		case <-tick.C:
			if !stillWelcome(r.Context()) || enc.Encode(heartbeat(after)) != nil || out.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func heartbeat(seq uint64) reconcile.Event {
	return reconcile.Event{Seq: seq, At: time.Now(), Kind: eventHeartbeat}
}

func cursor(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("after=%s: want the seq of an event", s)
	}
	return n, nil
}
