package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(quoted, ", ")
}

// listeners finds what becomes of the connections of listeners that change.
func (hs *hazards) listeners(p *schema.Path) (drained []schema.Key) {
	from, to := p.From.Of(schema.Listeners), p.Target.Snapshot.Of(schema.Listeners)
	var bound map[string]string
	for old, l := range schema.Diff(from, to) {
		switch {
		case old == nil:
		case l == nil:
			if bound == nil {
				bound = boundBy(to)
			}
			if hs.removed(old, bound) {
				drained = append(drained, old.Key)
			}
		case hs.replaced(old, l):
			drained = append(drained, l.Key)
		}
	}
	hs.clashes(p)
	return drained
}

// removed reports what the removal of a listener does, and whether it drains.
func (hs *hazards) removed(old *schema.Resource, bound map[string]string) bool {
	if envoy.IsAPIListener(old) {
		hs.add("relisten", old.Key, "keep the listener while anything dials it; a process that must come back to it is restarted",
			"clients that dial %s fail once it is removed; those of grpc-js do not take it up again if it comes back as it was", old.Name)
		return false
	}
	addresses, _ := addressesOf(old) // what cannot be read, Prove reports
	for _, a := range addresses {
		if taker := bound[a]; taker != "" {
			hs.add("rename", old.Key, "keep the listener's name, or let the new one have another port first",
				"listener %s takes %s from %s: both change in one response, the removal first; if the node refuses the new one, nothing listens there", taker, a, old.Name)
			return true
		}
	}
	hs.add("listener-drain", old.Key, "move clients away from it before",
		"listener %s is removed: it takes no new connections, and those that it has are drained and then closed", old.Name)
	return true
}

// replaced reports what a change of a listener does, and whether it drains whole.
func (hs *hazards) replaced(old, l *schema.Resource) bool {
	change, err := envoy.ChangeOfListener(old, l)
	if err != nil || envoy.IsAPIListener(l) {
		return false // Prove reports what cannot be read; of API listeners nothing drains
	}
	if change.ReusePort {
		hs.add("reuse-port", l.Key, "give the listener another name and port, or leave enable_reuse_port as it was",
			"listener %s changes enable_reuse_port, which nodes refuse while it is there", l.Name)
	}
	switch {
	case change.ChainsOnly:
		return false
	case change.Addresses:
		hs.add("listener-drain", l.Key, "add a listener for the new address, move clients, and remove the old one then",
			"listener %s moves to another address: nothing listens at the old one any more, and its connections are drained and then closed", l.Name)
	default:
		hs.add("listener-drain", l.Key, "merge it when connections may end, or set the group's drain time",
			"listener %s is replaced whole: new connections go to the new one, those of the old one are drained and then closed", l.Name)
	}
	return true
}

// boundBy are listeners by the addresses that they bind.
func boundBy(s schema.Set) map[string]string {
	bound := map[string]string{}
	for l := range s.All() {
		addresses, _ := addressesOf(l)
		for _, a := range addresses {
			bound[a] = l.Name
		}
	}
	return bound
}

// takersOf are listeners by the addresses that they bind anew.
func takersOf(from, to schema.Set) map[string]string {
	takers := map[string]string{}
	for old, l := range schema.Diff(from, to) {
		if l == nil {
			continue
		}
		had, _ := addressesOf(old)
		has, _ := addressesOf(l)
		for _, a := range has {
			if !slices.Contains(had, a) {
				takers[a] = l.Name
			}
		}
	}
	return takers
}

// clashes finds listeners that want one address at some step, or exchange
// addresses in one.
func (hs *hazards) clashes(p *schema.Path) {
	var prev schema.Set
	for i := schema.Before; i < len(p.Stages); i++ {
		next := p.At(i).Of(schema.Listeners)
		if i >= 0 && next.Equal(prev) {
			continue
		}
		hs.clash(next)
		if i >= 0 {
			hs.exchange(prev, next)
		}
		prev = next
	}
}

func (hs *hazards) clash(s schema.Set) {
	by := map[string]string{}
	for l := range s.All() {
		addresses, _ := addressesOf(l)
		for _, a := range addresses {
			if other, ok := by[a]; ok {
				hs.add("address-clash", l.Key, "give one of them another address; to rename a listener, keep its address and change nothing else",
					"listeners %s and %s both want %s: nodes refuse the second", other, l.Name, a)
				continue
			}
			by[a] = l.Name
		}
	}
}

// exchange finds addresses that one listener takes from another in one response:
// nodes make the changes one by one, in no order.
func (hs *hazards) exchange(prev, next schema.Set) {
	takers := takersOf(prev, next)
	for old, l := range schema.Diff(prev, next) {
		if old == nil || l == nil {
			continue // removals come before all
		}
		had, _ := addressesOf(old)
		has, _ := addressesOf(l)
		for _, a := range had {
			if taker := takers[a]; taker != "" && !slices.Contains(has, a) {
				hs.add("address-clash", l.Key, "do it in two commits: first free the address, then take it",
					"listener %s takes %s from %s, which moves elsewhere in the same response: nodes that change %s first refuse it", taker, a, l.Name, taker)
			}
		}
	}
}

// fetches finds sources of configuration for which a node waits for ever, or
// longer than a stage waits for the node (rule O12).
func (hs *hazards) fetches(p *schema.Path) {
	patience := p.Target.Patience
	for _, t := range [...]schema.Type{schema.Clusters, schema.Listeners} {
		for _, r := range schema.Diff(p.From.Of(t), p.Target.Snapshot.Of(t)) {
			if r == nil {
				continue
			}
			timeouts, err := envoy.FetchTimeouts(r)
			if err != nil || len(timeouts) == 0 {
				continue
			}
			switch longest := timeouts[0]; {
			case longest == 0:
				hs.add("fetch-timeout", r.Key, "leave initial_fetch_timeout out, or set it to some seconds",
					"%s has an initial_fetch_timeout of 0: a node that starts waits for ever for what it names, and serves nothing meanwhile", r.Key)
			case patience > 0 && patience <= longest:
				hs.add("fetch-timeout", r.Key, "let the server wait longer for an ACK (--ack-wait) than initial_fetch_timeout",
					"%s may wait %s for what it names, and a step halts after %s without an ACK", r.Key, longest.Round(time.Millisecond), patience)
			}
		}
	}
}
