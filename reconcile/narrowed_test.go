package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

// A halt that isolation has narrowed is blamed on what the node refuses by itself,
// whatever its words mention.
func TestD09HaltIsNarrowed(t *testing.T) {
	a, b := schema.Key{Type: schema.Clusters, Name: "a"}, schema.Key{Type: schema.Clusters, Name: "b"}
	line := func(n int) schema.Origin {
		return schema.Origin{Kind: "service", Pos: schema.Pos{File: "x.cue", Line: n}}
	}
	r := &Release{Commit: "c1", Origins: map[schema.Key][]schema.Origin{a: {line(1)}, b: {line(2)}}}
	at := time.Unix(1, 0)
	row := func(node string, n schema.Nack) *schema.SessionRow {
		n.Type, n.At = schema.Clusters, at
		return &schema.SessionRow{Node: schema.Node{ID: node}, Nack: &n}
	}
	h := haltOf(row("n", schema.Nack{Words: "not with a", Names: []string{"a", "b"}}), r, nil, at)
	if d := cmp.Diff([]schema.Origin{line(1)}, h.Origins); d != "" {
		t.Fatalf("by its words: %s", d)
	}
	found := schema.Nack{Words: "not with a", Names: []string{"b"}, Isolated: true}
	other := found
	for _, s := range []*schema.SessionRow{
		row("n", schema.Nack{Words: "not with a", Names: []string{"a", "b"}}), // not yet
		row("m", found), {Node: schema.Node{ID: "n"}},
	} {
		if got := h.narrowed([]*schema.SessionRow{s}, r, nil); got != nil {
			t.Errorf("narrowed by %+v: %+v", s, got)
		}
	}
	later := row("n", other)
	later.Nack.At = at.Add(1)
	if h.narrowed([]*schema.SessionRow{later}, r, nil) != nil {
		t.Error("narrowed by another refusal")
	}
	got := h.narrowed([]*schema.SessionRow{row("m", found), row("n", found)}, r, nil)
	if d := cmp.Diff([]schema.Origin{line(2)}, got.Origins); d != "" {
		t.Error(d)
	}
	if got.narrowed([]*schema.SessionRow{row("n", found)}, r, nil) != nil {
		t.Error("narrowed twice")
	}
}
