package main

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-xds/sluice/reconcile"
)

// topScreen is one of the three.
type topScreen int

const (
	fleetScreen topScreen = iota
	rolloutScreen
	nodeScreen
	topScreens
)

// topModel is all that the UI knows. Update is a function of it and a message, and
// View of it alone.
type topModel struct {
	client *adminClient // asked by commands alone; nil in tests

	width, height int
	now           time.Time
	status        *reconcile.Status
	away          string // why the server does not answer
	events        []reconcile.Event
	nodes         *nodesDocument // of the rollout screen's group
	node          *nodeDocument

	screen topScreen
	group  string // of the rollout screen
	nodeID string // of the node screen
	lists  [topScreens]listState
	typing bool // into the filter
	help   bool
	asked  *topAsked // waits for yes or no
	said   string    // the answer to the last intent, or what went wrong
	note   string    // of the demo, about its load
}

// listState is where somebody is in a list.
type listState struct {
	cursor int
	filter string
	order  int // how it is sorted
}

// topAsked is an intent that waits for a yes.
type topAsked struct {
	intent reconcile.Intent
	would  *reconcile.Outcome
}

// What commands bring back.
type (
	tickMsg  time.Time
	noteMsg  string
	nodesMsg struct {
		group string
		doc   *nodesDocument
		err   error
	}
	nodeMsg struct {
		id  string
		doc *nodeDocument
		err error
	}
	askedMsg struct {
		asked topAsked
		err   error
	}
	doneMsg struct {
		out *reconcile.Outcome
		err error
	}
)

// Bounds of what the model keeps, and how long a command may take.
const (
	topEvents  = 500
	topNodes   = 500
	topTimeout = 10 * time.Second
)

func newTopModel(c *adminClient) *topModel { return &topModel{client: c, now: time.Now()} }

// Init begins the clock.
func (m *topModel) Init() tea.Cmd { return tick() }

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Update takes in one message.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		m.now = time.Time(msg)
		return m, tick()
	case statusMsg:
		m.status, m.away = msg.status, ""
		return m, m.refresh()
	case eventsMsg:
		m.events = append(m.events, msg...)
		m.events = slices.Clone(m.events[max(0, len(m.events)-topEvents):])
	case awayMsg:
		m.away = msg.why
	case noteMsg:
		m.note = string(msg)
	case nodesMsg:
		m.takeNodes(msg)
	case nodeMsg:
		m.takeNode(msg)
	case askedMsg:
		if m.said = ""; msg.err != nil {
			m.said = msg.err.Error()
			return m, nil
		}
		m.asked = &msg.asked
	case doneMsg:
		if msg.err != nil {
			m.said = msg.err.Error()
			return m, nil
		}
		g := msg.out.Groups[0]
		m.said = msg.out.Verb + " " + g.Group + ": " + g.Words
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.typing {
			m.lists[m.screen].filter += msg.Content
		}
	}
	return m, nil
}

func (m *topModel) takeNodes(msg nodesMsg) {
	if msg.group != m.group {
		return
	}
	if msg.err != nil {
		m.said = msg.err.Error()
		return
	}
	m.nodes = msg.doc
}

func (m *topModel) takeNode(msg nodeMsg) {
	if msg.id != m.nodeID {
		return
	}
	if msg.err != nil {
		m.said = msg.err.Error()
		return
	}
	m.node = msg.doc
}

// refresh asks for what the screen shows beside the status.
func (m *topModel) refresh() tea.Cmd {
	if m.client == nil {
		return nil
	}
	c := m.client
	switch m.screen {
	case rolloutScreen:
		group := m.group
		q := url.Values{"group": {group}, "sort": {"trouble"}, "limit": {strconv.Itoa(topNodes)}}
		if f := m.lists[rolloutScreen].filter; f != "" {
			q.Set("q", f)
		}
		return func() tea.Msg {
			ctx, cancel := context.WithTimeout(context.Background(), topTimeout)
			defer cancel()
			doc, err := c.nodes(ctx, q)
			return nodesMsg{group, doc, err}
		}
	case nodeScreen:
		id := m.nodeID
		return func() tea.Msg {
			ctx, cancel := context.WithTimeout(context.Background(), topTimeout)
			defer cancel()
			doc, err := c.node(ctx, id)
			return nodeMsg{id, doc, err}
		}
	}
	return nil
}

// intend asks what an intent would do.
func (m *topModel) intend(verb string) tea.Cmd {
	in := reconcile.Intent{Verb: verb, Group: m.chosenGroup()}
	if in.Group == "" {
		m.said = "choose a group first"
		return nil
	}
	if m.client == nil {
		return nil
	}
	c := m.client
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), topTimeout)
		defer cancel()
		dry := in
		dry.DryRun = true
		would, err := c.intend(ctx, dry)
		if err == nil {
			in.Commit = would.Groups[0].Commit
		}
		return askedMsg{topAsked{in, would}, err}
	}
}

// do does what was asked and answered with yes.
func (m *topModel) do(in reconcile.Intent) tea.Cmd {
	if m.client == nil {
		return nil
	}
	c := m.client
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), topTimeout)
		defer cancel()
		out, err := c.intend(ctx, in)
		return doneMsg{out, err}
	}
}

// chosenGroup is the group that an intent is about.
func (m *topModel) chosenGroup() string {
	switch m.screen {
	case fleetScreen:
		if rows := m.fleetRows(); len(rows) > 0 {
			return rows[m.at(len(rows))].Name
		}
		return ""
	case nodeScreen:
		if m.node != nil {
			return m.node.Group
		}
	}
	return m.group
}

// at is the cursor within a list of n.
func (m *topModel) at(n int) int { return max(0, min(m.lists[m.screen].cursor, n-1)) }
