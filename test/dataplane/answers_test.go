package dataplane

import (
	"testing"
	"time"
)

// A request may be answered as any route that was in force while it was under way.
func TestAnswers(t *testing.T) {
	var a Answers
	before := time.Now()
	a.Only("v1")
	a.Only("v1", "v2")
	a.Only("v2")
	after := time.Now()
	for _, c := range []struct {
		label      string
		sent, done time.Time
		want       bool
	}{
		{"v1", before, after, true},
		{"v2", before, after, true},
		{"v2", after, after, true},
		{"v1", after, after, false},
		{"v3", before, after, false},
	} {
		if got := a.Allow(c.label, c.sent, c.done); got != c.want {
			t.Errorf("%s, sent after the last change %v: allowed %v, want %v", c.label, c.sent == after, got, c.want)
		}
	}
	if new(Answers).Allow("v1", before, after) {
		t.Error("the zero value allows an answer")
	}
}
