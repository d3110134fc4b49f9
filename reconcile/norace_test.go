//go:build !race

package reconcile

// workerMemory bounds the workers of tests.
const workerMemory = 300 << 20
