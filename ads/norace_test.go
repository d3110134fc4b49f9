//go:build !race

package ads

const raced = false
