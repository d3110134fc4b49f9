// Package schema is the vocabulary that every other package speaks: resources
// and the immutable sets and snapshots made of them, the path that a session is
// walked along, the facts that come back from the wire, and the fleet that one
// commit describes. It also embeds the CUE definitions that authors import.
//
// Values are immutable once made and safe to share between goroutines. Nothing
// here does I/O, reads a clock or starts a goroutine.
package schema
