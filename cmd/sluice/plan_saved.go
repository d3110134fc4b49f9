package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// savedPlan is what --out writes: a plan, and what it holds for.
type savedPlan struct {
	Plan  *planDocument `json:"plan"`
	Bound planBinding   `json:"bound"`
	// Seal tells a file that was edited, or cut short, from one that was not. It is
	// no signature.
	Seal string `json:"seal"`
}

// heldPlan is what is read of a saved plan.
type heldPlan struct {
	file  string
	base  planRevision // what it begins at
	bound planBinding
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
	// Path is what a server can compare: without bodies of live types.
	Path reconcile.Ends `json:"path"`
}

// bindingOf is what a plan made from in is bound to.
func bindingOf(in *planInput) planBinding {
	b := planBinding{Groups: map[string]groupBinding{}}
	for name, base := range in.groups {
		b.Groups[name] = groupBinding{
			Acked: contentOf(base.fleet, name), Maybe: contentOf(base.under, name),
			Path: reconcile.EndsOf(name, base.fleet, base.under, nil),
		}
	}
	for i := range in.fleet.Groups {
		name := in.fleet.Groups[i].Name
		g := b.Groups[name]
		g.Desired, g.Path = contentOf(in.fleet, name), reconcile.EndsOf(name, in.groups[name].fleet, in.groups[name].under, in.fleet)
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
	plan, err := json.Marshal(s.Plan)
	if err != nil {
		return err
	}
	bound, err := json.Marshal(s.Bound)
	if err != nil {
		return err
	}
	s.Seal = sealOf(plan, bound)
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

// sealOf is over the two parts of a saved plan as JSON without white space.
func sealOf(plan, bound []byte) string {
	h := sha256.New()
	h.Write(plan)
	h.Write([]byte{'\n'})
	h.Write(bound)
	return hex.EncodeToString(h.Sum(nil))
}

// readPlan reads a saved plan.
func readPlan(file string) (*heldPlan, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the plan %s: %w", file, plainPathError(err))
	}
	cannot := func(why string) error {
		return fmt.Errorf("cannot use the plan %s: %s; make it again with sluice plan --out %s, and read that", file, why, file)
	}
	noPlan := fmt.Errorf("cannot use the plan %s: it is not what sluice plan --out writes; name a file that is", file)
	var raw struct {
		Plan, Bound json.RawMessage
		Seal        string
	}
	if err := json.Unmarshal(data, &raw); err != nil || raw.Plan == nil || raw.Bound == nil {
		return nil, noPlan
	}
	var plan, bound bytes.Buffer
	if json.Compact(&plan, raw.Plan) != nil || json.Compact(&bound, raw.Bound) != nil || raw.Seal != sealOf(plan.Bytes(), bound.Bytes()) {
		return nil, cannot("it was changed since it was saved, or is of another version of sluice")
	}
	held := &heldPlan{file: file}
	var doc struct{ Base planRevision }
	if json.Unmarshal(raw.Plan, &doc) != nil || json.Unmarshal(raw.Bound, &held.bound) != nil {
		return nil, cannot("it is of another version of sluice")
	}
	held.base = doc.Base
	return held, nil
}

// refuse says that a saved plan no longer holds.
func (h *heldPlan) refuse(why string) error {
	return &exitError{exitRefused, fmt.Sprintf("the plan in %s is stale: %s; make a new one with sluice plan --out %s, and read it", h.file, why, h.file)}
}

// ends are what a server is asked to compare: of one group, if it is named.
func (b planBinding) ends(group string) map[string]reconcile.Ends {
	out := map[string]reconcile.Ends{}
	for name, g := range b.Groups {
		if _, one := b.Groups[group]; !one || name == group {
			out[name] = g.Path
		}
	}
	return out
}

// stale says what has changed since a plan was saved, or nothing.
func (b planBinding) stale(now planBinding) string {
	names := slices.Sorted(maps.Keys(b.Groups))
	for name := range now.Groups {
		if _, ok := b.Groups[name]; !ok {
			return "group " + name + " is new since it was made"
		}
	}
	for _, name := range names {
		then, is := b.Groups[name], now.Groups[name]
		switch {
		case then.Desired != is.Desired, then.Path.Match != is.Path.Match:
			return "the configuration of group " + name + " has changed since it was made"
		case then.Acked != is.Acked, then.Maybe != is.Maybe:
			return "what the nodes of group " + name + " hold has changed since it was made"
		}
	}
	return ""
}
