// Package envoy says what Envoy's messages mean: which resources a message
// refers to, whether it is well formed, and where a route table sends a request.
//
// It links every message of the v3 API that a resource may hold, so that an
// unknown Any is an author's mistake and not ours. It does no I/O, reads no
// clock and starts no goroutine; equal messages give equal resources. It never
// guesses: what only a running proxy can know is reported as unprovable.
package envoy

//go:generate go run genlink.go
