//go:build race

package reconcile

// raced says that the race detector is on: it takes much memory of its own.
const raced = true
