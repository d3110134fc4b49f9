package main

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-xds/sluice/reconcile"
)

// The smallest terminal that is drawn in, and the width below which columns give
// way to one.
const (
	leastWidth  = 40
	leastHeight = 10
	oneColumn   = 60
)

// View draws the model.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "sluice top"
	return v
}

// lines are the rows of the screen: as many as it has, none longer than it.
func (m *topModel) lines() []string {
	if m.width <= 0 || m.height <= 0 {
		return nil
	}
	if m.width < leastWidth || m.height < leastHeight {
		text := fmt.Sprintf("the terminal is %d×%d: sluice top needs %d×%d", m.width, m.height, leastWidth, leastHeight)
		rows := strings.Split(ansi.Wrap(text, m.width, ""), "\n")
		return rows[:min(len(rows), m.height)]
	}
	head := m.head()
	room := m.height - len(head) - 1
	var body []string
	switch {
	case m.help:
		body = helpLines
	case m.asked != nil:
		body = m.question()
	case m.status == nil:
		body = []string{"", " waiting for the server"}
	case m.screen == rolloutScreen:
		body = m.rollout(room)
	case m.screen == nodeScreen:
		body = m.nodeView(room)
	default:
		body = m.fleet(room)
	}
	all := append(head, body[:min(len(body), room)]...)
	for len(all) < m.height-1 {
		all = append(all, "")
	}
	all = append(all, m.foot())
	for i := range all {
		all[i] = fit(all[i], m.width)
	}
	return all
}

// sides puts one text at the left and another at the right of a row.
func (m *topModel) sides(left, right string) string {
	room := m.width - ansi.StringWidth(right) - 1
	return pad(fit(left, room-1), room) + right
}

func (m *topModel) head() []string {
	right := green.of("● live") + "  " + m.now.Format(time.TimeOnly)
	if m.away != "" {
		right = red.of("○ away") + "  " + m.now.Format(time.TimeOnly)
	}
	left := bold.of(" sluice")
	if m.status != nil {
		s := &m.status.Source
		at := s.Branch
		if s.Commit != "" {
			at = strings.TrimPrefix(at+"@"+short(s.Commit), "@")
		}
		left += "  " + cyan.of(clean(at)) + "  " + clean(s.Subject)
	}
	head := []string{m.sides(left, right)}
	switch {
	case m.away != "":
		head = append(head, red.of(" ! the server is away, and what is shown is old: "+clean(m.away)))
	case m.status == nil:
	case m.status.StoreError != "":
		head = append(head, red.of(" ! nothing new is served: "+clean(m.status.StoreError)))
	case m.status.Rejected != nil:
		r := m.status.Rejected
		head = append(head, red.of(fmt.Sprintf(" ! commit %s is rejected: %s", short(r.Commit), clean(oneLine(r.Why)))))
	case m.status.Source.Error != "":
		head = append(head, yellow.of(" ! "+clean(oneLine(m.status.Source.Error))))
	}
	if m.note != "" {
		head = append(head, cyan.of(" demo")+"  "+clean(m.note))
	}
	return head
}

func (m *topModel) foot() string {
	list := &m.lists[m.screen]
	switch {
	case m.typing:
		return " /" + clean(list.filter) + "█   ⏎ keep  esc drop"
	case m.asked != nil:
		return bold.of(" y yes  any other key no")
	case m.said != "":
		return yellow.of(" " + clean(oneLine(m.said)))
	}
	keys := " ↑/↓ move  ⏎ open  esc back  / filter  s sort"
	if list.filter != "" {
		keys = " / " + clean(list.filter) + "  esc drop  ⏎ open"
	}
	if m.width < oneColumn {
		return dim.of(" ⏎ open  esc back  ? help  q quit")
	}
	return dim.of(keys + "  R retry  A abort  ? help  q quit")
}

var helpLines = []string{
	"",
	" look                          act (asks first)",
	"   ↑ ↓ k j    move               H  pause: nothing new is served",
	"   pgup pgdn  a page             C  resume",
	"   ⏎ → l      open               A  abort: walk back, and park",
	"   esc ← h    back               R  retry what was refused",
	"   /          filter             P  promote a wave that waits",
	"   s          sort",
	"   q          quit the UI, and never a rollout",
	"",
	" ✔ at target  ▶ rolling out  ✖ halted  ‖ paused  ■ parked  ◌ waiting",
	" A finished rollout is undone in Git: git revert COMMIT",
}

func (m *topModel) question() []string {
	out := []string{""}
	lines := strings.Split(strings.TrimSuffix(questionOf(m.asked.would), " [y/N] "), "\n")
	for _, l := range lines {
		out = append(out, strings.Split(ansi.Wrap(clean(l), max(10, m.width-4), ""), "\n")...)
	}
	for i := 1; i < len(out); i++ {
		out[i] = "  " + out[i]
	}
	last := len(out) - 1
	out[last] = bold.of(out[last])
	return append(out, "", "  y yes   any other key no")
}

// eventList shows the newest events, as many as there is room for.
func (m *topModel) eventList(room int, takes func(*reconcile.Event) bool) []string {
	if room < 3 {
		return nil
	}
	var lines []string
	for i := len(m.events) - 1; i >= 0 && len(lines) < room-2; i-- {
		if e := &m.events[i]; takes(e) {
			lines = append(lines, " "+dim.of(e.At.Local().Format(time.TimeOnly))+"  "+inkOf(e.Kind).of(clean(eventText(e))))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"", dim.of(" EVENTS")}, lines...)
}

func inkOf(kind string) ink {
	switch kind {
	case reconcile.EventHalted, reconcile.EventNack, reconcile.EventRejected:
		return red
	case reconcile.EventConverged:
		return green
	case reconcile.EventIntent:
		return cyan
	case eventGap:
		return yellow
	}
	return plain
}

// cleanLines is clean for a text of more than one line.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// clean takes out of foreign words what a terminal would obey.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			return '·'
		}
		return r
	}, s)
}
