package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// planFormat is the version of the plan document.
const planFormat = "1"

// planDocument is all that a plan says. Text, JSON and Markdown are made from it
// alone. docs/schema/plan.json is its JSON Schema.
type planDocument struct {
	FormatVersion string        `json:"format_version"`
	Base          planRevision  `json:"base"`
	To            planRevision  `json:"to"`
	Nodes         *planNodes    `json:"nodes,omitempty"` // of all groups; none offline
	Groups        []planGroup   `json:"groups"`
	Paths         []planPath    `json:"paths"`
	Traffic       []planTraffic `json:"traffic"`
	Proof         planProof     `json:"proof"`
	Tests         []planTest    `json:"tests"`
	Hazards       []planHazard  `json:"hazards"`
	// Order lists groups that go one after the other; those of one step go
	// together. It is empty if no group waits for another.
	Order   [][]string  `json:"order,omitempty"`
	Summary planSummary `json:"summary"`
}

// planRevision is one end of a plan.
type planRevision struct {
	Commit string `json:"commit,omitempty"` // in full; empty for a working tree that is no commit, or nothing
	Branch string `json:"branch,omitempty"`
	From   string `json:"from"` // how it was found: "--base", "server", "working tree" …
}

// fromServer is the From of a base that a server told.
const fromServer = "server"

// planNodes counts nodes.
type planNodes struct {
	Total        int `json:"total"`
	Acked        int `json:"acked"` // hold the newest commit that they were led to
	Disconnected int `json:"disconnected"`
}

// planGroup is one group and the path that it takes.
type planGroup struct {
	Name   string        `json:"name"`
	Client schema.Client `json:"client"`
	Base   string        `json:"base,omitempty"` // commit
	// Under is a commit that is on its way: nodes may hold some of it.
	Under string     `json:"under_way,omitempty"`
	State string     `json:"state,omitempty"` // as in status
	Nodes *planNodes `json:"nodes,omitempty"`
	// Halted is why it goes no further by itself.
	Halted *planHalt `json:"halted,omitempty"`
	Parked string    `json:"parked,omitempty"` // commit that was aborted
	// Retry says that the plan's end is what the group halted at, or what was
	// aborted: no stage of its path is opened until that changes, or somebody says
	// retry.
	Retry bool `json:"retry,omitempty"`
	// Differ are nodes that are not where the group is, at most maxDiffer.
	Differ []planNode `json:"differ,omitempty"`
	After  []string   `json:"after,omitempty"`
	Gone   bool       `json:"gone,omitempty"` // the plan's end does not name it: its nodes keep what they have
	Path   *int       `json:"path,omitempty"` // into paths; none: nothing changes
	Cost   *planCost  `json:"cost,omitempty"`
	// Match is set if other nodes are in the group than before.
	Match *planMatch `json:"match,omitempty"`
}

// planHalt is a node that refuses, or does not answer.
type planHalt struct {
	Commit string `json:"commit"`
	Stage  string `json:"stage,omitempty"`
	Node   string `json:"node"`
	Why    string `json:"why"`
}

// planMatch is how the nodes of a group change: by its match or its priority, or
// by those of another.
type planMatch struct {
	Pos     schema.Pos   `json:"pos,omitzero"`
	Leaving *planLeaving `json:"leaving,omitempty"` // none offline: the nodes are not known
	// Nodes are those that leave, at most maxDiffer.
	Nodes []planLeaver `json:"nodes,omitempty"`
}

// planLeaving counts the connected nodes that leave a group.
type planLeaving struct {
	Ungrouped int `json:"ungrouped"` // no group has them: they keep what they have
	Moved     int `json:"moved"`     // another group has them
}

// planLeaver is a node that leaves its group.
type planLeaver struct {
	ID  string `json:"id"`
	To  string `json:"to,omitempty"`  // the group that has it then
	Why string `json:"why,omitempty"` // none has
}

// planNode is a node that is not where its group is.
type planNode struct {
	ID     string `json:"id"`
	Commit string `json:"commit,omitempty"` // that it was led to last
	Why    string `json:"why"`
}

// planPath is the way of one or more groups that take the same.
type planPath struct {
	Groups []string      `json:"groups"`
	Client schema.Client `json:"client"`
	Stages []planStage   `json:"stages"`
	// Retry marks the path of a retry: a merge opens no stage of it.
	Retry bool `json:"retry,omitempty"`
	// Live changes are sent at once: no stage waits for them.
	Live []planChange `json:"live,omitempty"`
}

// planCost is what each node of a group pays for its path.
type planCost struct {
	Types   []planTypeCost `json:"types"`
	Drained []schema.Key   `json:"drained,omitempty"` // listeners whose connections end
	Reset   []schema.Key   `json:"reset,omitempty"`   // clusters whose connections are closed
}

// planTypeCost counts what is sent of one type.
type planTypeCost struct {
	Type         schema.Type `json:"type"`
	Responses    int         `json:"responses"`
	ChangedBytes int         `json:"changed_bytes"` // as delta sends them
	FullBytes    int         `json:"full_bytes"`    // as state of the world does
}

// planStage is one step.
type planStage struct {
	Stage        schema.StageKind `json:"stage"`
	Gate         planner.Level    `json:"gate"`
	DrainSeconds float64          `json:"drain_seconds,omitempty"`
	Changes      []planChange     `json:"changes"`
	WaitsFor     []planWait       `json:"waits_for,omitempty"`
}

// planWait is a resource that a node must hold before the next step, as far as
// it asks for it.
type planWait struct {
	schema.Key
	Usable bool `json:"usable,omitempty"` // some request could be sent to it
}

// The actions of a change.
const (
	actionAdd    = "add"
	actionChange = "change"
	actionRemove = "remove"
)

// planChange is what happens to one thing that an author wrote.
type planChange struct {
	Action string `json:"action"`
	Kind   string `json:"kind"` // the author's word: service, route, listener, resource
	Name   string `json:"name"`
	// Pos is where it stands; Commit is set if that is not in the plan's end.
	Pos       schema.Pos     `json:"pos,omitzero"`
	Commit    string         `json:"commit,omitempty"`
	Resources []planResource `json:"resources"`
	Note      string         `json:"note,omitempty"`
	Fields    []planField    `json:"fields,omitempty"`
}

// planResource is one of Envoy's resources in a change.
type planResource struct {
	schema.Key
	Detail string `json:"detail,omitempty"`
}

// planField is one field of a changed resource. A value is empty if the field is
// not set.
type planField struct {
	Type   schema.Type `json:"type"`
	Path   string      `json:"path"`
	Before string      `json:"before,omitempty"`
	After  string      `json:"after,omitempty"`
}

// planTraffic is what becomes of one class of requests.
type planTraffic struct {
	Groups  []string   `json:"groups"`
	Table   string     `json:"table"`
	Hosts   []string   `json:"hosts"`
	Match   string     `json:"match"`
	Before  planAnswer `json:"before"`
	After   planAnswer `json:"after"`
	Summary string     `json:"summary"`
}

// planAnswer is where requests go. An empty one is a 404.
type planAnswer struct {
	Weights  map[string]uint32 `json:"weights,omitempty"`
	Redirect string            `json:"redirect,omitempty"`
	Status   uint32            `json:"status,omitempty"`
	Other    string            `json:"other,omitempty"` // what only a running proxy can tell
}

// planProof says whether every step is closed, and how sure the gates are.
type planProof struct {
	Closed bool            `json:"closed"`
	Gates  []planner.Level `json:"gates"`
	Open   []planOpening   `json:"open,omitempty"`
}

// planOpening is a reference that leads nowhere.
type planOpening struct {
	Groups []string         `json:"groups"`
	Stage  schema.StageKind `json:"stage"`
	From   schema.Key       `json:"from"`
	To     schema.Key       `json:"to"`
	Pos    schema.Pos       `json:"pos,omitzero"`
}

// planTest is a route test along a path: what it is answered before the first
// stage and at each of the path.
type planTest struct {
	Groups   []string           `json:"groups"`
	Name     string             `json:"name"`
	Pos      schema.Pos         `json:"pos,omitzero"`
	Request  schema.Request     `json:"request"`
	Listener string             `json:"listener"`
	Answers  []string           `json:"answers"`
	Broken   []schema.StageKind `json:"broken,omitempty"` // give neither the old answer nor the new
}

// planHazard is what the plan risks.
type planHazard struct {
	Code     string     `json:"code"`
	Blocking bool       `json:"blocking"`
	Allowed  bool       `json:"allowed,omitempty"` // by --allow or in the configuration
	Reason   string     `json:"reason,omitempty"`  // the author's, who allowed it
	Groups   []string   `json:"groups"`
	Key      schema.Key `json:"resource,omitzero"`
	Pos      schema.Pos `json:"pos,omitzero"`
	Message  string     `json:"message"`
	WayOut   string     `json:"way_out,omitempty"`
}

// blocks reports whether the hazard refuses the plan.
func (h *planHazard) blocks() bool { return h.Blocking && !h.Allowed }

// rank is lower for what is read first: what refuses the plan, and what would.
func (h *planHazard) rank() int {
	switch {
	case h.blocks():
		return 0
	case h.Blocking:
		return 1
	}
	return 2
}

// planSummary counts resources of all groups: what several groups do alike, once.
type planSummary struct {
	Add    int  `json:"add"`
	Change int  `json:"change"`
	Prune  int  `json:"prune"`
	Stages int  `json:"stages"` // of the longest path
	Nodes  *int `json:"nodes,omitempty"`
}

// changed reports whether the plan does anything.
func (d *planDocument) changed() bool {
	return len(d.Paths) > 0 || slices.ContainsFunc(d.Groups, func(g planGroup) bool { return g.Match != nil })
}

// refusal says why the plan must not be carried out, or nothing.
func (d *planDocument) refusal() string {
	if n := len(d.Proof.Open); n > 0 {
		o := d.Proof.Open[0]
		return "no safe path: at stage " + o.Stage.String() + " " + o.From.String() + " refers to " + o.To.String() + ", which is not there"
	}
	for _, t := range d.Tests {
		if len(t.Broken) > 0 {
			return fmt.Sprintf("no safe path: at stage %s the route test %q gets neither its old answer nor its new one", t.Broken[0], t.Name)
		}
	}
	for _, h := range d.Hazards {
		if h.blocks() {
			out := cmp.Or(h.WayOut, "mend that")
			return "refused: " + h.Message + "; " + out + ", or accept it with --allow=" + h.Code
		}
	}
	return ""
}
