package main

import (
	"fmt"
	"slices"

	"github.com/sluice-xds/sluice/reconcile/files"
	"github.com/sluice-xds/sluice/schema"
)

// write brings the files of a folder to what the configuration makes. Files of
// groups that it does not name stay. gRPC clients read no files: their groups are left out.
func (r *renderRun) write(fleet *schema.Fleet) error {
	if g := r.onlyGRPC(fleet); g != "" {
		return fmt.Errorf("cannot write files for group %s: gRPC clients read no files; serve it over xDS", g)
	}
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
		if g.Client == schema.GRPC {
			r.say("group %s is left out: gRPC clients read no files", g.Name)
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

// onlyGRPC is the first of the groups to write, if none of them is of proxies.
func (r *renderRun) onlyGRPC(fleet *schema.Fleet) (name string) {
	for i := range fleet.Groups {
		g := &fleet.Groups[i]
		switch {
		case len(r.only.groups) > 0 && !slices.Contains(r.only.groups, g.Name):
		case g.Client != schema.GRPC:
			return ""
		case name == "":
			name = g.Name
		}
	}
	return name
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
