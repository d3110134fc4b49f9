package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// drained is a session that has done all but remove cluster a, and since when.
func drained(t *testing.T) (c *session, since time.Time) {
	t.Helper()
	c = started(t, schema.Envoy, "cluster a\ncluster b\nroute r: x.com / -> a\nlistener l -> r\n", after)
	c.answer()
	c.serve(1)
	c.answer(schema.Routes)
	since = c.now
	c.now = since.Add(drainRoute)
	return c, since
}

// holds is a step that does not remove a yet.
func holds(cause schema.Cause, until time.Time, requests uint64) schema.Step {
	return schema.Step{
		Verdict: schema.Wait, Stage: 2, Cause: cause, On: schema.Key{Type: schema.Clusters, Name: "a"},
		Until: until, Requests: requests, Settled: true,
	}
}

func TestR10PruneWaitsForRequests(t *testing.T) {
	c, since := drained(t)
	report := func(from time.Time, requests ...schema.Sent) time.Time {
		c.now = c.now.Add(10 * time.Second)
		until := c.now.Add(12 * time.Second)
		c.facts.Load = schema.Load{From: from, Until: until, Sent: requests}
		return until
	}
	sent := func(from, until time.Time) schema.Sent {
		return schema.Sent{Cluster: "a", Requests: 3, From: from, Until: until}
	}
	until := report(since.Add(-1), sent(since.Add(-1), c.now.Add(time.Hour)))
	c.step(holds(schema.Unreported, until, 0)) // those may be of before the routes' ACK
	until = report(since)
	c.facts.Load.Sent = []schema.Sent{sent(since, until)}
	c.step(holds(schema.Busy, until, 3))
	c.path.Target.PruneBusy = true
	c.step(schema.Step{Verdict: schema.Serve, Stage: 2, Settled: true})
	c.path.Target.PruneBusy = false
	c.now = until // no further report: the node speaks of its load no more
	c.step(schema.Step{Verdict: schema.Serve, Stage: 2, Settled: true})
	c.now = since.Add(drainRoute)
	c.facts.Load.Sent = []schema.Sent{{Cluster: "b", Requests: 3, From: since, Until: until}}
	c.serve(2) // what stays may be sent to
}

// Only one that reports is waited for, and not for ever.
func TestR10PruneWaitsForAReport(t *testing.T) {
	c, since := drained(t)
	c.step(schema.Step{Verdict: schema.Serve, Stage: 2, Settled: true})
	c.facts.Load = schema.Load{Until: c.now.Add(time.Second)} // the stream has begun
	c.step(holds(schema.Unreported, c.now.Add(time.Second), 0))
	c.facts.Load = schema.Load{From: since, Until: c.now.Add(time.Second)}
	c.step(schema.Step{Verdict: schema.Serve, Stage: 2, Settled: true})
	c.facts.Load = schema.Load{Until: c.now}
	c.serve(2)
}

// Requests that a route sends move with it: only others are a hazard.
func TestR10UnexplainedRequests(t *testing.T) {
	p, _ := plan(schema.Envoy, "cluster a\ncluster b\ncluster c\nroute r: x.com / -> a\nlistener l -> r\n", "cluster c\nroute r: x.com / -> c\nlistener l -> r\n")
	got := Busy(p, map[string]uint64{"a": 7, "b": 12, "c": 100})
	if len(got) != 1 || got[0].Key.Name != "b" || got[0].Code != "prune-with-traffic" || got[0].Severity != Warning || !strings.Contains(got[0].Message, "12 requests") {
		t.Errorf("got %+v, want b alone", got)
	}
}
