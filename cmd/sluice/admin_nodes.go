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
	State     string       `json:"state"`
	Why       string       `json:"why,omitempty"` // it is not at target
	Commit    string       `json:"commit,omitempty"`
	Stage     string       `json:"stage,omitempty"`
	UserAgent string       `json:"user_agent,omitempty"`
	Peer      string       `json:"peer,omitempty"`
	Nack      *schema.Nack `json:"nack,omitempty"`
	AckedAt   time.Time    `json:"acked_at,omitzero"`
	SeenAt    time.Time    `json:"seen_at,omitzero"` // last connect or disconnect
	Twins     []string     `json:"twins,omitempty"`  // hosts that share the id, and must not
	nodeIdentity
}

// nodeIdentity is what a node says of itself beside its id. A list has it if it is
// asked for.
type nodeIdentity struct {
	Cluster  string            `json:"cluster,omitempty"`
	Zone     string            `json:"zone,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// nodesQuery is which nodes are asked for.
type nodesQuery struct {
	group, state, text string
	limit              int
	trouble            bool // those that ask for attention first
	identity           bool // with it
}

func readNodesQuery(r *http.Request) (nodesQuery, error) {
	v := r.URL.Query()
	q := nodesQuery{group: v.Get("group"), state: v.Get("state"), text: strings.ToLower(v.Get("q"))}
	if q.state != "" && !slices.Contains(reconcile.NodeStates, q.state) {
		return q, fmt.Errorf("state=%s: want %s", q.state, strings.Join(reconcile.NodeStates, ", "))
	}
	switch s := v.Get("sort"); s {
	case "", "id":
	case "trouble":
		q.trouble = true
	default:
		return q, fmt.Errorf("sort=%s: want id or trouble", s)
	}
	switch s := v.Get("identity"); s {
	case "", "false":
	case "true":
		q.identity = true
	default:
		return q, fmt.Errorf("identity=%s: want true or false", s)
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
	if q.group != "" && st.Group(q.group) == nil {
		answer(w, http.StatusNotFound, adminError{fmt.Sprintf("there is no group %q: there are %s", q.group, groupNames(st))})
		return
	}
	rows := slices.DeleteFunc(a.rows(st), func(n nodeRow) bool { return !q.takes(&n) })
	if q.trouble {
		slices.SortStableFunc(rows, func(a, b nodeRow) int {
			return cmp.Compare(slices.Index(reconcile.NodeStates, a.State), slices.Index(reconcile.NodeStates, b.State))
		})
	}
	doc := nodesDocument{FormatVersion: reconcile.StatusFormat, Seq: st.Seq, Total: len(rows), Nodes: rows}
	if q.limit > 0 {
		doc.Nodes = rows[:min(q.limit, len(rows))]
	}
	if !q.identity {
		for i := range doc.Nodes {
			doc.Nodes[i].nodeIdentity = nodeIdentity{}
		}
	}
	answer(w, http.StatusOK, doc)
}

func (q *nodesQuery) takes(n *nodeRow) bool {
	return (q.group == "" || n.Group == q.group) && (q.state == "" || n.State == q.state) &&
		(q.text == "" || strings.Contains(strings.ToLower(n.ID+" "+n.State+" "+n.Why), q.text))
}

// rows lists every node that was seen since the server started, or is awaited, by
// id.
func (a *admin) rows(st *reconcile.Status) []nodeRow {
	newest := map[string]*reconcile.NodeStatus{}
	for i := range st.Nodes {
		newest[st.Nodes[i].ID] = &st.Nodes[i]
	}
	rows := []nodeRow{}
	for _, n := range a.loop.Server().View().Nodes() {
		rows = append(rows, rowOf(n, newest[n.ID]))
	}
	for i := range st.Awaited() {
		rows = append(rows, awaitedRow(&st.Awaited()[i]))
	}
	slices.SortFunc(rows, func(a, b nodeRow) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}

// rowOf is a node by what the ledger has of it, and the status of its newest
// session if there is one.
func rowOf(n *schema.NodeRow, s *reconcile.NodeStatus) nodeRow {
	row := nodeRow{ID: n.ID, Group: n.Group, UserAgent: n.UserAgent, SeenAt: n.SeenAt, Twins: n.Twins, nodeIdentity: nodeIdentity{n.Cluster, n.Zone, n.Metadata}}
	switch {
	case n.Refusal != "":
		row.State, row.Why = reconcile.NodeRefused, n.Refusal+"; last seen "+clock(n.SeenAt)
		return row
	case s == nil && n.Sessions > 0:
		row.State, row.Why = reconcile.NodeBehind, "has asked for nothing yet"
		return row
	case s == nil || n.Sessions == 0:
		row.State, row.Why = reconcile.NodeDisconnected, "no session since "+clock(n.SeenAt)
		return row
	}
	row.Group, row.Commit, row.Peer, row.Nack, row.AckedAt = s.Group, s.Commit, s.Peer, s.Nack, s.AckedAt
	row.Stage, row.State, row.Why = s.Stage, s.State, s.Why
	if len(n.Twins) > 1 {
		row.Why = strings.TrimPrefix(row.Why+"; two nodes use this id, at "+strings.Join(n.Twins, " and ")+": give each its own", "; ")
	}
	return row
}

// awaitedRow is a node that was connected before a restart, and is not yet back.
func awaitedRow(n *reconcile.Awaited) nodeRow {
	return nodeRow{ID: n.ID, Group: n.Group, State: reconcile.NodeDisconnected, Why: "was connected before the restart; waited for until " + clock(n.Until)}
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
