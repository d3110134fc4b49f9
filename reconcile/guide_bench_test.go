package reconcile

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// BenchmarkOwnStates asks for the paths of 10,000 sessions, each in a state of its
// own, from all processors at once: one cluster of 10,000 is of another version than
// the base's, and the target has one more.
func BenchmarkOwnStates(b *testing.B) {
	const sessions = 10_000
	cluster := func(name, body string) *schema.Resource {
		return schema.NewResource(schema.Key{Type: cds, Name: name}, nil, []byte(body))
	}
	base := make([]*schema.Resource, sessions)
	for i := range base {
		base[i] = cluster(fmt.Sprint(i), "base")
	}
	from := schema.SnapshotOf(base...)
	to := &schema.Target{Group: "g", Generation: 1, Snapshot: from.Union(schema.SnapshotOf(cluster("new", "new"))), Memory: new(schema.Memory)}
	states := make([]schema.State, sessions)
	for i := range states {
		states[i].Acked = from.Union(schema.SnapshotOf(cluster(fmt.Sprint(i), "own")))
	}
	g := newGuide(planner.NewPath)
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g.Path(states[next.Add(1)%sessions], to)
		}
	})
}
