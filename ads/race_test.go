//go:build race

package ads

// raced says that the race detector is on: its pools forget at random.
const raced = true
