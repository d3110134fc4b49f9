package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// nodeRows are the nodes of the rollout screen: those in trouble first, or by id,
// or the longest without an ACK.
func (m *topModel) nodeRows() []nodeRow {
	if m.nodes == nil {
		return nil
	}
	text := strings.ToLower(m.lists[rolloutScreen].filter)
	var rows []nodeRow
	for _, n := range m.nodes.Nodes {
		// The server has filtered already, but perhaps by what was typed before.
		if strings.Contains(strings.ToLower(n.ID+" "+n.State+" "+n.Why), text) {
			rows = append(rows, n)
		}
	}
	switch m.lists[rolloutScreen].order % 3 {
	case 1:
		slices.SortStableFunc(rows, func(a, b nodeRow) int { return cmp.Compare(a.ID, b.ID) })
	case 2:
		slices.SortStableFunc(rows, func(a, b nodeRow) int { return a.AckedAt.Compare(b.AckedAt) })
	}
	return rows
}

var nodeColumns = []column{
	{title: "NODE"},
	{title: "STAGE", drop: 2},
	{title: "COMMIT", drop: 4},
	{title: "ACKED", drop: 3},
	{title: "STATE"},
	{title: "WHY", drop: 1, flex: true},
}

func (m *topModel) rollout(room int) []string {
	g := m.status.Group(m.group)
	if g == nil {
		return []string{"", " there is no group " + clean(m.group) + " any more: esc goes back"}
	}
	state := stateCell(g.State)
	right := state.ink.of(state.text)
	switch {
	case g.Halt != nil:
		right += " " + m.since(g.Halt.At)
	case g.Target != "":
		right += " " + m.since(g.OpenedAt)
	}
	out := []string{m.sides(fmt.Sprintf(" %s › %s  %s", bold.of(rolloutCell(g.Rollout)), cyan.of(dash(short(g.Goal()))), clean(m.group)), right)}
	if room >= 12 {
		out = append(out, m.stageTable(g, room/3)...)
	}
	out = append(out, m.trouble(g, room/3)...)
	nodes := m.nodeRows()
	at := m.at(len(nodes))
	switch {
	case m.nodes == nil:
		return append(out, "", "   asking for the nodes")
	case len(nodes) == 0:
		return append(out, "", "   no nodes")
	}
	from, to := visible(len(nodes), at, max(1, room-len(out)-2))
	title, lines := layout(m.width, nodeColumns, m.nodeCells(nodes[from:to]), at-from)
	out = append(append(out, title), lines...)
	if more := m.nodes.Total - len(nodes); more > 0 {
		return append(out, dim.of(fmt.Sprintf("   … and %d more: / finds them", more)))
	}
	return append(out, m.eventList(room-len(out), func(e *reconcile.Event) bool { return e.Group == m.group })...)
}

func (m *topModel) nodeCells(nodes []nodeRow) [][]cell {
	rows := make([][]cell, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		rows[i] = []cell{
			{text: clean(n.ID)},
			{text: dash(n.Stage)},
			{text: dash(short(n.Commit))},
			{text: m.since(n.AckedAt)},
			stateCell(n.State),
			{text: clean(n.Why)},
		}
	}
	return rows
}

// stageTable is how far each group is that goes to the same commit, by stage.
func (m *topModel) stageTable(here *reconcile.GroupStatus, room int) []string {
	var kinds []schema.StageKind
	var groups []*reconcile.GroupStatus
	for i := range m.status.Groups {
		g := &m.status.Groups[i]
		if g.Goal() != here.Goal() || len(g.Stages) == 0 {
			continue
		}
		groups = append(groups, g)
		for _, s := range g.Stages {
			if !slices.Contains(kinds, s.Stage) {
				kinds = append(kinds, s.Stage)
			}
		}
	}
	if len(groups) == 0 {
		return nil
	}
	slices.Sort(kinds)
	columns := []column{{}, {drop: len(kinds) + 2}}
	for i, k := range kinds {
		columns = append(columns, column{title: k.String(), drop: i + 1})
	}
	columns = append(columns, column{})
	at := 0
	var rows [][]cell
	for i, g := range groups {
		row := []cell{{text: clean(g.Name)}, {text: g.Wave.String()}}
		for _, k := range kinds {
			row = append(row, stageCellOf(g, k))
		}
		mark := ""
		if g.Name == here.Name {
			at, mark = i, "◀ here"
		}
		rows = append(rows, append(row, cell{text: mark}))
	}
	title, lines := layout(m.width, columns, rows, -1)
	return append([]string{title}, window(lines, at, room)...)
}

// stageCellOf is a group's count at a stage, with a glyph.
func stageCellOf(g *reconcile.GroupStatus, k schema.StageKind) cell {
	for _, s := range g.Stages {
		if s.Stage != k {
			continue
		}
		n := fmt.Sprintf("%d/%d", s.Acked, s.Of)
		switch {
		case s.Acked == s.Of:
			return cell{"✔ " + n, green}
		case g.Halt != nil && g.Halt.Stage == k.String():
			return cell{"✖ " + n, red}
		case s.Acked > 0:
			return cell{"▶ " + n, yellow}
		case k >= schema.Unlisten && g.State == reconcile.Converged:
			return cell{"◌ " + n, plain}
		}
		return cell{"· " + n, plain}
	}
	return cell{text: "-"}
}
