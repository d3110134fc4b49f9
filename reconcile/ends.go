package reconcile

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// Ends name both ends of a group's path by the content of what its nodes are given
// there, so that a plan which somebody read can be told from what would be done.
// Bodies of live types do not count: they are never behind an intent.
type Ends struct {
	Acked   schema.Version `json:"acked,omitempty"`   // what the nodes hold; empty: nothing
	Maybe   schema.Version `json:"maybe,omitempty"`   // of a commit that is under way
	Desired schema.Version `json:"desired,omitempty"` // empty: the group is gone
	Match   string         `json:"match,omitempty"`   // which nodes are in it at the end
}

// EndsOf are the ends of a group's path between fleets, each of which may be nil.
func EndsOf(group string, acked, maybe, desired *schema.Fleet) Ends {
	of := func(f *schema.Fleet) *Release {
		if f == nil || f.Group(group) == nil {
			return nil
		}
		return &Release{Group: *f.Group(group)}
	}
	return endsOf(of(acked), of(maybe), of(desired))
}

func endsOf(acked, maybe, desired *Release) Ends {
	e := Ends{Acked: contentOf(acked), Maybe: contentOf(maybe), Desired: contentOf(desired)}
	if desired != nil {
		match, _ := json.Marshal(desired.Group.Match) // texts always encode
		e.Match = fmt.Sprintf("%s %d", match, desired.Group.Priority)
	}
	return e
}

// StaleError says that an intent's plan is no longer what would be done. Nothing
// was done.
type StaleError struct{ Why string }

func (e *StaleError) Error() string { return "the plan is stale: " + e.Why }

func contentOf(r *Release) schema.Version {
	if r == nil {
		return ""
	}
	return schema.Version(r.Group.Client.String()) + "-" + r.Group.Snapshot.Version()
}

// leads is the release that the group is led to, or will be when nothing holds it
// back; nil for a group that the newest commit does not name.
func (g *group) leads() *Release {
	switch {
	case g.next != nil:
		return g.next
	case g.Gone:
		return nil
	}
	return g.release()
}

// stale says which of the groups would do something else than a plan says.
func (l *Loop) stale(plan map[string]Ends, names []string, whole bool) error {
	if whole {
		for _, name := range sortedKeys(plan) {
			if plan[name].Desired != "" && l.groups[name] == nil {
				return &StaleError{fmt.Sprintf("the server does not know group %s yet", name)}
			}
		}
	}
	for _, name := range names {
		g := l.groups[name]
		then, ok := plan[name]
		now := endsOf(g.Base, g.Target, g.leads())
		switch {
		case !ok:
			return &StaleError{fmt.Sprintf("it says nothing of group %s", name)}
		case then.Acked != now.Acked || then.Maybe != now.Maybe:
			return &StaleError{fmt.Sprintf("what the nodes of group %s hold has changed since it was made", name)}
		case then == now:
		case now.Desired == "":
			return &StaleError{fmt.Sprintf("the newest commit does not name group %s", name)}
		case g.Parked != nil:
			return &StaleError{fmt.Sprintf("group %s stays where it is, as commit %s is parked", name, abbreviated(g.Parked.Commit))}
		case g.frozen != nil:
			return &StaleError{fmt.Sprintf("group %s stays where it is, as it is frozen at commit %s", name, abbreviated(g.frozen.Commit))}
		default:
			return &StaleError{fmt.Sprintf("group %s would be led to commit %s, and that is not what it says", name, abbreviated(g.leads().Commit))}
		}
	}
	return nil
}

// plannedNames are the groups that an intent's plan has to speak of: those that it
// does something to.
func (l *Loop) plannedNames(in Intent, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		if in.Verb == Promote {
			return false
		}
		_, no := l.weigh(in, name, l.groups[name])
		return no != ""
	})
}
