package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// rendering is what render prints.
type rendering struct {
	FormatVersion string          `json:"format_version"`
	Groups        []renderedGroup `json:"groups"`
}

type renderedGroup struct {
	Name      string             `json:"name"`
	Client    schema.Client      `json:"client"`
	Resources []renderedResource `json:"resources"`
}

// renderedResource is one resource in the order in which nodes are sent them.
type renderedResource struct {
	Type     schema.Type      `json:"type"`
	Name     string           `json:"name"`
	Version  schema.Version   `json:"version"` // its content's hash
	Origins  []renderedOrigin `json:"origins,omitempty"`
	Resource json.RawMessage  `json:"resource"` // protojson, with proto names
}

// renderedOrigin is a line that a resource, or a part of it, was made from.
type renderedOrigin struct {
	At    string `json:"at"` // file:line
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Field string `json:"field,omitempty"`
}

func renderingOf(f *schema.Fleet, only selection, origins bool) (*rendering, error) {
	doc := &rendering{FormatVersion: documentFormat, Groups: []renderedGroup{}}
	bodies := map[*schema.Resource]json.RawMessage{} // groups share resources
	for i := range f.Groups {
		g := &f.Groups[i]
		if len(only.groups) > 0 && !slices.Contains(only.groups, g.Name) {
			continue
		}
		out := renderedGroup{Name: g.Name, Client: g.Client, Resources: []renderedResource{}}
		for r := range g.Snapshot.All() {
			if !only.takes(g.Name, r.Type) {
				continue
			}
			if r.Type.Live() { // the snapshot holds its key alone
				if r = f.Live.Get(r.Key); r == nil {
					continue
				}
			}
			if bodies[r] == nil {
				body, err := bodyJSON(r)
				if err != nil {
					return nil, err
				}
				bodies[r] = body
			}
			one := renderedResource{Type: r.Type, Name: r.Name, Version: r.Version, Resource: bodies[r]}
			if origins {
				for _, o := range f.Provenance[r.Key] {
					one.Origins = append(one.Origins, renderedOrigin{At: o.Pos.Short(), Kind: o.Kind, Name: o.Name, Field: o.Field})
				}
			}
			out.Resources = append(out.Resources, one)
		}
		doc.Groups = append(doc.Groups, out)
	}
	return doc, nil
}

// bodyJSON is a resource's message as compact JSON: the spaces of protojson are
// random on purpose.
func bodyJSON(r *schema.Resource) (json.RawMessage, error) {
	msg, err := envoy.Unpack(r)
	if err != nil {
		return nil, err
	}
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(msg)
	if err != nil {
		return nil, fmt.Errorf("cannot print %s: %w", r.Key, err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return nil, fmt.Errorf("cannot print %s: %w", r.Key, err)
	}
	return b.Bytes(), nil
}

// text is the message alone, in a format.
func (r *renderedResource) text(format string) (string, error) {
	if r == nil {
		return "", nil
	}
	if format == "json" {
		var b bytes.Buffer
		err := printJSON(&b, r.Resource)
		return b.String(), err
	}
	return yamlOf(r.Resource)
}

// renderDiff is a unified diff of all resources that differ, each a file of its
// own, and their number.
func renderDiff(before, after *rendering, format string) (string, int, error) {
	old, new := before.byPath(), after.byPath()
	paths := maps.Clone(old)
	maps.Copy(paths, new)
	var b strings.Builder
	changed := 0
	for _, path := range slices.SortedFunc(maps.Keys(paths), comparePaths) {
		from, to := old[path], new[path]
		if from != nil && to != nil && from.Version == to.Version {
			continue
		}
		changed++
		left, err := from.text(format)
		if err != nil {
			return "", 0, err
		}
		right, err := to.text(format)
		if err != nil {
			return "", 0, err
		}
		text, err := unified(from.label("a/", path), to.label("b/", path), left, right)
		if err != nil {
			return "", 0, err
		}
		b.WriteString(text)
	}
	return b.String(), changed, nil
}

// unified is udiff.Unified with the line numbers of the right side counted anew:
// in go-udiff v0.4.1 those of all hunks but the first are too low.
func unified(from, to, left, right string) (string, error) {
	const context = 3
	u, err := udiff.ToUnifiedDiff(from, to, left, udiff.Lines(left, right), context)
	if err != nil {
		return "", err
	}
	longer := 0 // the right side than the left, so far
	for _, h := range u.Hunks {
		h.ToLine = h.FromLine + longer
		for _, l := range h.Lines {
			switch l.Kind {
			case udiff.Insert:
				longer++
			case udiff.Delete:
				longer--
			}
		}
	}
	return u.String(), nil
}

// renderPath is where a resource stands in a diff.
type renderPath struct {
	group string
	typ   schema.Type
	name  string
}

func (p renderPath) String() string { return fmt.Sprintf("%s/%s/%s", p.group, p.typ, p.name) }

// comparePaths orders types as they are made.
func comparePaths(a, b renderPath) int {
	if a.group != b.group {
		return strings.Compare(a.group, b.group)
	}
	if a.typ != b.typ {
		return int(a.typ) - int(b.typ)
	}
	return strings.Compare(a.name, b.name)
}

func (d *rendering) byPath() map[renderPath]*renderedResource {
	m := map[renderPath]*renderedResource{}
	for _, g := range d.Groups {
		for i := range g.Resources {
			r := &g.Resources[i]
			m[renderPath{g.Name, r.Type, r.Name}] = r
		}
	}
	return m
}

// label names a side of a diff. Lines that it was made from follow a tab, where
// tools look for nothing.
func (r *renderedResource) label(side string, path renderPath) string {
	if r == nil {
		return "/dev/null"
	}
	label := side + path.String()
	for i, o := range r.Origins {
		sep := ", "
		if i == 0 {
			sep = "\t"
		}
		label += sep + o.At
	}
	return label
}
