// Package realclients tests the main job with every implementation of an xDS
// client that a fresh machine can install: grpc-go, the C core of gRPC, grpc-js
// and the proxy MOSN. Routes switch in Git, twenty times, each to a service of a
// new name, while the client is under constant load: no request may fail. And
// each wrong order that hurts a client is shown to hurt it, so that the rig is
// known to see.
//
// The engine runs in this process, behind a proxy that writes down every message
// of the protocol: a test that fails prints the conversation.
//
// The tests are built with the tag e2e alone. A client that is not installed
// skips its tests with the reason; `make e2e-deps` installs all.
package realclients
