// Package planner decides what to serve next. It does no I/O, reads no clock and
// starts no goroutine: equal inputs give equal plans.
//
// A path leads from what a session acknowledged, and may have applied without
// saying so, to what Git desires: clusters and endpoints first, then listeners,
// then routes, and only then the removals. Every snapshot on it is closed, so
// that stopping anywhere is safe. NewPath makes one, Step walks it by the facts
// of one session, Prove says how sure each of its steps is, and Impact what
// becomes of traffic.
package planner
