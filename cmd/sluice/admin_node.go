package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// nodeDocument is the answer to GET /v1/nodes/ID.
type nodeDocument struct {
	FormatVersion string `json:"format_version"`
	Seq           uint64 `json:"seq"`
	nodeRow
	Sessions []nodeSession `json:"sessions"` // the newest first
}

// nodeSession is one generation of the node's process.
type nodeSession struct {
	ID        schema.SessionID `json:"id"`
	Peer      string           `json:"peer"`
	Connected time.Time        `json:"connected"`
	Commit    string           `json:"commit"` // that it is led to
	Stage     string           `json:"stage,omitempty"`
	Stages    []sessionStage   `json:"stages"`
	State     string           `json:"state"`
	Converged bool             `json:"converged"`
	AckedAt   time.Time        `json:"acked_at,omitzero"`
	Nack      *schema.Nack     `json:"nack,omitempty"`
	// Origins are the lines that the NACK is about.
	Origins []schema.Origin `json:"origins,omitempty"`
	Types   []nodeType      `json:"types"`
}

type sessionStage struct {
	Stage schema.StageKind `json:"stage"`
	Done  bool             `json:"done"`
}

// nodeType is one type of a session: three versions, of sets of resources.
type nodeType struct {
	Type      schema.Type    `json:"type"`
	Acked     schema.Version `json:"acked"`   // what the client accepted
	Served    schema.Version `json:"served"`  // of the newest response
	Desired   schema.Version `json:"desired"` // at the end of the rollout
	State     string         `json:"state"`
	Names     int            `json:"names"`    // asked for by name
	Wildcard  bool           `json:"wildcard"` // asks for everything
	Held      int            `json:"held"`     // resources acknowledged
	SentAt    time.Time      `json:"sent_at,omitzero"`
	AckedAt   time.Time      `json:"acked_at,omitzero"`
	Nack      *schema.Nack   `json:"nack,omitempty"`
	Resources []nodeResource `json:"resources"`
}

// nodeResource is one resource of a session. Empty versions: not there.
type nodeResource struct {
	Name    string         `json:"name"`
	Acked   schema.Version `json:"acked,omitempty"`
	Served  schema.Version `json:"served,omitempty"`
	Desired schema.Version `json:"desired,omitempty"`
	// State is in the words of the type's: why it is not as it should be.
	State  string         `json:"state"`
	Origin *schema.Origin `json:"origin,omitempty"` // the line of the whole of it
	// Changes lead from what was acknowledged to what is desired.
	Changes []resourceChange `json:"changes,omitempty"`
}

type resourceChange struct {
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

func (a *admin) node(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	st := a.loop.Status()
	view := a.loop.Server().View()
	nodes := view.Nodes()
	i := slices.IndexFunc(nodes, func(n *schema.NodeRow) bool { return n.ID == id })
	if i < 0 {
		if j := slices.IndexFunc(st.Awaited(), func(n reconcile.Awaited) bool { return n.ID == id }); j >= 0 {
			answer(w, http.StatusOK, nodeDocument{FormatVersion: reconcile.StatusFormat, Seq: st.Seq, nodeRow: awaitedRow(&st.Awaited()[j]), Sessions: []nodeSession{}})
			return
		}
		var known []string
		for _, n := range nodes {
			known = append(known, n.ID)
		}
		answer(w, http.StatusNotFound, adminError{fmt.Sprintf("no node %q was seen since the server started%s; see sluice nodes", id, meant("", id, known))})
		return
	}
	n := nodes[i]
	var sessions []*schema.SessionRow
	for _, s := range view.Sessions() {
		if s.Node.ID == id {
			sessions = append(sessions, s)
		}
	}
	slices.Reverse(sessions)
	var newest *reconcile.NodeStatus
	if j := slices.IndexFunc(st.Nodes, func(n reconcile.NodeStatus) bool { return n.ID == id }); j >= 0 {
		newest = &st.Nodes[j]
	}
	doc := nodeDocument{
		FormatVersion: reconcile.StatusFormat, Seq: st.Seq, nodeRow: rowOf(n, newest), Sessions: []nodeSession{},
	}
	for _, s := range sessions {
		doc.Sessions = append(doc.Sessions, sessionOf(st, s, view.Types(s.ID)))
	}
	answer(w, http.StatusOK, doc)
}

func sessionOf(st *reconcile.Status, s *schema.SessionRow, types []*schema.TypeRow) nodeSession {
	doc := nodeSession{
		ID: s.ID, Peer: s.Peer, Connected: s.Connected, Commit: s.Commit, State: s.Step.String(), Converged: s.Converged,
		AckedAt: s.AckedAt, Nack: s.Nack, Stages: []sessionStage{}, Types: []nodeType{},
	}
	if k, ok := s.Stage(); ok {
		doc.Stage = k.String()
	}
	for i, k := range s.Stages {
		doc.Stages = append(doc.Stages, sessionStage{k, s.Through(i)})
	}
	known := newKnown(st, s, types)
	if g := st.Group(s.Group); s.Nack != nil && g != nil {
		doc.Origins = known.blame(s.Nack, g)
	}
	for _, row := range types {
		doc.Types = append(doc.Types, known.typeOf(row))
	}
	return doc
}

// mostChanges bounds what is shown of one resource.
const mostChanges = 40

func (k *known) typeOf(row *schema.TypeRow) nodeType {
	doc := nodeType{
		Type: row.Type, Acked: row.Acked, Served: row.Served, Names: row.Names, Wildcard: row.Wildcard, Held: row.Held,
		SentAt: row.SentAt, AckedAt: row.AckedAt, Nack: row.Nack, Resources: []nodeResource{},
	}
	acked, served, desired := row.AckedSet, row.ServedSet, k.desired(row.Type)
	doc.Desired = desired.Version()
	doc.State = typeState(row, doc.Desired)
	names := map[string]bool{}
	for _, set := range []schema.Set{acked, served, desired} {
		for r := range set.All() {
			names[r.Name] = true
		}
	}
	for _, name := range sortedNames(names) {
		a, s, d := acked.Get(name), served.Get(name), desired.Get(name)
		res := nodeResource{Name: name, Acked: versionOf(a), Served: versionOf(s), Desired: versionOf(d), Origin: k.origin(schema.Key{Type: row.Type, Name: name})}
		res.State = resourceState(row, &res)
		if res.Acked != res.Desired && row.Type != schema.Secrets {
			res.Changes = changesOf(a, d)
		}
		doc.Resources = append(doc.Resources, res)
	}
	return doc
}

func versionOf(r *schema.Resource) schema.Version {
	if r == nil {
		return ""
	}
	return r.Version
}

// resourceState is typeState for one resource.
func resourceState(row *schema.TypeRow, r *nodeResource) string {
	switch {
	case r.Acked == r.Desired:
		return "acked"
	case row.Nack != nil && slices.Contains(row.Nack.Names, r.Name):
		return "nacked"
	case r.Acked == r.Served:
		return "later stage"
	case row.Ignored:
		return "ignored"
	case row.InFlight:
		return "unacked"
	}
	return "pending"
}

// typeState says of a type where it is on the way to what is desired.
func typeState(row *schema.TypeRow, desired schema.Version) string {
	switch {
	case row.Nack != nil:
		return "nacked"
	case row.Ignored:
		return "ignored"
	case row.InFlight:
		return "unacked"
	case row.Acked != row.Desired:
		return "pending"
	case row.Acked != desired:
		return "later stage"
	}
	return "acked"
}

// changesOf lists the fields that differ, without secrets.
func changesOf(a, b *schema.Resource) []resourceChange {
	if a == nil || b == nil {
		return nil
	}
	before, err := envoy.Unpack(a)
	if err != nil {
		return nil
	}
	after, err := envoy.Unpack(b)
	if err != nil {
		return nil
	}
	var out []resourceChange
	for _, c := range diffFields(withoutSecrets(before), withoutSecrets(after)) {
		if len(out) == mostChanges {
			break
		}
		out = append(out, resourceChange{c.path, c.before, c.after})
	}
	return out
}
