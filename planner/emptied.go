package planner

import "github.com/sluice-xds/sluice/schema"

// Emptied finds what nodes hold that loses its last usable endpoint when bodies of
// live types change: they go out at once, in no stage, so that no gate sees them
// (rule P14). held is what the nodes have; was and is are the bodies.
func Emptied(held, was, is schema.Snapshot) []Hazard {
	var hs hazards
	for old, now := range schema.Diff(was.Of(schema.Endpoints), is.Of(schema.Endpoints)) {
		if old == nil || now == nil || !old.Usable || now.Usable || held.Get(now.Key) == nil {
			continue
		}
		hs.add("empty-cluster", now.Key, "move its traffic elsewhere first",
			"%s loses its last endpoint that could answer, at once", now.Name)
	}
	return hs.sorted()
}
