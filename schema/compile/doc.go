// Package compile turns a tree of CUE files into a schema.Fleet.
//
// It reads nothing but the given tree: no file, network or environment of the
// host. It runs four passes, each in files of its own:
//
//	load   tree -> packages: the schema mounted, nothing else reachable
//	eval   packages -> entries: plain Go values that know where they stand
//	lower  entries -> Envoy's messages, with the author's lines
//	check  what only the whole fleet can tell
//
// Three shortcuts give the same outcome, as tests of random edits hold: packages
// that are plain data are read without CUE (literal), packages that did not change
// are taken from a Cache, and a change that concerns a few services is made from
// the last fleet (follow, advance). Where some of it fails, the groups that it is
// no part of can be had all the same (freeze).
//
// Equal trees give equal fleets, whatever order files and packages come in. All
// that is wrong is reported at once, at the author's own line.
package compile
