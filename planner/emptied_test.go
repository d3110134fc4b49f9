package planner

import (
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// Only what nodes hold, what could answer before and what cannot now, is a hazard;
// a body that is not given is no change.
func TestP14Emptied(t *testing.T) {
	body := func(name string, usable bool, version string) *schema.Resource {
		return &schema.Resource{Key: schema.Key{Type: schema.Endpoints, Name: name}, Version: schema.Version(version), Usable: usable}
	}
	held := schema.SnapshotOf(schema.NewLive(body("a", true, "").Key), schema.NewLive(body("b", true, "").Key), schema.NewLive(body("d", true, "").Key))
	was := schema.SnapshotOf(body("a", true, "1"), body("b", true, "1"), body("c", true, "1"), body("d", false, "1"))
	is := schema.SnapshotOf(body("a", false, "2"), body("c", false, "2"), body("d", false, "2"))
	got := Emptied(held, was, is)
	if len(got) != 1 || got[0].Key.Name != "a" || got[0].Code != "empty-cluster" || got[0].Severity != Blocking {
		t.Errorf("got %+v, want the hazard of a alone", got)
	}
}
