package schema

import "embed"

// ModulePath is the CUE module that authors import: its package "schema" holds
// the definitions.
const ModulePath = "github.com/sluice-xds/sluice@v0"

// CUE holds the definitions, as files at its root. A configuration is always
// read against these and never against a copy in its own repository.
//
//go:embed *.cue
var CUE embed.FS
