package planner

import (
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// Rename is a resource that has another name in the target and is the same
// otherwise.
type Rename struct{ From, To schema.Key }

// Renames recognises what was renamed between two snapshots (rule P5): what one
// lacks and the other adds, equal with the name cleared. A path adds it under the
// new name, moves what refers to it, and prunes the old one. Of several equal ones
// the first by name are paired.
func Renames(from, to schema.Snapshot) []Rename {
	var out []Rename
	for _, t := range schema.AllTypes() {
		if t.Live() {
			continue // follow what names them
		}
		gone := map[string][]schema.Key{}
		var came []*schema.Resource
		for old, r := range schema.Diff(from.Of(t), to.Of(t)) {
			switch {
			case old == nil:
				came = append(came, r)
			case r == nil:
				if content, err := envoy.Nameless(old); err == nil {
					gone[content] = append(gone[content], old.Key)
				}
			}
		}
		if len(gone) == 0 {
			continue
		}
		for _, r := range came {
			content, err := envoy.Nameless(r)
			if keys := gone[content]; err == nil && len(keys) > 0 {
				out = append(out, Rename{keys[0], r.Key})
				gone[content] = keys[1:]
			}
		}
	}
	return out
}
