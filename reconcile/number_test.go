package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A commit has one number in the status, the events and the history, and keeps it
// over a restart; the next commit has the next.
func TestRolloutNumbers(t *testing.T) {
	r, first := newRig(t, both("v1"))
	r.done("front", first)
	r.done("edge", first)
	second := r.merge(both("v2"))
	r.done("edge", second)
	c := both("v2")
	c.extra = "// nothing\n"
	third := r.merge(c)
	was := r.read(third)
	numbers := func(st *Status) string {
		var b strings.Builder
		for _, n := range st.Rollouts {
			fmt.Fprintf(&b, "%s %s, ", n.Number, n.Commit)
		}
		for _, g := range st.Groups {
			fmt.Fprintf(&b, "%s %s, ", g.Name, g.Rollout)
		}
		return b.String()
	}
	want := fmt.Sprintf("r-1 %s, r-2 %s, r-3 %s, edge r-3, front r-3, ", first, second, third)
	if got := numbers(was); got != want {
		t.Errorf("the numbers are %s, want %s", got, want)
	}
	list, _, _ := r.loop.Events(0)
	of := map[string]Number{first: 1, second: 2, third: 3, "": 0}
	for _, e := range list {
		if e.Rollout != of[e.Commit] {
			t.Errorf("the event %+v is not of %s", e, of[e.Commit])
		}
	}
	for _, a := range r.loop.History() {
		if a.Rollout != of[a.Commit] {
			t.Errorf("the act %+v is not of %s", a, of[a.Commit])
		}
	}

	r.stop()
	r.start()
	if got := numbers(r.loop.Status()); got != want {
		t.Errorf("after a restart the numbers are %s, want %s", got, want)
	}
	if got := numbers(r.read(third)); got != want {
		t.Errorf("once the commit was read again the numbers are %s, want %s", got, want)
	}
	fourth := r.merge(both("v3"))
	if st := r.done("edge", fourth); st.NumberOf(fourth) != 4 || st.group("edge").Rollout != 4 {
		t.Errorf("the next has the number %s: %s", st.NumberOf(fourth), numbers(st))
	}
}

// An intent may name a rollout by its number, in the place of the commit or of the
// group, and acts on the groups that are about it alone.
func TestIntentsByNumber(t *testing.T) {
	r, first := newRig(t, frontOnly("v1"))
	r.done("front", first)
	ask := func(in Intent) (Outcome, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		in.By = "ann"
		return r.loop.Do(ctx, in)
	}
	for _, c := range []struct {
		in   Intent
		want string
	}{
		{Intent{Verb: Pause, Group: "r-9"}, "there is no rollout r-9 any more, or yet: the newest is r-1; see sluice history"},
		{Intent{Verb: Promote, Commit: "r-9"}, "there is no rollout r-9 any more, or yet: the newest is r-1; see sluice history"},
		{Intent{Verb: Promote, Group: "r-1"}, "nothing waits for a promotion"},
		{Intent{Verb: Retry, Group: "r-1"}, "group front is neither halted nor parked"},
		{Intent{Verb: Pause, Group: "r-1", Commit: "0000000"}, "rollout r-1 is of commit " + first[:7] + ", and not of 0000000: look again"},
		{Intent{Verb: Pause, Group: "r-0"}, `there is no group "r-0": there are front`},
	} {
		_, err := ask(c.in)
		if no := new(IntentError); !errors.As(err, &no) || !strings.Contains(no.Why, c.want) {
			t.Errorf("%+v: got %v, want %q", c.in, err, c.want)
		}
	}
	out, err := ask(Intent{Verb: Pause, Group: "r-1", Commit: first})
	noError(t, err)
	want := []GroupOutcome{{Group: "front", Commit: first, Rollout: 1, Words: "nothing new is served, endpoints go on"}}
	if diff := cmp.Diff(want, out.Groups); diff != "" {
		t.Errorf("the outcome differs (-want +got):\n%s", diff)
	}
	if g := r.state("front", Converged).group("front"); g.Paused == nil {
		t.Errorf("the group is not paused: %+v", g)
	}
	r.merge(frontOnly("v2"))
	g := r.state("front", PausedState).group("front")
	if g.Rollout != 1 || g.NextRollout != 2 {
		t.Errorf("the numbers are %s and next %s", g.Rollout, g.NextRollout)
	}
	if _, err := ask(Intent{Verb: Resume, Commit: "r-1"}); err == nil || !strings.Contains(err.Error(), "no group is at commit "+first[:7]) {
		t.Errorf("resume of a rollout that no group is about any more: %v", err)
	}
}

// What is remembered of rollouts is bounded, but for those that a group is at.
func TestRolloutsAreBounded(t *testing.T) {
	l := &Loop{groups: map[string]*group{"front": {GroupState: GroupState{Base: &Release{Commit: "c0"}}}}}
	for i := range 3 * rolloutLimit {
		l.enroll(Revision{Commit: fmt.Sprintf("c%d", i)}, time.Time{})
		l.enroll(Revision{Commit: fmt.Sprintf("c%d", i)}, time.Time{})
	}
	all := l.ops.Rollouts
	if len(all) != rolloutLimit+1 || all[0].Number != 1 || all[len(all)-1].Number != 3*rolloutLimit {
		t.Errorf("%d are kept, from %s to %s", len(all), all[0].Number, all[len(all)-1].Number)
	}
}

// A revision that several groups' commits begin with is ambiguous.
func TestAmbiguousRevision(t *testing.T) {
	at := func(commit string) *group { return &group{GroupState: GroupState{Base: &Release{Commit: commit}}} }
	l := &Loop{groups: map[string]*group{"a": at("3f2a91c0"), "b": at("3f2a9200"), "c": at("9be01d40")}}
	_, err := l.meant(Intent{Verb: Pause, Commit: "3f2a9"})
	if want := "revision 3f2a9 is ambiguous: it may be 3f2a91c0 or 3f2a9200; give more digits"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if names, err := l.meant(Intent{Verb: Pause, Commit: "3f2a91"}); err != nil || len(names) != 1 || names[0] != "a" {
		t.Errorf("got %v, %v", names, err)
	}
}

// As JSON a duration says its unit, and a number is as people say it.
func TestStatusAsJSON(t *testing.T) {
	g := GroupStatus{Rollout: 42, Wave: oneWave, Spent: Spent{Fetch: 1500 * time.Millisecond, Push: time.Microsecond}}
	data, err := json.Marshal(g)
	noError(t, err)
	for _, want := range []string{`"rollout":"r-42"`, `"wave":{"index":1,"count":1}`, `"spent":{"fetch_seconds":1.5,"compile_seconds":0,"plan_seconds":0,"push_seconds":0.000001}`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
	var back GroupStatus
	noError(t, json.Unmarshal(data, &back))
	if back.Spent != g.Spent || back.Rollout != 42 {
		t.Errorf("%+v became %+v", g, back)
	}
	if err := json.Unmarshal([]byte(`{"rollout": "42"}`), &back); err == nil {
		t.Error("a number without r- is taken")
	}
}
