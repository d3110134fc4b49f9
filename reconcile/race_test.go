//go:build race

package reconcile

// workerMemory bounds the workers of tests: the race detector takes much of its own.
const workerMemory = 4 << 30
