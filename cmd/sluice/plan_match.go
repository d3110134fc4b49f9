package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// latest is the newest that the group's nodes were led to: its match decides who
// is in the group.
func (b *planBase) latest(group string) *schema.Group {
	for _, f := range []*schema.Fleet{b.under, b.fleet} {
		if f == nil {
			continue
		}
		if g := f.Group(group); g != nil {
			return g
		}
	}
	return nil
}

// regrouped reports whether two versions of a group differ in who is in it.
func regrouped(was, is *schema.Group) bool {
	return was.Priority != is.Priority || !reflect.DeepEqual(was.Match, is.Match)
}

// regroups reports whether a plan may change which nodes are in which group.
func (in *planInput) regroups() bool {
	for i := range in.fleet.Groups {
		g := &in.fleet.Groups[i]
		base := in.groups[g.Name]
		if was := base.latest(g.Name); was == nil || regrouped(was, g) {
			return true
		}
	}
	return false
}

// leavers are the nodes that the plan's end has in no group, or in another than
// they are in, by the group that they are in.
func (in *planInput) leavers() map[string][]planLeaver {
	var before, gone []schema.Group
	for name, base := range in.groups {
		if was := base.latest(name); was != nil {
			before = append(before, *was)
			if in.fleet.Group(name) == nil {
				gone = append(gone, *was)
			}
		}
	}
	was, is := reconcile.Placing(before, nil), reconcile.Placing(in.fleet.Groups, gone)
	out := map[string][]planLeaver{}
	for _, n := range in.nodes {
		from, err := was(n)
		if err != nil {
			continue
		}
		switch to, err := is(n); {
		case err != nil:
			out[from] = append(out[from], planLeaver{ID: n.ID, Why: err.Error()})
		case to != from:
			out[from] = append(out[from], planLeaver{ID: n.ID, To: to})
		}
	}
	return out
}

// matches says of each group that it is in how its nodes change.
func (b *planBuilder) matches() {
	leavers := b.in.leavers()
	for i := range b.doc.Groups {
		row := &b.doc.Groups[i]
		g := b.in.fleet.Group(row.Name)
		if g == nil {
			continue
		}
		base := b.in.groups[row.Name]
		was, all := base.latest(row.Name), leavers[row.Name]
		if (was == nil || !regrouped(was, g)) && len(all) == 0 {
			continue
		}
		row.Match = &planMatch{Pos: g.At, Nodes: all[:min(len(all), maxDiffer)]}
		if !b.in.live {
			continue
		}
		n := planLeaving{}
		for _, l := range all {
			if l.To == "" {
				n.Ungrouped++
			} else {
				n.Moved++
			}
		}
		row.Match.Leaving = &n
	}
}

// matchNotes says who leaves a group, and what that means for them.
func matchNotes(g *planGroup) []string {
	at := ""
	if g.Match.Pos.File != "" {
		at = "  " + g.Match.Pos.Short()
	}
	n := g.Match.Leaving
	if n == nil {
		return []string{fmt.Sprintf("%s: its match changes; nodes that no group has then keep what they have%s", g.Name, at)}
	}
	var lines []string
	say := func(total int, words string, to func(l *planLeaver) string) {
		const most = 3
		var names []string
		for i := range g.Match.Nodes {
			if l := &g.Match.Nodes[i]; len(names) < most && (l.To == "") == (to == nil) {
				name := l.ID
				if to != nil {
					name += to(l)
				}
				names = append(names, name)
			}
		}
		if total == 0 {
			return
		}
		list := strings.Join(names, ", ")
		if total > len(names) {
			list += fmt.Sprintf(" and %d more", total-len(names))
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s: %s%s", g.Name, count(total, "node"), words, list, at))
	}
	say(n.Ungrouped, "will be in no group, configured as now", nil)
	say(n.Moved, "will be in another group", func(l *planLeaver) string { return " in " + l.To })
	if lines == nil {
		return []string{fmt.Sprintf("%s: its match changes, and no connected node leaves it%s", g.Name, at)}
	}
	return lines
}
