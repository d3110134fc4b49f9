// Package fleet is a fleet of light xDS clients that judge the server they talk to.
// Each has one connection and one aggregated stream, state of the world or delta,
// asks what a proxy asks in the order in which Envoy asks it, answers as its Script
// says, and holds the server to what a client can see: nothing that it holds ever
// dangles, types come in order, one response of a type is in flight, no nonce comes
// twice and nothing is sent again without a reason.
//
// It knows xDS from outside only, so that it shares no mistake with the server. The
// command sluice-fleet runs it against any address.
package fleet
