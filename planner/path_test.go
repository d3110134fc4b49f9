package planner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-xds/sluice/schema"
)

func TestP02Closed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		for _, s := range []schema.Snapshot{from.Acked, to.Snapshot, from.Acked.Union(from.Maybe)} {
			if d := s.Dangling(); len(d) > 0 {
				t.Fatalf("drew an open snapshot: %v", d)
			}
		}
		p := NewPath(from, to)
		for i := range p.Stages {
			for _, d := range p.Stages[i].Snapshot.Dangling() {
				t.Errorf("at %d %s: %s refers to %s, which is not there", i, p.Stages[i].Kind, d.From.Key, d.To.Key)
			}
		}
	})
}

// The stages are those of rule P1: in their order, none without something to do,
// all together from the state to the target.
func TestP01Stages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		p := NewPath(from, to)
		prev := p.From
		if !prev.Equal(from.Acked.Union(from.Maybe)) {
			t.Error("From is not what the session may hold")
		}
		last := -1
		for i := range p.Stages {
			st := &p.Stages[i]
			if int(st.Kind) <= last {
				t.Errorf("stages out of order: %v", kinds(p))
			}
			if st.Snapshot.Equal(prev) && len(st.Wants) == 0 {
				t.Errorf("stage %d %s does nothing", i, st.Kind)
			}
			checkMoves(t, st, prev)
			last, prev = int(st.Kind), st.Snapshot
		}
		switch end := p.At(len(p.Stages) - 1); {
		case !end.Equal(to.Snapshot):
			t.Errorf("the path %v does not end at the target", kinds(p))
		case len(p.Stages) == 0 && !from.Acked.Equal(to.Snapshot):
			t.Error("there is no path, but the target is not acknowledged")
		}
		want := slices.IndexFunc(p.Stages, func(st schema.Stage) bool { return st.Kind > schema.SwitchRoutes })
		if want < 0 {
			want = len(p.Stages)
		}
		if p.Converged != want {
			t.Errorf("converged after %d of %v", p.Converged, kinds(p))
		}
	})
}

// checkMoves holds a stage's wants and types against what it changes.
func checkMoves(t *rapid.T, st *schema.Stage, prev schema.Snapshot) {
	wanted := map[schema.Key]bool{}
	for _, w := range st.Wants {
		wanted[w.Key] = true
		r := st.Snapshot.Get(w.Key)
		if r == nil || r.Version != w.Version {
			t.Errorf("%s wants %s@%s, but serves %v", st.Kind, w.Key, w.Version, r)
		}
		if !st.Moves[w.Type] {
			t.Errorf("%s wants %s, but does not move the type", st.Kind, w.Key)
		}
		for _, k := range w.Parents {
			if !refers(st.Snapshot.Get(k), w.Key) {
				t.Errorf("%s is no parent of %s", k, w.Key)
			}
		}
	}
	for _, typ := range schema.AllTypes() {
		for _, r := range schema.Diff(prev.Of(typ), st.Snapshot.Of(typ)) {
			if !st.Moves[typ] {
				t.Errorf("%s changes %s, and says that it does not", st.Kind, typ)
			}
			if r != nil && !wanted[r.Key] {
				t.Errorf("%s brings %s and does not want it", st.Kind, r.Key)
			}
		}
	}
}

// Clusters and what belongs to them stay until the prune.
func TestP01MonotoneUntilPrune(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		p := NewPath(from, to)
		for i := range p.Stages {
			st := &p.Stages[i]
			if st.Kind == schema.Prune {
				continue
			}
			for _, s := range []schema.Snapshot{from.Acked, from.Maybe, to.Snapshot} {
				for _, typ := range made {
					for r := range s.Of(typ).All() {
						early := i == 0 && st.Kind != schema.Make || i > 0
						if st.Snapshot.Get(r.Key) == nil && early {
							t.Errorf("%s is missing at %d %s", r.Key, i, st.Kind)
						}
					}
				}
			}
		}
	})
}

// What a step brings of listeners and routes sends only to clusters that were
// acknowledged, in the version that the step has.
func TestP03TrafficToAckedClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		p := NewPath(from, to)
		sure := certain(from) // as the stages' gates add to it
		for i := range p.Stages {
			st := &p.Stages[i]
			for typ := schema.Listeners; typ < schema.Runtimes; typ++ {
				if !st.Moves[typ] {
					continue
				}
				for r := range st.Snapshot.Of(typ).All() {
					for _, ref := range r.Refs {
						// Child: a warm route.
						if ref.Type == schema.Clusters && ref.Edge != schema.Child && !same(sure.Get(ref.Key), st.Snapshot.Get(ref.Key)) && !undisturbed(from, r, ref.Key) {
							t.Errorf("at %d %s %s sends to %s, which is not acknowledged", i, st.Kind, r.Key, ref.Name)
						}
					}
				}
			}
			for _, w := range st.Wants {
				if r := st.Snapshot.Get(w.Key); r != nil {
					sure = sure.Replace(w.Type, sure.Of(w.Type).With(r))
				}
			}
		}
	})
}

// undisturbed reports whether what r replaces sent to the cluster already, and
// both were acknowledged: what may have become of the cluster since is not this
// path's doing.
func undisturbed(from schema.State, r *schema.Resource, cluster schema.Key) bool {
	return refers(from.Acked.Get(r.Key), cluster) && from.Acked.Get(cluster) != nil
}

// Whatever part of what is uncertain was applied, what the client may hold refers
// at each stage only to what it may hold.
func TestP03UncertainState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		p := NewPath(from, to)
		// may are the snapshots from which a client may have a type.
		var may [schema.NumTypes][]schema.Snapshot
		for typ := range may {
			may[typ] = []schema.Snapshot{from.Acked, from.Maybe}
		}
		for i := range p.Stages {
			st := &p.Stages[i]
			for typ, m := range st.Moves {
				if m {
					may[typ] = append(may[typ], st.Snapshot)
				}
			}
			for typ := range may {
				for _, s := range may[typ] {
					for r := range s.Of(schema.Type(typ)).All() {
						checkHeld(t, p, i, r, may)
					}
				}
			}
			// The gate: what was moved is held as the stage has it.
			for typ, m := range st.Moves {
				if m {
					may[typ] = []schema.Snapshot{st.Snapshot}
				}
			}
		}
	})
}

func checkHeld(t *rapid.T, p *schema.Path, i int, r *schema.Resource, may [schema.NumTypes][]schema.Snapshot) {
	st := &p.Stages[i]
	if r.Type == schema.Clusters && st.Moves[schema.Clusters] && st.Snapshot.Get(r.Key) == nil {
		return // going in this very response
	}
	if r.Type >= schema.Listeners && st.Moves[r.Type] && st.Snapshot.Get(r.Key) == nil {
		return
	}
	for _, ref := range r.Refs {
		if len(versions(ref.Key, may[ref.Type]...)) == 0 {
			t.Errorf("at %d %s the client may hold %s, but cannot hold %s", i, st.Kind, r.Key, ref.Key)
		}
		if ref.Type == schema.Clusters && st.Snapshot.Get(ref.Key) == nil {
			t.Errorf("at %d %s the client may hold %s, which refers to %s, and that is removed", i, st.Kind, r.Key, ref.Key)
		}
	}
}

// settled is what a session may hold that went through the stages before i of a
// path, and was served i if the stage is open. A stage touches what it moves.
func settled(from schema.State, p *schema.Path, i int, open bool) schema.State {
	st := schema.State{Acked: from.Acked, Maybe: from.Maybe}
	for _, typ := range schema.AllTypes() {
		for j := range i {
			if p.Stages[j].Moves[typ] {
				st.Acked = st.Acked.Replace(typ, p.At(j).Of(typ))
				st.Maybe = st.Maybe.Replace(typ, schema.Set{})
			}
		}
		if open && p.Stages[i].Moves[typ] {
			st.Maybe = st.Maybe.Replace(typ, st.Maybe.Of(typ).Union(p.At(i).Of(typ)))
		}
	}
	return st
}

// A plan that is made half-way, when a stage was settled or while one is open, is
// the rest of the path: with at most one stage before, which changes nothing and
// looks again whether clusters that gain weight have hosts.
func TestP01RestOfThePath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		p := NewPath(from, to)
		if len(p.Stages) == 0 || to.Client == schema.GRPC && from.Maybe.Len() > 0 {
			return // warm routes name what either table might send to: again, and once more
		}
		i := rapid.IntRange(0, len(p.Stages)-1).Draw(t, "at")
		// Of three versions the account keeps two: then nothing is promised.
		open := from.Maybe.Len() == 0 && rapid.Bool().Draw(t, "open")
		checkRest(t, p, from, i, open)
	})
}

// The same for every place of a path through all stages.
func TestP06RestOfThePath(t *testing.T) {
	from, _ := universe.snapshot("cluster a\nroute r: x.com / -> a\nroute old: x.com / -> a\nlistener l -> r\nlistener m -> old\nlistener n -> old\n")
	next, _ := universe.snapshot("cluster b\nroute r: x.com / -> b\nroute s: x.com / -> b\nlistener l -> r\nlistener m -> s\n")
	st := schema.State{Acked: from}
	p := NewPath(st, &schema.Target{Client: schema.GRPC, Snapshot: next, Drain: -1})
	if diff := cmp.Diff([]string{"make", "warm", "listeners", "routes", "unlisten", "cool", "prune"}, kinds(p)); diff != "" {
		t.Fatal(diff)
	}
	for i := range p.Stages {
		checkRest(t, p, st, i, false)
		checkRest(t, p, st, i, true)
	}
}

func checkRest(t interface{ Errorf(string, ...any) }, p *schema.Path, from schema.State, i int, open bool) {
	known := *p.Target
	known.Known = []schema.Snapshot{from.Acked, from.Maybe}
	rest := NewPath(settled(from, p, i, open), &known)
	got, want := rest.Stages, p.Stages[i:]
	if len(got) > len(want) && got[0].Kind == schema.Make && got[0].Snapshot.Equal(rest.From) {
		got = got[1:]
	}
	if !slices.EqualFunc(want, got, func(a, b schema.Stage) bool {
		return a.Kind == b.Kind && a.Snapshot.Equal(b.Snapshot) && a.Drain == b.Drain
	}) {
		t.Errorf("from %d (open: %v) of\n%sthe path is\n%s", i, open, pathWords(p), pathWords(rest))
	}
}

func TestEqualInputsGiveEqualPlans(t *testing.T) {
	equal := cmp.Comparer(schema.Snapshot.Equal)
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		one, two := NewPath(from, to), NewPath(from, to)
		if diff := cmp.Diff(one, two, equal); diff != "" {
			t.Error(diff)
		}
		if a, b := pathWords(one), pathWords(two); a != b {
			t.Errorf("%s\nis not\n%s", a, b)
		}
	})
}

// What is not closed is planned too, to its end: Prove reports it.
func TestP02OpenInputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		open := func(s schema.Snapshot, label string) schema.Snapshot {
			for _, typ := range schema.AllTypes() {
				s = s.Replace(typ, s.Of(typ).Filter(func(r *schema.Resource) bool {
					return rapid.IntRange(0, 3).Draw(t, label+r.Key.String()) > 0
				}))
			}
			return s
		}
		from.Acked, from.Maybe = open(from.Acked, "acked "), open(from.Maybe, "maybe ")
		to.Snapshot = open(to.Snapshot, "to ")
		p := NewPath(from, to)
		if !p.At(len(p.Stages) - 1).Equal(to.Snapshot) {
			t.Errorf("the path %v does not end at the target", kinds(p))
		}
		// The closure is checked by what differs, and says what a look at all says.
		proof, _ := Prove(p, schema.Snapshot{})
		words := func(st schema.StageKind, d schema.Dangle) string {
			return fmt.Sprintf("%s: %s@%s -> %s %s", st, d.From.Key, d.From.Version, d.To.Key, d.To.Edge)
		}
		var want, got []string
		for i := range p.Stages {
			for _, d := range p.Stages[i].Snapshot.Dangling() {
				want = append(want, words(p.Stages[i].Kind, d))
			}
		}
		for _, o := range proof.Open {
			got = append(got, words(o.Stage, o.Dangle))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("openings (-want +got):\n%s", diff)
		}
	})
}

// Two commits one after the other end where the second alone does.
func TestTwoRoutesGiveTheSameEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawPath(t)
		p := NewPath(from, to)
		if len(p.Stages) == 0 {
			return
		}
		i := rapid.IntRange(0, len(p.Stages)-1).Draw(t, "at")
		second := *to
		second.Snapshot, _ = universe.snapshot(drawText(t, to.Client, "second"))
		after := NewPath(settled(from, p, i, true), &second)
		if !after.At(len(after.Stages) - 1).Equal(second.Snapshot) {
			t.Errorf("from %d of %v the path %v does not end at the second target", i, kinds(p), kinds(after))
		}
	})
}
