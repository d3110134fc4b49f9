package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

// Each step of a path gives the old answer or the new one; a step that gives
// another, or none, is named.
func TestP10Assert(t *testing.T) {
	from, _ := universe.snapshot("cluster a\nroute r: x.com / -> a\nlistener l -> r\nlistener old -> r\n")
	to, _ := universe.snapshot("cluster a\ncluster b\nroute r: x.com / -> a 90, b 10\nlistener l -> r\nlistener new -> r\n")
	bad, _ := universe.snapshot("cluster a\ncluster b\nroute r: x.com / -> b\nlistener l -> r\n")
	none, _ := universe.snapshot("cluster a\ncluster b\nroute r: other.com / -> b\nlistener l -> r\n")
	tests := []schema.RouteTest{
		{Name: "home", Request: schema.Request{Host: "x.com", Path: "/"}},
		{Name: "nowhere", Request: schema.Request{Host: "nowhere.com", Path: "/"}},
	}
	p := NewPath(schema.State{Acked: from}, &schema.Target{Client: schema.Envoy, Snapshot: to, Drain: -1})
	type line struct {
		Listener string
		Answers  []string
		Broken   []int
	}
	lines := func(p *schema.Path) (out []line) {
		for _, a := range Assert(p, tests) {
			if a.Test.Name != "home" {
				t.Errorf("%s answers %s", a.Listener, a.Test.Name)
			}
			out = append(out, line{a.Listener, a.Answers, a.Broken})
		}
		return out
	}
	if diff := cmp.Diff([]string{"make", "listeners", "routes", "unlisten"}, kinds(p)); diff != "" {
		t.Fatal(diff)
	}
	want := []line{
		{"l", []string{"a", "a", "a", "a 90, b 10", "a 90, b 10"}, nil},
		{"new", []string{"", "", "a", "a 90, b 10", "a 90, b 10"}, nil},
		{"old", []string{"a", "a", "a", "a 90, b 10", ""}, nil},
	}
	if diff := cmp.Diff(want, lines(p)); diff != "" {
		t.Error(diff)
	}
	for i, s := range []schema.Snapshot{bad, none} {
		p.Stages[1].Snapshot = s
		if a := lines(p)[0]; a.Listener != "l" || !cmp.Equal(a.Broken, []int{1}) {
			t.Errorf("planted %d: %v", i, a)
		}
	}
}
