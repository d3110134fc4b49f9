//go:build e2e

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// mosnModel is MOSN 1.3, a proxy that asks as Envoy does and applies what it is
// sent otherwise (see dataplane.MOSN): nothing warms, and nothing is ever removed.
type mosnModel struct {
	*envoyModel
	sent map[string]bool // the endpoints that the clusters of the last response use
}

func newMOSN(p *proc) *mosnModel {
	e := newEnvoy(p)
	e.withholds = false
	return &mosnModel{envoyModel: e, sent: map[string]bool{}}
}

func (m *mosnModel) apply(msg *message) string {
	switch msg.t {
	case schema.Clusters:
		clear(m.sent)
		for _, it := range msg.items {
			m.sent[it.eds] = true
			c := &pools{item: it}
			if stands := m.clusters[it.Name]; stands != nil {
				c.hosts = stands.hosts
			}
			m.clusters[it.Name] = c
		}
		return ""
	case schema.Listeners:
		all := *msg
		all.items = slices.Clone(msg.items)
		for _, held := range [...]map[string]*socket{m.listeners, m.opening} {
			for _, name := range gone(msg, false, held) {
				all.items = append(all.items, held[name].item)
			}
		}
		return m.envoyModel.apply(&all)
	}
	return m.envoyModel.apply(msg)
}

func (m *mosnModel) wants(t schema.Type) *asking {
	hosted := func(c *pools) bool { return c.hosts != nil }
	switch {
	case t == schema.Endpoints && len(m.sent) > 0:
		names := map[string]bool{}
		for name := range m.sent {
			names[name] = true
		}
		return &asking{names: names}
	case t == schema.Listeners && !m.asked && !slices.ContainsFunc(values(m.clusters), hosted):
		return nil // it asks only after endpoints
	}
	return m.envoyModel.wants(t)
}

func values(m map[string]*pools) []*pools {
	var out []*pools
	for _, name := range keys(m) {
		out = append(out, m[name])
	}
	return out
}

// whole does not mind what a snapshot lacks.
func (m *mosnModel) whole(s schema.Snapshot) string {
	if !m.exact(s) {
		return "its routes are others"
	}
	for c := range s.Of(schema.Clusters).All() {
		if mine := m.clusters[c.Name]; mine == nil || mine.Version != c.Version {
			return "it lacks cluster " + c.Name
		}
	}
	return ""
}

// verdict is what becomes of requests.
type verdict int

const (
	unharmed verdict = iota
	// raced: they may fail for an instant, in which a gRPC client has the new
	// table and the old balancer (rule G9).
	raced
	failing
)

func (v verdict) String() string { return [...]string{"no", "race", "yes"}[v] }

// modelled lives through a replay in a model.
func modelled(t *testing.T, r replay, client schema.Client) (v verdict, why string) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{
			seed: r.seed, rng: rand.New(rand.NewPCG(r.seed, 1)), began: time.Now(), fault: fault{planned: r.order.planned(r.target(client))},
			base: map[string]int{}, done: map[string]schema.Version{}, turn: map[string]int{}, must: map[span]map[request]bool{},
			teams: []*team{{name: replayGroup, client: client, drain: replayDrain}},
		}
		commits := r.commits(h.teams[0])
		h.merge(commits[0], "before")
		h.start()
		p := &proc{h: h, team: h.teams[0], id: replayGroup + "-1", seen: map[request]bool{}}
		if client == schema.GRPC {
			p.model = newGRPC(p)
		} else {
			p.model = newMOSN(p)
		}
		h.procs = []*proc{p}
		p.connect()
		h.wait()
		settled := func() bool { // as the real one is: calm, with nothing on its way
			busy, _ := h.busy()
			return h.settled() == "" && !busy
		}
		h.peace(settled, time.Minute)
		if !settled() {
			t.Errorf("seed %d: the model does not come to what is to be changed: %s", r.seed, h.settled())
		}
		for i, c := range commits[1:] {
			h.merge(c, "after")
			if r.late && i == 0 {
				h.peace(func() bool { return false }, replayLate)
			} else {
				h.peace(settled, time.Minute)
			}
		}
		switch {
		case h.failure == "" && !settled():
			t.Errorf("seed %d: the model does not come to the end: %s\n%s", r.seed, h.settled(), strings.Join(h.lines, "\n"))
		case h.failure == "":
		case strings.Contains(h.failure, "of which the client did not know"):
			v, why = raced, h.failure
		case h.holes > 0:
			v, why = failing, h.failure
		default:
			t.Errorf("seed %d: %s", r.seed, h.failure)
		}
		h.plane.fuse.Store(0)
		h.crash()
	})
	return v, strings.TrimPrefix(why, fmt.Sprintf("%s-1.0: ", replayGroup))
}
