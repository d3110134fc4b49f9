//go:build !race

package reconcile

const raced = false
