// Package acceptance tests the main job from outside: a change that is merged in
// a Git repository reaches a fleet of real gRPC xDS clients, in order, gated on
// ACKs, without one failed request, whatever dies on the way.
//
// The tests run the real binary as a child process, and see it only through its
// socket, its store and the wire. What must fail is shown to fail: the same rig
// counts the requests that a wrong order costs.
//
// A plain `go test` runs a short form of each table; `-tags e2e` runs them whole.
package acceptance
