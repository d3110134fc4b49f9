package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// leftover is the name of a cluster that a client may hold and that cannot be sent.
func leftover(name string) schema.Snapshot {
	return schema.SnapshotOf(schema.Restore(schema.Key{Type: schema.Clusters, Name: name}, "", nil, nil))
}

// What a newcomer may be left with does not delay it: it is served the target, and
// told to drop the rest after the drain.
func TestO10ANewcomersLeftoversAreDrained(t *testing.T) {
	var w world
	target, _ := w.snapshot("cluster a eds\nlistener in -> web\nroute web: x.com / -> a")
	p := NewPath(schema.State{Blank: true, Acked: leftover("gone")}, &schema.Target{Snapshot: target, Drain: -1})
	if got := kinds(p); !slices.Equal(got, []string{"prune"}) {
		t.Fatalf("the path is %v, want a prune", got)
	}
	if st := p.Stages[0]; !st.Snapshot.Equal(target) || st.Drain != 5*time.Second || p.Converged != 0 {
		t.Errorf("the prune is %+v, converged at %d", st, p.Converged)
	}
	if first := p.At(schema.Before); !first.Equal(target.Union(leftover("gone"))) {
		t.Errorf("it is served %v first", first)
	}
	if p := NewPath(schema.State{Blank: true}, &schema.Target{Snapshot: target}); len(p.Stages) > 0 {
		t.Errorf("without any the path is %v", kinds(p))
	}
}

// Nobody waits for the ACK of what cannot be sent.
func TestP03LeftoversGateNothing(t *testing.T) {
	var w world
	from, _ := w.snapshot("cluster a eds\nlistener in -> web\nroute web: x.com / -> gone")
	target, _ := w.snapshot("cluster a@2 eds\nlistener in -> web\nroute web: x.com / -> a")
	p := NewPath(schema.State{Maybe: from.Union(leftover("gone"))}, &schema.Target{Snapshot: target})
	for _, st := range p.Stages {
		if i := slices.IndexFunc(st.Wants, func(w schema.Want) bool { return w.Name == "gone" }); i >= 0 {
			t.Errorf("%s waits for %v", st.Kind, st.Wants[i])
		}
		if has := st.Snapshot.Get(leftover("gone").Of(schema.Clusters).Get("gone").Key) != nil; has != (st.Kind < schema.Prune) {
			t.Errorf("at %s the leftover is there: %v", st.Kind, has)
		}
	}
}
