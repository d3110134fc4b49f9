package main

import (
	"slices"

	"github.com/sluice-xds/sluice/reconcile/files"
	"github.com/sluice-xds/sluice/schema"
)

// write brings the files of a folder to what the configuration makes. Files of
// groups that it does not name stay.
func (r *renderRun) write(fleet *schema.Fleet) error {
	dir, err := files.Open(r.files, r.filesAs)
	if err != nil {
		return err
	}
	defer dir.Close()
	written := 0
	for i := range fleet.Groups {
		g := &fleet.Groups[i]
		if len(r.only.groups) > 0 && !slices.Contains(r.only.groups, g.Name) {
			continue
		}
		to, err := dir.Group(g.Name)
		if err != nil {
			return err
		}
		if err := to.Write(bodied(g.Snapshot, fleet.Live)); err != nil {
			return err
		}
		written++
	}
	r.say("%s written into %s", count(written, "group"), r.files)
	return nil
}

// bodied gives the live resources of a snapshot their bodies.
func bodied(s, live schema.Snapshot) schema.Snapshot {
	for _, t := range schema.AllTypes() {
		if !t.Live() {
			continue
		}
		var names []string
		for res := range s.Of(t).All() {
			names = append(names, res.Name)
		}
		slices.Sort(names)
		s = s.Replace(t, s.Of(t).Union(live.Of(t).Only(names)))
	}
	return s
}
