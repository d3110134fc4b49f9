package reconcile

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// fleetOf compiles a configuration as an operator's own machine does.
func fleetOf(t *testing.T, c conf) *schema.Fleet {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range c.files() {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	f, err := compile.Fleet(t.Context(), files, compile.Options{})
	noError(t, err)
	return f
}

// planned asks for an intent with a plan, and gives why that is stale, or nothing.
func (r *rig) planned(verb, group string, plan map[string]Ends) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := r.loop.Do(ctx, Intent{Verb: verb, Group: group, By: "ann", Plan: plan})
	stale := new(StaleError)
	if errors.As(err, &stale) {
		return stale.Why
	}
	noError(r.t, err)
	return ""
}

// An intent with a plan does what the plan says, or nothing at all.
func TestR7Planned(t *testing.T) {
	v1, v2, v3 := frontOnly("v1"), frontOnly("v2"), frontOnly("v3")
	of := map[string]*schema.Fleet{"v1": fleetOf(t, v1), "v2": fleetOf(t, v2), "v3": fleetOf(t, v3), "": nil}
	plan := func(acked, maybe, desired string) map[string]Ends {
		return map[string]Ends{"front": EndsOf("front", of[acked], of[maybe], of[desired])}
	}
	other := v2
	other.groups = strings.Replace(v2.groups, "front-*", "other-*", 1)
	if other.groups == v2.groups {
		t.Fatal("the configuration has no match to change")
	}
	of["other nodes"] = fleetOf(t, other)
	r, _ := newRig(t, v1)
	front := r.connect("front-1")
	front.sees("front → v1, v1@10.0.0.1:80")
	refuses := func(group string, p map[string]Ends, why string) {
		t.Helper()
		if got := r.planned(Resume, group, p); got != why {
			t.Errorf("got %q, want %q", got, why)
		}
		if r.loop.Status().Group("front").Paused == nil {
			t.Fatal("it was resumed")
		}
	}
	r.orders(Pause, "front")
	second := r.merge(v2)
	r.state("front", PausedState)
	refuses("front", plan("v1", "", "other nodes"), "group front would be led to commit "+second[:7]+", and that is not what it says")
	refuses("front", plan("v1", "", "v3"), "group front would be led to commit "+second[:7]+", and that is not what it says")
	refuses("front", plan("v2", "", "v2"), "what the nodes of group front hold has changed since it was made")
	refuses("front", plan("v1", "v3", "v2"), "what the nodes of group front hold has changed since it was made")
	refuses("front", map[string]Ends{}, "it says nothing of group front")
	refuses("", map[string]Ends{}, "it says nothing of group front")
	more := plan("v1", "", "v2")
	more["edge"] = Ends{Desired: "envoy-x"}
	refuses("", more, "the server does not know group edge yet")

	// The group alone is what the plan has of it, and so is one that is gone.
	front.hold(cds)
	if why := r.planned(Resume, "front", more); why != "" {
		t.Fatal(why)
	}
	front.waitsWith(cds)
	r.orders(Pause, "front")
	refuses("front", plan("v1", "", "v2"), "what the nodes of group front hold has changed since it was made")
	if why := r.planned(Resume, "front", plan("v1", "v2", "v2")); why != "" {
		t.Fatal(why)
	}
	front.release(cds)
	r.done("front", second)

	// What stands still whatever is said says why.
	front.hold(cds)
	third := r.merge(v3)
	front.waitsWith(cds)
	r.orders(Abort, "front")
	front.release(cds)
	r.until("the way back", func(st *Status) bool { g := st.group("front"); return g.State == ParkedState && g.Target == "" })
	r.orders(Pause, "front")
	refuses("front", plan("v2", "", "v3"), "group front stays where it is, as commit "+third[:7]+" is parked")
}

// A group that a commit freezes, or does not name, goes nowhere, and a plan that
// says so holds.
func TestR7PlannedStandsStill(t *testing.T) {
	c := both("v1")
	r, _ := newRig(t, c)
	before := fleetOf(t, c)
	r.orders(Pause, "edge")
	c.edge, c.services["none"] = to("none"), "endpoints: []"
	frozen := r.merge(c)
	r.until("the freeze", func(st *Status) bool { g := st.group("edge"); return g.Frozen != nil && g.Frozen.Commit == frozen })
	toNone := map[string]Ends{"edge": EndsOf("edge", before, nil, fleetOf(t, c))}
	if got, want := r.planned(Resume, "edge", toNone), "group edge stays where it is, as it is frozen at commit "+frozen[:7]; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	gone := r.merge(frontOnly("v1"))
	r.read(gone)
	if got, want := r.planned(Resume, "edge", toNone), "the newest commit does not name group edge"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := r.planned(Resume, "edge", map[string]Ends{"edge": EndsOf("edge", before, nil, nil)}); got != "" {
		t.Errorf("a plan in which the group is gone: %q", got)
	}
}
