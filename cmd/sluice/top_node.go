package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// typeRows are the types of the node's newest session: in the order in which they
// are made, or those in trouble first.
func (m *topModel) typeRows() []nodeType {
	if m.node == nil || len(m.node.Sessions) == 0 {
		return nil
	}
	list := m.lists[nodeScreen]
	text := strings.ToLower(list.filter)
	var rows []nodeType
	for _, t := range m.node.Sessions[0].Types {
		if strings.Contains(t.Type.String()+" "+t.State, text) {
			rows = append(rows, t)
		}
	}
	if list.order%2 == 1 {
		order := []string{"nacked", "ignored", "unacked", "pending", "later stage", "acked"}
		slices.SortStableFunc(rows, func(a, b nodeType) int {
			return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
		})
	}
	return rows
}

var typeColumns = []column{
	{title: "TYPE"},
	{title: "ACKED", drop: 1},
	{title: "SERVED", drop: 2},
	{title: "DESIRED", drop: 1},
	{title: "HELD", drop: 3},
	{title: "STATE"},
}

func (m *topModel) nodeView(room int) []string {
	n := m.node
	if n == nil {
		return []string{"", " asking for node " + clean(m.nodeID)}
	}
	state := stateCell(n.State)
	out := []string{m.sides(fmt.Sprintf(" %s%s › %s", m.rolloutOf(n.Group), clean(dash(n.Group)), bold.of(clean(n.ID))), state.ink.of(state.text))}
	facts := []string{dash(n.UserAgent)}
	if len(n.Sessions) > 0 {
		s := &n.Sessions[0]
		facts = append(facts, "connected "+m.since(s.Connected), s.Peer, "at "+dash(short(s.Commit)))
		if len(n.Sessions) > 1 {
			facts = append(facts, count(len(n.Sessions), "session"))
		}
	}
	out = append(out, dim.of(" "+clean(strings.Join(facts, "  "))))
	if n.Why != "" && (len(n.Sessions) == 0 || n.Sessions[0].Nack == nil) {
		out = append(out, yellow.of(" "+clean(oneLine(n.Why))))
	}
	types := m.typeRows()
	if len(types) == 0 {
		return append(out, "", "   it has asked for nothing")
	}
	at := m.at(len(types))
	rows := make([][]cell, len(types))
	for i := range types {
		t := &types[i]
		rows[i] = []cell{{text: t.Type.String()}, {text: brief(t.Acked)}, {text: brief(t.Served)}, {text: brief(t.Desired)}, {text: fmt.Sprint(t.Held)}, typeCell(t.State)}
	}
	title, lines := layout(m.width, typeColumns, rows, at)
	out = append(append(out, title), window(lines, at, max(1, room-len(out)-3))...)
	out = append(out, m.refusal()...)
	return append(out, m.resources(&types[at])...)
}

// rolloutOf is how the way to a node's group begins: with its rollout.
func (m *topModel) rolloutOf(group string) string {
	if m.status == nil {
		return ""
	}
	if g := m.status.Group(group); g != nil && g.Rollout != 0 {
		return g.Rollout.String() + " › "
	}
	return ""
}

// refusal is what the node said, and the lines that it means.
func (m *topModel) refusal() []string {
	s := &m.node.Sessions[0]
	if s.Nack == nil {
		return nil
	}
	out := []string{" " + red.of("NACK") + clean(fmt.Sprintf("  %s  nonce %s  %s ago", s.Nack.Type, s.Nack.Nonce, m.since(s.Nack.At)))}
	for _, l := range wrapped(clean(oneLine(s.Nack.Words)), m.width-3) {
		out = append(out, "   "+l)
	}
	for _, o := range s.Origins {
		out = append(out, cyan.of("   → "+o.Pos.Short())+clean(fmt.Sprintf("  %s %s  (%s)", o.Kind, o.Name, m.blame(s.Commit))))
	}
	return out
}

// resources are those of the chosen type that are not as they should be, with
// what differs.
func (m *topModel) resources(t *nodeType) []string {
	var out []string
	same, all := 0, 0
	for i := range t.Resources {
		r := &t.Resources[i]
		if r.Acked == "" && r.Desired == "" {
			continue // was served, and is gone
		}
		all++
		if r.Acked == r.Desired {
			same++
			continue
		}
		what := "acked → desired, " + r.State
		switch {
		case r.Acked == "":
			what = "to be added, " + r.State
		case r.Desired == "":
			what = "to be removed, " + r.State
		}
		where := ""
		if r.Origin != nil {
			where = cyan.of(r.Origin.Pos.Short())
		}
		out = append(out, m.sides(" "+bold.of(clean(t.Type.String()+"/"+r.Name))+"  "+what, where))
		for _, c := range r.Changes {
			out = append(out, "     "+clean(c.Path))
			if c.Before != "" {
				out = append(out, red.of(" -   "+clean(c.Before)))
			}
			if c.After != "" {
				out = append(out, green.of(" +   "+clean(c.After)))
			}
		}
	}
	if same > 0 {
		out = append(out, dim.of(fmt.Sprintf(" %d of %d %s as they should be", same, all, t.Type)))
	}
	return out
}

func typeCell(state string) cell {
	switch state {
	case "acked":
		return cell{"✔ acked", green}
	case "nacked":
		return cell{"✖ nacked", red}
	case "later stage":
		return cell{"· later stage", plain}
	case "ignored":
		return cell{"! ignored", yellow}
	}
	return cell{"▶ " + state, yellow}
}
