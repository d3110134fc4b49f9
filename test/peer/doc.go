// Command peer measures sluice's xDS engine beside others in one run, clients in
// another process: go-control-plane's caches, and a server that sends the same
// bytes without any logic (raw). It is a module of its own, so that no peer is
// ever linked into the product; its tests show what the peer is known to do wrong.
//
//	go run . run -n 1000 -size a -groups 1,100
//
// prints a table and, with -json FILE, the figures. docs/performance.md says what
// the columns are.
package main
