package main

import (
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-xds/sluice/reconcile"
)

// topIntents are the keys that change traffic.
var topIntents = map[string]string{
	"H": reconcile.Pause, "C": reconcile.Resume, "P": reconcile.Promote, "A": reconcile.Abort, "R": reconcile.Retry,
}

// key takes in a key.
func (m *topModel) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	switch {
	case m.asked != nil:
		asked := m.asked
		m.asked = nil
		if name == "y" || name == "Y" {
			m.said = asked.intent.Verb + " …"
			return m.do(asked.intent)
		}
		m.said = "nothing was done"
		return nil
	case m.typing:
		return m.typed(name, k.Text)
	case m.help:
		m.help = false
		return nil
	}
	if verb, ok := topIntents[name]; ok {
		return m.intend(verb)
	}
	m.said = ""
	list := &m.lists[m.screen]
	switch name {
	case "q":
		return tea.Quit
	case "?":
		m.help = true
	case "/":
		m.typing = true
	case "s":
		list.order++
		list.cursor = 0
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.page())
	case "pgdown", "space":
		m.move(m.page())
	case "home":
		list.cursor = 0
	case "end":
		m.move(m.length())
	case "enter", "right", "l":
		return m.open()
	case "esc", "left", "h", "backspace":
		return m.back()
	}
	return nil
}

// typed edits the filter.
func (m *topModel) typed(name, text string) tea.Cmd {
	list := &m.lists[m.screen]
	list.cursor = 0
	switch {
	case name == "enter":
		m.typing = false
	case name == "esc":
		m.typing, list.filter = false, ""
	case name == "backspace":
		_, n := utf8.DecodeLastRuneInString(list.filter)
		list.filter = list.filter[:len(list.filter)-n]
	case name == "ctrl+u":
		list.filter = ""
	default:
		list.filter += text
	}
	return m.refresh()
}

func (m *topModel) move(by int) {
	list := &m.lists[m.screen]
	list.cursor = max(0, min(m.at(m.length())+by, m.length()-1))
}

func (m *topModel) page() int { return max(1, m.height/2) }

// length is the number of rows of the screen's list.
func (m *topModel) length() int {
	switch m.screen {
	case fleetScreen:
		return len(m.fleetRows())
	case rolloutScreen:
		return len(m.nodeRows())
	}
	return len(m.typeRows())
}

// open goes one screen deeper.
func (m *topModel) open() tea.Cmd {
	switch m.screen {
	case fleetScreen:
		rows := m.fleetRows()
		if len(rows) == 0 {
			return nil
		}
		if name := rows[m.at(len(rows))].Name; name != m.group {
			m.group, m.nodes, m.lists[rolloutScreen] = name, nil, listState{}
		}
		m.screen = rolloutScreen
	case rolloutScreen:
		rows := m.nodeRows()
		if len(rows) == 0 {
			return nil
		}
		if id := rows[m.at(len(rows))].ID; id != m.nodeID {
			m.nodeID, m.node, m.lists[nodeScreen] = id, nil, listState{}
		}
		m.screen = nodeScreen
	}
	return m.refresh()
}

// back goes one screen up; a filter goes first.
func (m *topModel) back() tea.Cmd {
	if list := &m.lists[m.screen]; list.filter != "" {
		*list = listState{order: list.order}
		return m.refresh()
	}
	if m.screen > fleetScreen {
		m.screen--
	}
	return m.refresh()
}
