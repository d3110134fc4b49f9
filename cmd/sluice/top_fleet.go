package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-xds/sluice/reconcile"
)

// troubleOrder is which states ask for attention first.
var troubleOrder = []string{
	reconcile.Halted, reconcile.PausedState, reconcile.ParkedState, reconcile.Frozen, reconcile.RollingOut, reconcile.Unsupported, reconcile.Waiting,
	reconcile.Gone, reconcile.Converged,
}

// fleetRows are the groups as they are shown: those in trouble first, or by name.
func (m *topModel) fleetRows() []reconcile.GroupStatus {
	if m.status == nil {
		return nil
	}
	list := m.lists[fleetScreen]
	text := strings.ToLower(list.filter)
	var rows []reconcile.GroupStatus
	for _, g := range m.status.Groups {
		if strings.Contains(strings.ToLower(g.Name+" "+g.State+" "+rolloutCell(g.Rollout)+" "+g.Goal()+" "+g.Why), text) {
			rows = append(rows, g)
		}
	}
	if list.order%2 == 0 {
		slices.SortStableFunc(rows, func(a, b reconcile.GroupStatus) int {
			return cmp.Compare(slices.Index(troubleOrder, a.State), slices.Index(troubleOrder, b.State))
		})
	}
	return rows
}

var fleetColumns = []column{
	{title: "ROLLOUT", drop: 3},
	{title: "COMMIT", drop: 4},
	{title: "GROUP"},
	{title: "WAVE", drop: 7},
	{title: "STAGE", drop: 2},
	{title: "ACK", drop: 6},
	{title: "NODES", drop: 9},
	{title: "CONNECTED", drop: 10},
	{title: "AT TARGET", drop: 11},
	{title: "NACK", drop: 5},
	{title: "AGE", drop: 8},
	{title: "STATE"},
}

func (m *topModel) fleet(room int) []string {
	groups := m.fleetRows()
	at := m.at(len(groups))
	rows := make([][]cell, len(groups))
	for i := range groups {
		rows[i] = m.fleetRow(&groups[i])
	}
	title, lines := layout(m.width, fleetColumns, rows, at)
	if len(groups) == 0 {
		return []string{title, "   no groups yet"}
	}
	// Three quarters for the groups; the rest says why one stands, and what happens.
	list := min(len(lines), max(3, room*3/4))
	out := append([]string{title}, window(lines, at, min(list, room-1))...)
	if g := &groups[at]; room-len(out) > 2 {
		if why := m.trouble(g, room-len(out)-1); len(why) > 0 {
			out = append(append(out, ""), why...)
		}
	}
	return append(out, m.eventList(room-len(out), func(*reconcile.Event) bool { return true })...)
}

func (m *topModel) fleetRow(g *reconcile.GroupStatus) []cell {
	nodes := g.Connected + g.Expected
	nack, color := fmt.Sprint(g.Nacks), plain
	if g.Nacks > 0 {
		color = red
	}
	return []cell{
		{text: rolloutCell(g.Rollout)},
		{text: dash(short(g.Goal()))},
		{text: clean(g.Name)},
		{text: g.Wave.String()},
		{text: stageWord(g)},
		{text: bar(g.AtTarget, nodes)},
		{text: fmt.Sprint(nodes)},
		{text: fmt.Sprint(g.Connected)},
		{text: fmt.Sprint(g.AtTarget)},
		{text: nack, ink: color},
		{text: m.age(g)},
		stateCell(g.State),
	}
}

// stageWord is the first stage that not every node is through.
func stageWord(g *reconcile.GroupStatus) string {
	word, _, _ := strings.Cut(stageCell(g), " ")
	return word
}

// bar is how far a group is, in eighths and in numbers.
func bar(n, of int) string {
	const cells = 8
	full := 0
	if of > 0 {
		full = n * cells / of
	}
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full) + fmt.Sprintf(" %d/%d", n, of)
}

func (m *topModel) age(g *reconcile.GroupStatus) string {
	at := g.OpenedAt
	if g.Target == "" && !g.SettledAt.IsZero() {
		at = g.SettledAt
	}
	if at.IsZero() {
		return "-"
	}
	return ago(m.now.Sub(at))
}

// states are those of groups and of nodes, each a glyph and a word.
var states = map[string]cell{
	reconcile.Converged:   {"✔ converged", green},
	reconcile.RollingOut:  {"▶ rolling out", yellow},
	reconcile.Halted:      {"✖ halted", red},
	reconcile.PausedState: {"‖ paused", yellow},
	reconcile.ParkedState: {"■ parked", red},
	reconcile.Waiting:     {"◌ waiting", plain},

	reconcile.NodeAtTarget:     {"✔ at-target", green},
	reconcile.NodeBehind:       {"▶ behind", yellow},
	reconcile.NodeNacked:       {"✖ nacked", red},
	reconcile.NodeRefused:      {"✖ refused", red},
	reconcile.NodeDisconnected: {"○ disconnected", yellow},
}

func stateCell(state string) cell {
	if c, ok := states[state]; ok {
		return c
	}
	return cell{"! " + state, yellow}
}

// trouble says why a group goes no further: in the node's own words, with the line.
// Where there is little room the words give way.
func (m *topModel) trouble(g *reconcile.GroupStatus, room int) []string {
	h := g.Halt
	if h == nil {
		if g.Why == "" {
			return nil
		}
		return wrapped(" "+clean(g.Name)+"  "+clean(oneLine(g.Why)), m.width)
	}
	what, words := "HALT", h.Cause
	at := fmt.Sprintf("%s  %s", clean(h.Node), h.Stage)
	if h.Nack != nil {
		what, words = "NACK", h.Nack.Words
		if h.Stage != h.Nack.Type.String() {
			at += "  " + h.Nack.Type.String()
		}
		at += "  nonce " + clean(h.Nack.Nonce)
	}
	out := []string{" " + red.of(what) + "  " + at + "  " + ago(m.now.Sub(h.At)) + " ago"}
	said := wrapped(clean(oneLine(words)), m.width-3)
	for _, l := range said[:min(len(said), max(1, room-1-len(h.Origins)))] {
		out = append(out, "   "+l)
	}
	for _, o := range h.Origins {
		out = append(out, cyan.of(fmt.Sprintf("   → %s", o.Pos.Short()))+clean(fmt.Sprintf("  %s %s  (%s)", o.Kind, o.Name, m.blame(h.Commit))))
	}
	if g.Parked != nil {
		out = append(out, "   "+short(g.Parked.Commit)+" was aborted by "+clean(g.Parked.By)+": this is the way back from it, and R tries that again")
	}
	return out
}

// blame is a commit and, where it is known, who made it.
func (m *topModel) blame(commit string) string {
	author := ""
	if r := m.status.RolloutAt(m.status.NumberOf(commit)); r != nil {
		author = r.Author
	}
	if author == "" {
		return short(commit)
	}
	name, _, _ := strings.Cut(author, " <")
	return short(commit) + ", by " + name
}

// wrapped is a text in lines of a width; a few, as words of nodes can be long.
func wrapped(text string, width int) []string {
	const most = 4
	lines := strings.Split(ansi.Wrap(text, max(10, width), ""), "\n")
	if len(lines) > most {
		lines = append(lines[:most-1:most-1], lines[most-1]+" …")
	}
	return lines
}

// since is how long ago a time is, or a dash.
func (m *topModel) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return ago(m.now.Sub(t))
}
