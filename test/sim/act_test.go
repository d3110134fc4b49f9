package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// action is something that may happen next.
type action struct {
	weight int
	do     func()
}

// act has one thing happen.
func (h *history) act() {
	all := h.traffic()
	all = append(all, h.pastimes()...)
	all = append(all, h.accidents()...)
	h.draw(all)
	h.wait()
}

func (h *history) draw(all []action) {
	total := 0
	for _, a := range all {
		total += a.weight
	}
	n := h.rng.IntN(total)
	for _, a := range all {
		if n -= a.weight; n < 0 {
			a.do()
			return
		}
	}
}

// traffic is what may move on the wires.
func (h *history) traffic() []action {
	var all []action
	for _, p := range h.procs {
		if p.wire == nil {
			continue
		}
		if len(p.wire.up) > 0 {
			all = append(all, action{20, p.deliver})
		}
		if p.wire.waiting() > 0 {
			weight := 20
			if p.slow {
				weight = 2
			}
			all = append(all, action{weight, p.receive})
		}
		for _, t := range used {
			if p.ready(t) {
				all = append(all, action{20, func() { p.say(t) }})
			}
		}
	}
	return all
}

// deliver has the server hear what was said first.
func (p *proc) deliver() {
	m := p.wire.up[0]
	p.wire.up = p.wire.up[1:]
	p.h.log("%s is heard: %s", p, m)
	if !p.wire.heard {
		p.wire.heard = true
		p.greets()
	}
	p.wire.recv <- m
}

// busy reports whether something is under way, and owing whether that includes a
// request.
func (h *history) busy() (busy, owing bool) {
	for _, p := range h.procs {
		if p.wire == nil {
			continue
		}
		owing = owing || len(p.wire.up) > 0 || slices.ContainsFunc(used[:], p.ready)
		busy = busy || p.wire.waiting() > 0
	}
	return busy || owing, owing
}

// pastimes let time pass. While a request is on its way it is a moment: the planner
// gives a client two seconds to ask for what it uses. Answers that the client has
// not begun to work on may take as long as they like.
func (h *history) pastimes() []action {
	busy, owing := h.busy()
	var all []action
	pass := func(weight int, d time.Duration) {
		d += time.Duration(h.rng.IntN(1000)) * time.Microsecond
		all = append(all, action{weight, func() { h.pass(d) }})
	}
	few, some, many := 4, 6, 10
	if busy {
		few, some, many = 0, 1, 2
	}
	pass(many, 30*time.Millisecond)
	if !owing {
		pass(some, 150*time.Millisecond)
		pass(some, 1100*time.Millisecond)
		pass(some, 2100*time.Millisecond)
		pass(few, 5200*time.Millisecond)
		pass(few, 16*time.Second)
		pass(few/2, 32*time.Second)
		pass(few/2, 601*time.Second)
	}
	return all
}

// pass lets time pass, and clients do meanwhile what they do by themselves.
func (h *history) pass(d time.Duration) {
	until := time.Now().Add(d)
	for time.Now().Before(until) && !h.over() {
		at := until
		for _, p := range h.procs {
			at = earlier(at, p.model.next())
		}
		if w := time.Until(at); w > 0 {
			time.Sleep(w)
		}
		h.wait()
		for _, p := range h.procs {
			p.tick()
		}
		if _, owing := h.busy(); owing { // a timeout has something to say
			break
		}
	}
	h.log("%s later", d)
}

// accidents are what goes wrong, and what people do.
func (h *history) accidents() []action {
	var all []action
	if len(h.commits) < 7 {
		all = append(all, action{3, h.commit})
	}
	if h.plane == nil {
		all = append(all, action{4, h.start})
	} else {
		all = append(all, action{1, func() { h.plane.fuse.Store(int64(h.rng.IntN(4))); h.log("the server is about to die") }})
	}
	for _, p := range h.procs {
		switch {
		case p.wire == nil && h.plane != nil && p.retries():
			all = append(all, action{4, p.connect})
		case p.wire != nil && p.wire.ended() != nil:
			all = append(all, action{50, p.cut})
		case p.wire != nil:
			all = append(all, action{1, p.cut})
		}
	}
	if len(h.procs) < 6 {
		t := pick(h.rng, h.teams)
		all = append(all, action{1, func() { h.spawn(t, fmt.Sprintf("%s-%d", t.name, h.rng.IntN(3)), 0) }})
	}
	if old := slices.IndexFunc(h.procs, func(p *proc) bool { return !h.newest(p) }); old >= 0 {
		all = append(all, action{1, func() { h.kill(old) }})
	}
	if i := h.rng.IntN(len(h.procs)); h.rng.IntN(8) == 0 {
		all = append(all, action{1, func() { h.kill(i) }})
	}
	return all
}

// retries reports whether a process comes back: the older of two generations
// shuts down instead.
func (p *proc) retries() bool { return p.h.newest(p) }

// commit merges something.
func (h *history) commit() {
	last := h.commits[len(h.commits)-1]
	if len(h.commits) > 2 && h.rng.IntN(8) == 0 {
		old := pick(h.rng, h.commits)
		h.merge(h.author.revert(last, old, h.teams, len(h.commits)), fmt.Sprintf("revert to %d", old.number))
		return
	}
	c, did := h.author.next(last, h.teams, len(h.commits))
	h.merge(c, fmt.Sprint(did))
}

// spawn starts a process: a node that is new, or another generation of one.
func (h *history) spawn(t *team, id string, _ int) {
	p := &proc{h: h, team: t, id: id, slow: h.rng.IntN(4) == 0, seen: map[request]bool{}}
	for _, q := range h.procs {
		if q.id == id {
			p.gen = max(p.gen, q.gen+1)
		}
	}
	if t.client == schema.GRPC {
		p.model = newGRPC(p)
	} else {
		p.model = newEnvoy(p)
		p.delta = h.rng.IntN(2) == 0
	}
	h.procs = append(h.procs, p)
	h.log("%s begins, delta %v, slow %v", p, p.delta, p.slow)
	if h.plane != nil {
		p.connect()
	}
	h.wait()
}

// kill ends a process.
func (h *history) kill(i int) {
	p := h.procs[i]
	if len(h.procs) == 1 {
		return
	}
	h.log("%s is killed", p)
	if p.wire != nil {
		p.wire.cut()
	}
	h.procs = slices.Delete(h.procs, i, i+1)
}

// start starts the control plane from what is on disk.
func (h *history) start() {
	h.log("the server starts")
	h.plane = newPlane(h)
	h.wait()
}

// crash takes the control plane away. What it has sent may have arrived.
func (h *history) crash() {
	if h.plane == nil {
		return
	}
	h.log("the server dies")
	for _, p := range h.procs {
		p.cut()
	}
	dead := h.plane
	h.plane = nil
	dead.end()
}

// peace has everything happen that can happen, and time pass when nothing can,
// until something is so or the time is over.
func (h *history) peace(until func() bool, limit time.Duration) {
	end := time.Now().Add(limit)
	idle := 700 * time.Millisecond
	for !until() && time.Now().Before(end) && !h.over() {
		switch all := h.traffic(); {
		case h.plane == nil:
			h.start()
		case h.reconnects():
		case len(all) > 0:
			h.draw(all)
			idle = 700 * time.Millisecond
		default:
			h.pass(idle)
			if idle = min(2*idle, time.Minute); idle == time.Minute {
				h.retry()
			}
		}
		h.wait()
	}
}

// retry is what an operator does who finds a group halted.
func (h *history) retry() {
	if h.plane == nil || h.plane.dead.Load() {
		return
	}
	for _, g := range h.plane.loop.Status().Groups {
		if g.Halt != nil {
			h.retries++
			h.log("retry %s, which is %s: %s", g.Name, g.State, g.Why)
			if _, err := h.plane.loop.Do(context.Background(), reconcile.Intent{Verb: reconcile.Retry, Group: g.Name, By: "the operator"}); err != nil {
				h.log("cannot retry: %v", err)
			}
		}
	}
}

func (h *history) reconnects() bool {
	for i, p := range h.procs {
		switch {
		case p.wire != nil && p.wire.ended() != nil:
			p.cut()
			return true
		case p.wire == nil && p.retries():
			p.connect()
			return true
		case p.wire == nil:
			h.kill(i)
			return true
		}
	}
	return false
}
