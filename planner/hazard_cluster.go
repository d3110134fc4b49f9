package planner

import (
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

const safeRename = "set rename: \"safe\" on the service: the change is then made beside it, and traffic moved over"

// clusters finds what becomes of connections to clusters that change in place.
func (hs *hazards) clusters(p *schema.Path) (reset []schema.Key) {
	uses := usesOf(p)
	for old, c := range schema.Diff(p.From.Of(schema.Clusters), p.Target.Snapshot.Of(schema.Clusters)) {
		if old == nil || c == nil || !uses(c.Key) {
			continue
		}
		change, err := envoy.ChangeOfCluster(old, c)
		switch {
		case err != nil: // Prove reports what cannot be read
		case p.Target.Client == schema.GRPC:
			if change.Connections {
				hs.add("pool-reset", c.Key, safeRename,
					"clients close their connections to %s and open new ones: calls wait for them", c.Name)
				reset = append(reset, c.Key)
			}
		case change.Members:
			hs.add("aggregate-members", c.Key, "give the aggregate another name, and route to that",
				"the members of %s change in place: requests to it may get a 503 until the new ones are ready", c.Name)
			reset = append(reset, c.Key)
		default:
			hs.add("cluster-swap", c.Key, safeRename,
				"%s is swapped in place: its connections are drained, new ones are opened, and requests may get a 503 for a moment", c.Name)
			reset = append(reset, c.Key)
		}
	}
	return reset
}

// usesOf tells whether something that a session has, or will have, sends to a
// cluster or calls it.
func usesOf(p *schema.Path) func(schema.Key) bool {
	target := p.Target.Snapshot
	going := map[schema.Key]bool{}
	for t := schema.Clusters; t < schema.Runtimes; t++ {
		for old := range schema.Diff(p.From.Of(t), target.Of(t)) {
			if old == nil {
				continue
			}
			for _, ref := range old.Refs {
				going[ref.Key] = true
			}
		}
	}
	return func(k schema.Key) bool {
		for t := schema.Clusters; t < schema.Runtimes && !going[k]; t++ {
			if len(target.Of(t).Referrers(k)) > 0 {
				return true
			}
		}
		return going[k]
	}
}

// chosen finds clusters that go while something stays that chooses clusters in a
// way that only a running proxy knows.
func (hs *hazards) chosen(p *schema.Path) {
	var gone []schema.Key
	for old, c := range schema.Diff(p.From.Of(schema.Clusters), p.Target.Snapshot.Of(schema.Clusters)) {
		if c == nil {
			gone = append(gone, old.Key)
		}
	}
	if len(gone) == 0 {
		return
	}
	for t := schema.Listeners; t < schema.Runtimes; t++ {
		for r := range p.Target.Snapshot.Of(t).All() {
			doubts, err := doubtsOf(r)
			if err != nil || len(doubts) == 0 {
				continue
			}
			for _, k := range gone {
				hs.add("unproven", k, "make sure that nothing names it any more",
					"%s is removed, and %s may still name it: %s", k, r.Key, doubts[0])
			}
		}
	}
}

// sentTo reports whether something in a snapshot sends to a cluster or calls it.
func sentTo(s schema.Snapshot, k schema.Key) bool {
	for t := schema.Clusters; t < schema.Runtimes; t++ {
		for r := range s.Of(t).All() {
			if r.Refers(k) {
				return true
			}
		}
	}
	return false
}

// Busy finds clusters that a path removes although load reports show requests to
// them that nothing sends which the sessions may hold: no change of routes takes
// them elsewhere (rule R10). requests are those of the last reports, by cluster.
func Busy(p *schema.Path, requests map[string]uint64) []Hazard {
	var hs hazards
	for old, c := range schema.Diff(p.From.Of(schema.Clusters), p.Target.Snapshot.Of(schema.Clusters)) {
		if c == nil && requests[old.Name] > 0 && !sentTo(p.From, old.Key) {
			hs.add("prune-with-traffic", old.Key, "find out who sends them, a header or a script, and move that first; the removal waits for it, node by node",
				"%s is removed, nothing that is configured sends to it, and nodes report %d requests to it in their last load reports", old.Key, requests[old.Name])
		}
	}
	return hs.sorted()
}
