package planner

import (
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// settle is how long a client is given to ask for what it uses, where it may have
// no use for it: after it came back, before anything is removed, since clients ask
// again for every type as soon as their stream is up; and for the clusters of a
// table, of which gRPC clients ask only for those in their own virtual host.
const settle = 2 * time.Second

// Step decides what to do with a session at stage at of a path, or before the
// first, from its own facts alone. It allocates nothing.
func Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	for t := range f.Types {
		if f.Types[t].Nack != nil {
			return schema.Step{Verdict: schema.Halt, Cause: schema.Refused, On: refusedKey(f.Types[t].Nack)}
		}
	}
	if at >= 0 {
		if cause, on, until := unsettled(p, at, f, now); cause != schema.NoCause {
			if !until.IsZero() {
				return schema.Step{Verdict: schema.Wait, Cause: cause, On: on, Until: until}
			}
			return bounded(cause, on, f.StageAt, p.Target.Patience, now)
		}
	}
	if at >= len(p.Stages) {
		return schema.Step{Verdict: schema.Done, Settled: true}
	}
	next := at + 1
	step := schema.Step{Verdict: schema.Serve}
	switch {
	case next < len(p.Stages):
		step = enter(p, next, f, now)
	case f.Hold && at < 0:
		step = schema.Step{Verdict: schema.Wait, Cause: schema.Held}
	}
	step.Stage, step.Settled = next, true
	return step
}

func refusedKey(n *schema.Nack) schema.Key {
	k := schema.Key{Type: n.Type}
	if len(n.Names) == 1 {
		k.Name = n.Names[0]
	}
	return k
}

// unsettled finds the first thing that stage at still waits for, and until when if
// not for ever.
func unsettled(p *schema.Path, at int, f *schema.Facts, now time.Time) (schema.Cause, schema.Key, time.Time) {
	for t := range f.Types {
		ft := &f.Types[t]
		if ft.Sub == nil || schema.Type(t).Live() {
			continue
		}
		moves := at >= len(p.Stages) || p.Stages[at].Moves[t]
		// By a listener that an older path sent, a client comes to tables that
		// are to be warm too.
		comes := at < len(p.Stages) && p.Stages[at].Kind == schema.Warm && schema.Type(t) == schema.Listeners
		// What was under way before may be what routes, and is to be accepted
		// before the session has converged (rule R6).
		comes = comes || at == p.Converged-1 && routes(schema.Type(t))
		if moves && (ft.InFlight || ft.Behind) || comes && ft.InFlight {
			return schema.Unacked, schema.Key{Type: schema.Type(t)}, time.Time{}
		}
	}
	if at >= len(p.Stages) {
		return schema.NoCause, schema.Key{}, time.Time{}
	}
	wants := p.Stages[at].Wants
	for i := range wants {
		if cause, until := unmet(&wants[i], f, now); cause != schema.NoCause {
			return cause, wants[i].Key, until
		}
	}
	return schema.NoCause, schema.Key{}, time.Time{}
}

// routes reports whether a type decides where requests go.
func routes(t schema.Type) bool { return t >= schema.Listeners && t < schema.Runtimes }

// unmet says why a gate is closed. What the session does not ask for, and will
// not ask for because it holds none of the parents, gates nothing (rules P7,
// O15).
func unmet(w *schema.Want, f *schema.Facts, now time.Time) (schema.Cause, time.Time) {
	ft := &f.Types[w.Type]
	if ft.Ignored {
		return schema.NoCause, time.Time{}
	}
	if ft.Sub == nil && w.Type == schema.Clusters && !f.Returned.IsZero() {
		if cause, until := withheld(f, now); cause != schema.NoCause {
			return cause, until
		}
	}
	if !ft.Sub.Covers(w.Name) {
		return unasked(w, f, now)
	}
	r := ft.Acked.Get(w.Name)
	switch {
	case r == nil,
		!w.Type.Live() && r.Version != w.Version,
		w.Type.Live() && (ft.Resend.Get(w.Name) != nil || ft.Flight.Get(w.Name) != nil):
		return schema.Unacked, time.Time{}
	case w.Usable && w.Type.Live() && !r.Usable:
		return schema.Unusable, time.Time{}
	}
	return schema.NoCause, time.Time{}
}

// withheld says whether a client that came back has still to ask for clusters, and
// until when that is to be expected. Envoy does so only once those that warm have
// their endpoints (rule O3), and its routes must not move before.
func withheld(f *schema.Facts, now time.Time) (schema.Cause, time.Time) {
	endpoints := &f.Types[schema.Endpoints]
	if endpoints.InFlight {
		return schema.Unasked, time.Time{}
	}
	since := f.Returned
	if endpoints.AckedAt.After(since) {
		since = endpoints.AckedAt
	}
	if until := since.Add(settle); now.Before(until) {
		return schema.Unasked, until
	}
	return schema.NoCause, time.Time{}
}

// unasked says whether a session will ask for what it does not ask for yet, and
// until when that is to be expected.
func unasked(w *schema.Want, f *schema.Facts, now time.Time) (schema.Cause, time.Time) {
	cause, last := schema.NoCause, time.Time{}
	for i := range w.Parents {
		parent := &f.Types[w.Parents[i].Type]
		switch {
		case !parent.Sub.Covers(w.Parents[i].Name):
		case w.Type != schema.Clusters || w.Parents[i].Type == schema.Clusters:
			return schema.Unasked, time.Time{}
		default:
			since := parent.AckedAt
			if f.Returned.After(since) {
				since = f.Returned
			}
			if until := since.Add(settle); now.Before(until) && until.After(last) {
				cause, last = schema.Unasked, until
			}
		}
	}
	return cause, last
}

// bounded waits until patience is spent, and then halts.
func bounded(c schema.Cause, on schema.Key, since time.Time, patience time.Duration, now time.Time) schema.Step {
	if patience <= 0 {
		return schema.Step{Verdict: schema.Wait, Cause: c, On: on}
	}
	until := since.Add(patience)
	if now.Before(until) {
		return schema.Step{Verdict: schema.Wait, Cause: c, On: on, Until: until}
	}
	if c == schema.Unacked {
		c = schema.Silent
	}
	return schema.Step{Verdict: schema.Halt, Cause: c, On: on}
}

// enter opens a stage, or says what it waits for.
func enter(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step {
	st := &p.Stages[at]
	if f.Hold {
		return schema.Step{Verdict: schema.Wait, Cause: schema.Held}
	}
	on := schema.Key{}
	if len(st.Unused) > 0 {
		on = st.Unused[0]
	}
	if st.Kind >= schema.Unlisten {
		// What is un-ACKed may refer to what goes, whichever stage sent it
		// (rule P3).
		for t := range f.Types {
			if ft := &f.Types[t]; ft.InFlight && !schema.Type(t).Live() {
				return schema.Step{Verdict: schema.Wait, Cause: schema.Unacked, On: schema.Key{Type: schema.Type(t)}}
			}
		}
	}
	if st.Kind >= schema.Unlisten && !f.Returned.IsZero() {
		if until := f.Returned.Add(settle); now.Before(until) {
			return schema.Step{Verdict: schema.Wait, Cause: schema.Draining, On: on, Until: until}
		}
	}
	if st.Drain > 0 {
		if until := settledAt(f).Add(st.Drain); now.Before(until) {
			return schema.Step{Verdict: schema.Wait, Cause: schema.Draining, On: on, Until: until}
		}
	}
	for _, k := range st.Unused {
		if f.Types[k.Type].Sub.Lists(k.Name) && !k.Type.Live() {
			return schema.Step{Verdict: schema.Wait, Cause: schema.InUse, On: k}
		}
	}
	if st.Kind == schema.Prune && !p.Target.PruneBusy {
		return idle(st, f, now)
	}
	return schema.Step{Verdict: schema.Serve}
}

// idle opens the prune once a node that reports its load has shown a time without
// requests to the clusters that go, from its beginning after what sent them there
// was gone (rule R10). One that reports no more is not waited for.
func idle(st *schema.Stage, f *schema.Facts, now time.Time) schema.Step {
	if len(st.Unused) == 0 || st.Unused[0].Type != schema.Clusters || f.Load.Until.IsZero() {
		return schema.Step{Verdict: schema.Serve}
	}
	since := settledAt(f)
	for i := range f.Load.Sent {
		sent := &f.Load.Sent[i]
		k := schema.Key{Type: schema.Clusters, Name: sent.Cluster}
		if !sent.From.Before(since) && now.Before(sent.Until) && slices.Contains(st.Unused, k) {
			return schema.Step{Verdict: schema.Wait, Cause: schema.Busy, On: k, Until: sent.Until, Requests: sent.Requests}
		}
	}
	if f.Load.From.Before(since) && now.Before(f.Load.Until) {
		return schema.Step{Verdict: schema.Wait, Cause: schema.Unreported, On: st.Unused[0], Until: f.Load.Until}
	}
	return schema.Step{Verdict: schema.Serve}
}

// settledAt is when the open stage was acknowledged in full: the drain clock
// starts at the ACK (rule O10).
func settledAt(f *schema.Facts) time.Time {
	at := f.StageAt
	for t := range f.Types {
		if a := f.Types[t].AckedAt; !schema.Type(t).Live() && a.After(at) {
			at = a
		}
	}
	return at
}
