package main

import (
	"fmt"
	"slices"
	"strings"
)

// groupNotes are what concerns whole groups.
func (p *planText) groupNotes() []string {
	var lines []string
	for i := range p.doc.Groups {
		g := &p.doc.Groups[i]
		if g.Match != nil {
			lines = append(lines, matchNotes(g)...)
		}
		switch {
		case g.Gone && g.Nodes != nil:
			lines = append(lines, fmt.Sprintf("%s is gone: its %s keep what they have", g.Name, count(g.Nodes.Total, "node")))
		case g.Gone:
			lines = append(lines, g.Name+" is gone: its nodes keep what they have")
		case g.Halted != nil || g.Retry:
			lines = append(lines, haltNotes(g)...)
		case g.Under != "":
			lines = append(lines, fmt.Sprintf("%s is %s at %s: what its nodes may hold of that is reckoned with", g.Name, g.State, short(g.Under)))
		case g.Path == nil && g.Match == nil && len(p.doc.Paths) > 0:
			lines = append(lines, g.Name+" stays as it is")
		}
	}
	return lines
}

// haltNotes say at what a group stands, why, and what leads it on.
func haltNotes(g *planGroup) []string {
	var lines []string
	indent := ""
	if h := g.Halted; h != nil {
		indent = "  "
		at := ""
		if h.Stage != "" {
			at = ", stage " + h.Stage
		}
		lines = append(lines, fmt.Sprintf("%s is halted at %s%s: node %s: %s", g.Name, short(h.Commit), at, clean(h.Node), clean(oneLine(h.Why))))
	}
	switch {
	case g.Retry && g.Parked != "" && g.Under != "":
		lines = append(lines, indent+fmt.Sprintf("%s was aborted with just this, and walks back to %s; then it waits for a change, or sluice retry %[1]s", g.Name, short(g.Base)))
	case g.Retry && g.Parked != "":
		lines = append(lines, fmt.Sprintf("%s was aborted with just this: it waits for a change, or sluice retry %[1]s", g.Name))
	case g.Retry:
		lines = append(lines, fmt.Sprintf("  this is what was refused: it waits for a change, or sluice retry %s", g.Name))
	default:
		lines = append(lines, fmt.Sprintf("  what its nodes may hold of %s is reckoned with", short(g.Under)))
	}
	return lines
}

// retries are the groups that a merge leads nowhere.
func (p *planText) retries() []string {
	var names []string
	for i := range p.doc.Groups {
		if g := &p.doc.Groups[i]; g.Retry {
			names = append(names, g.Name)
		}
	}
	return names
}

// stuck says of which groups this is what was refused.
func (p *planText) stuck() string {
	names := p.retries()
	if len(names) == 1 {
		return names[0] + " waits for a change, or a retry"
	}
	return strings.Join(names, ", ") + " wait for a change, or a retry"
}

// retryWords head what only a retry does.
func (p *planText) retryWords(path *planPath) string {
	what := "This was aborted"
	for i := range p.doc.Groups {
		if g := &p.doc.Groups[i]; g.Halted != nil && g.Parked == "" && slices.Contains(path.Groups, g.Name) {
			if what = "Halted"; g.Halted.Stage != "" {
				what += " at stage " + g.Halted.Stage
			}
			what += ": this is what was refused"
			break
		}
	}
	return what + ", and no stage is opened until it changes. A retry would send"
}

// idleWords are of a stage that sends nothing to nodes that hold what they may hold.
func (p *planText) idleWords(path *planPath) string {
	for i := range p.doc.Groups {
		if g := &p.doc.Groups[i]; g.Under != "" && slices.Contains(path.Groups, g.Name) {
			return "sends what a node lacks of it, and waits for"
		}
	}
	return "sends nothing, and waits for"
}
