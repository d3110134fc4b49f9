// Package ads speaks xDS: it owns the streams of every node, what each of them
// subscribed to, holds and refused, and walks each session along the path that
// it was given. It never decides what a node should hold, and never reads
// configuration: a Guide answers both.
//
// Each session has one owner at a time, whoever holds its lock. Only the owner
// sends, and only while the bytes that the client has not acknowledged fit the
// stream's flow-control window, so that no caller ever waits for a slow node.
// Invariants: one un-ACKed response per stream and type; no nonce is used twice
// on a stream; a resource is encoded once for all sessions.
package ads
