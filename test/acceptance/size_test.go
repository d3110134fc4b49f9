//go:build !e2e

package acceptance

// long asks for the whole tables.
const long = false
