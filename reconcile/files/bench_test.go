package files

import (
	"fmt"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// BenchmarkWrite writes a thousand clusters and their endpoints, and then one whose
// endpoints changed.
func BenchmarkWrite(b *testing.B) {
	var rs []*schema.Resource
	for i := range 1000 {
		rs = append(rs, cluster(b, fmt.Sprint("c", i), 1)...)
	}
	all := schema.SnapshotOf(rs...)
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			write(b, groupOf(b, openDir(b, b.TempDir()), "edge"), all)
		}
	})
	g := groupOf(b, openDir(b, b.TempDir()), "edge")
	write(b, g, all)
	b.Run("one", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			write(b, g, all.Replace(schema.Clusters, all.Of(schema.Clusters).With(cluster(b, "c7", 2+i)[0])))
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			groupOf(b, g.dir, "edge")
		}
	})
}
