package dataplane

import (
	"slices"
	"sync"
	"time"
)

// Answers is which labels may answer, over time. The zero Answers allows none. It
// is safe for concurrent use; its Allow is that of a Load.
type Answers struct {
	mu    sync.Mutex
	spans []span // the newest last
}

type span struct {
	from   time.Time
	labels []string
}

// Only allows these labels, and no others, from now on.
func (a *Answers) Only(labels ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spans = append(a.spans, span{time.Now(), labels})
}

// Allow reports whether a label was allowed at some time between sent and done.
func (a *Answers) Allow(label string, sent, done time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range slices.Backward(a.spans) {
		if s.from.After(done) {
			continue
		}
		if slices.Contains(s.labels, label) {
			return true
		}
		if !s.from.After(sent) {
			return false
		}
	}
	return false
}
