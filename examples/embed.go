// Package examples holds whole configuration repositories, each runnable.
package examples

import "embed"

// FS holds the examples, one folder each.
//
//go:embed all:starter shop grpc-mesh edge environments raw
var FS embed.FS
