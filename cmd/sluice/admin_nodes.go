package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// Conditions of a node.
const (
	nodeNacked       = "nacked"       // refuses something
	nodeBehind       = "behind"       // on its way
	nodeDisconnected = "disconnected" // was seen since the server started
	nodeRefused      = "refused"      // no group takes it, or two do
	nodeAtTarget     = "at-target"    // has accepted its group's newest routes
)

// conditions are in the order in which they ask for attention.
var conditions = []string{nodeNacked, nodeRefused, nodeBehind, nodeDisconnected, nodeAtTarget}

// nodesDocument is the answer to GET /v1/nodes.
type nodesDocument struct {
	FormatVersion string    `json:"format_version"`
	Seq           uint64    `json:"seq"`
	Total         int       `json:"total"` // that match, of which Nodes may be the first
	Nodes         []nodeRow `json:"nodes"`
}

// nodeRow is one node of the list.
type nodeRow struct {
	ID        string       `json:"id"`
	Group     string       `json:"group,omitempty"`
	Condition string       `json:"condition"`
	Why       string       `json:"why,omitempty"` // it is not at target
	Commit    string       `json:"commit,omitempty"`
	Stage     string       `json:"stage,omitempty"`
	UserAgent string       `json:"user_agent,omitempty"`
	Peer      string       `json:"peer,omitempty"`
	Nack      *schema.Nack `json:"nack,omitempty"`
	AckedAt   time.Time    `json:"acked_at,omitzero"`
	SeenAt    time.Time    `json:"seen_at,omitzero"` // last connect or disconnect
}

// nodesQuery is which nodes are asked for.
type nodesQuery struct {
	group, state, text string
	limit              int
	trouble            bool // those that ask for attention first
}

func readNodesQuery(r *http.Request) (nodesQuery, error) {
	v := r.URL.Query()
	q := nodesQuery{group: v.Get("group"), state: v.Get("state"), text: strings.ToLower(v.Get("q"))}
	if q.state != "" && !slices.Contains(conditions, q.state) {
		return q, fmt.Errorf("state=%s: want %s", q.state, strings.Join(conditions, ", "))
	}
	switch s := v.Get("sort"); s {
	case "", "id":
	case "trouble":
		q.trouble = true
	default:
		return q, fmt.Errorf("sort=%s: want id or trouble", s)
	}
	if l := v.Get("limit"); l != "" {
		n, err := strconv.Atoi(l)
		if err != nil || n < 1 {
			return q, fmt.Errorf("limit=%s: want a number above 0", l)
		}
		q.limit = n
	}
	return q, nil
}

func (a *admin) nodes(w http.ResponseWriter, r *http.Request) {
	q, err := readNodesQuery(r)
	if err != nil {
		answer(w, http.StatusBadRequest, adminError{err.Error()})
		return
	}
	st := a.loop.Status()
	if q.group != "" && groupOf(st, q.group) == nil {
		answer(w, http.StatusNotFound, adminError{fmt.Sprintf("there is no group %q: there are %s", q.group, groupNames(st))})
		return
	}
	rows := slices.DeleteFunc(a.rows(st), func(n nodeRow) bool { return !q.takes(&n) })
	if q.trouble {
		slices.SortStableFunc(rows, func(a, b nodeRow) int {
			return cmp.Compare(slices.Index(conditions, a.Condition), slices.Index(conditions, b.Condition))
		})
	}
	doc := nodesDocument{FormatVersion: reconcile.StatusFormat, Seq: st.Seq, Total: len(rows), Nodes: rows}
	if q.limit > 0 {
		doc.Nodes = rows[:min(q.limit, len(rows))]
	}
	answer(w, http.StatusOK, doc)
}

func (q *nodesQuery) takes(n *nodeRow) bool {
	return (q.group == "" || n.Group == q.group) && (q.state == "" || n.Condition == q.state) &&
		(q.text == "" || strings.Contains(strings.ToLower(n.ID+" "+n.Condition+" "+n.Why), q.text))
}

// rows lists every node that was seen since the server started, by id.
func (a *admin) rows(st *reconcile.Status) []nodeRow {
	view := a.loop.Server().View()
	newest := map[string]*schema.SessionRow{}
	for _, s := range view.Sessions() {
		newest[s.Node.ID] = s
	}
	rows := []nodeRow{}
	for _, n := range view.Nodes() {
		rows = append(rows, rowOf(st, n, newest[n.ID]))
	}
	return rows
}

func rowOf(st *reconcile.Status, n *schema.NodeRow, s *schema.SessionRow) nodeRow {
	row := nodeRow{ID: n.ID, Group: n.Group, UserAgent: n.UserAgent, SeenAt: n.SeenAt}
	switch {
	case n.Refusal != "":
		row.Condition, row.Why = nodeRefused, n.Refusal
		return row
	case s == nil:
		row.Condition, row.Why = nodeDisconnected, "no session since "+n.SeenAt.Format(time.TimeOnly)
		return row
	}
	row.Group, row.Commit, row.Peer, row.Nack, row.AckedAt = s.Group, s.Commit, s.Peer, s.Nack, s.AckedAt
	if k, ok := s.Stage(); ok {
		row.Stage = k.String()
	}
	g := groupOf(st, s.Group)
	switch {
	case s.Nack != nil:
		row.Condition, row.Why = nodeNacked, fmt.Sprintf("%s refused: %s", s.Nack.Type, oneLine(s.Nack.Words))
	case g != nil && s.Converged && s.Commit == goal(g):
		row.Condition = nodeAtTarget
	default:
		row.Condition, row.Why = nodeBehind, whyBehind(s, g)
	}
	return row
}

// goal is the commit that a group's nodes should be at.
func goal(g *reconcile.GroupStatus) string { return cmp.Or(g.Target, g.Base) }

func whyBehind(s *schema.SessionRow, g *reconcile.GroupStatus) string {
	switch {
	case !s.Planned:
		return "has asked for nothing yet"
	case s.Step.Cause == schema.Held && g != nil && g.Paused != nil:
		return "held: paused by " + g.Paused.By
	case s.Step.Cause == schema.Held && g != nil && g.Halt != nil:
		return "held: its group is halted by " + g.Halt.Node
	case s.Step.Verdict == schema.Done && g != nil:
		return fmt.Sprintf("is at %s: its group is %s", short(s.Commit), g.State)
	}
	return s.Step.String()
}

func groupOf(st *reconcile.Status, name string) *reconcile.GroupStatus {
	for i := range st.Groups {
		if st.Groups[i].Name == name {
			return &st.Groups[i]
		}
	}
	return nil
}

func groupNames(st *reconcile.Status) string {
	var names []string
	for i := range st.Groups {
		names = append(names, st.Groups[i].Name)
	}
	if len(names) == 0 {
		return "none yet"
	}
	return strings.Join(names, ", ")
}
