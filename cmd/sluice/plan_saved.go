package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// savedPlan is what --out writes: a plan, and what it holds for.
type savedPlan struct {
	Plan  *planDocument `json:"plan"`
	Bound planBinding   `json:"bound"`
}

// planBinding is the content that a plan was made from. A plan is stale when any
// of it has changed, whatever the commits are called.
type planBinding struct {
	Groups map[string]groupBinding `json:"groups"`
}

// groupBinding names both ends of a group's path by their content.
type groupBinding struct {
	Acked   string `json:"acked"`   // what the nodes hold
	Maybe   string `json:"maybe"`   // what they may hold of a commit that is under way
	Desired string `json:"desired"` // empty for a group that is gone
	Match   string `json:"match"`   // which nodes are in it
}

// bindingOf is what a plan made from in is bound to.
func bindingOf(in *planInput) planBinding {
	b := planBinding{Groups: map[string]groupBinding{}}
	for name, base := range in.groups {
		b.Groups[name] = groupBinding{Acked: contentOf(base.fleet, name), Maybe: contentOf(base.under, name)}
	}
	for i := range in.fleet.Groups {
		name := in.fleet.Groups[i].Name
		g := b.Groups[name]
		g.Desired = contentOf(in.fleet, name)
		// Texts and numbers always encode.
		match, _ := json.Marshal(in.fleet.Groups[i].Match)
		g.Match = fmt.Sprintf("%s %d", match, in.fleet.Groups[i].Priority)
		b.Groups[name] = g
	}
	return b
}

// contentOf is the version of all that a fleet gives a group: its snapshot, and
// the bodies of the live resources that it names.
func contentOf(f *schema.Fleet, group string) string {
	if f == nil || f.Group(group) == nil {
		return ""
	}
	s := f.Group(group).Snapshot
	for _, t := range schema.AllTypes() {
		if t.Live() {
			names := make([]string, 0, s.Of(t).Len())
			for r := range s.Of(t).All() {
				names = append(names, r.Name)
			}
			s = s.Replace(t, s.Of(t).Union(f.Live.Of(t).Only(names)))
		}
	}
	return string(s.Version())
}

// save writes a plan beside its place and renames it there.
func (s *savedPlan) save(file string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".plan-*")
	if err != nil {
		return fmt.Errorf("cannot write the plan: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(data, '\n'))
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("cannot write the plan: %w", err)
	}
	return nil
}

// readPlan reads what a saved plan is bound to.
func readPlan(file string) (planBinding, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return planBinding{}, fmt.Errorf("cannot read the plan %s: %w", file, plainPathError(err))
	}
	var s struct {
		Bound planBinding `json:"bound"`
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Bound.Groups == nil {
		return planBinding{}, fmt.Errorf("cannot read the plan %s: it is not what sluice plan --out writes; make it again", file)
	}
	return s.Bound, nil
}

// stale says what has changed since a plan was saved, or nothing.
func (b planBinding) stale(now planBinding) string {
	names := slices.Sorted(maps.Keys(b.Groups))
	for name := range now.Groups {
		if _, ok := b.Groups[name]; !ok {
			return "group " + name + " is new"
		}
	}
	for _, name := range names {
		then, is := b.Groups[name], now.Groups[name]
		switch {
		case then.Desired != is.Desired, then.Match != is.Match:
			return "the configuration of group " + name + " has changed"
		case then.Acked != is.Acked, then.Maybe != is.Maybe:
			return "what the nodes of group " + name + " hold has changed"
		}
	}
	return ""
}
