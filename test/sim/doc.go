// Package sim drives modelled clients against the real control plane: the loop of
// package reconcile, the planner and the engine of package ads, without a network
// and in a time of its own. A model of Envoy and one of a gRPC client apply what
// they are sent as the real ones would, in any order that the protocol allows,
// while commits come, servers die and streams break; and at each moment requests
// are routed by what each client holds. A history is a function of its seed.
//
// The invariant: a request that every configuration answers which a client may be
// given is answered, always. docs/simulation.md says what is modelled, and by
// whose word.
package sim
