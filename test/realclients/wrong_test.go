//go:build e2e

package realclients

import (
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// plan is what reconcile.Options.Plan takes.
type plan = func(schema.State, *schema.Target) *schema.Path

// moves marks types that a stage changes.
func moves(types ...schema.Type) (m [schema.NumTypes]bool) {
	for _, t := range types {
		m[t] = true
	}
	return m
}

var every = schema.AllTypes()

var all = moves(every[:]...)

// withOld is the target with some types as the session has them.
func withOld(from schema.State, to *schema.Target, types ...schema.Type) schema.Snapshot {
	holds := from.Acked.Union(from.Maybe)
	s := to.Snapshot
	for _, t := range types {
		s = s.Replace(t, holds.Of(t))
	}
	return s
}

// twoSteps serves first, waits, and serves the target. A session that holds
// nothing orders itself.
func twoSteps(from schema.State, to *schema.Target, first schema.Snapshot, moved [schema.NumTypes]bool, wait time.Duration) *schema.Path {
	return &schema.Path{Target: to, Converged: 2, From: from.Acked.Union(from.Maybe), Stages: []schema.Stage{
		{Kind: schema.Make, Snapshot: first, Moves: moved},
		{Kind: schema.SwitchRoutes, Snapshot: to.Snapshot, Moves: all, Drain: wait},
	}}
}

// clusterFirst drops the old cluster, and moves the route 0.2 s later.
func clusterFirst(from schema.State, to *schema.Target) *schema.Path {
	if from.Blank {
		return &schema.Path{Target: to}
	}
	return twoSteps(from, to, withOld(from, to, schema.Listeners, schema.Routes), all, 200*time.Millisecond)
}

// routeFirst moves the route, and brings its cluster 1 s later.
func routeFirst(from schema.State, to *schema.Target) *schema.Path {
	if from.Blank {
		return &schema.Path{Target: to}
	}
	first := withOld(from, to, schema.Clusters, schema.Endpoints)
	return twoSteps(from, to, first, moves(schema.Routes), time.Second)
}

// listenerGone drops the listener, and brings everything 0.2 s later.
func listenerGone(from schema.State, to *schema.Target) *schema.Path {
	if from.Blank {
		return &schema.Path{Target: to}
	}
	first := from.Acked.Union(from.Maybe).Replace(schema.Listeners, schema.Set{})
	return twoSteps(from, to, first, moves(schema.Listeners), 200*time.Millisecond)
}

// unordered sends everything at once, the old and the new gone and come in one
// push.
func unordered(from schema.State, to *schema.Target) *schema.Path {
	if from.Blank {
		return &schema.Path{Target: to}
	}
	return &schema.Path{Target: to, Converged: 1, From: from.Acked.Union(from.Maybe), Stages: []schema.Stage{
		{Kind: schema.SwitchRoutes, Snapshot: to.Snapshot, Moves: all},
	}}
}
