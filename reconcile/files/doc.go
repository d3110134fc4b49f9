// Package files writes what groups of nodes hold as files that Envoy watches, and
// walks them along the paths of rollouts. The files are the state: a restart goes
// on from what they hold, and what somebody else wrote into them is never
// overwritten nor removed.
//
// Of each group there is a file for each resource type, and beside it one for each
// resource that nodes ask for by name. Files are swapped in by rename, targets
// before what refers to them, and removed after it: at no moment does one refer to
// what is not there. Files acknowledge nothing: a Walker gives each stage a time
// instead.
package files
