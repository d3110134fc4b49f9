package compile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// patchable are the types that entries are made into.
var patchable = []string{"clusters", "endpoints", "listeners", "routes"}

// patched encodes what this package made of an entry, with the author's patch
// merged onto it. The key's name is the author's, wire is the resource's.
func (lo *lowering) patched(k schema.Key, msg proto.Message, wire string, at schema.Pos) *schema.Resource {
	p := lo.patches[k.Type][k.Name]
	if p == nil {
		return lo.resource(msg, wire, at)
	}
	tree, err := nodeOf(msg, at)
	if err != nil {
		lo.error(p.At.pos, "internal", "", "cannot patch %s %q: %v", k.Type.Noun(), k.Name, err)
		return nil
	}
	body := p.At.without("allow")
	m := patching{lo: lo, what: fmt.Sprintf("patch of %s %q", k.Type.Noun(), k.Name)}
	merged := m.merge(tree, body)
	if m.bad {
		return nil
	}
	out, err := envoy.ParseJSON(k.Type, merged.json())
	var bad []envoy.Violation
	if err != nil {
		bad = explain(err)
	} else {
		bad = envoy.Validate(out)
	}
	lo.violations(m.what, &resource{entry: entry{merged}, Allow: p.Allow}, bad)
	if len(bad) > 0 {
		return nil
	}
	if envoy.NameOf(out) != wire {
		lo.error(merged.at(nameField(out)), "raw-name", "another name is another entry's", "%s changes its name to %q", m.what, envoy.NameOf(out))
		return nil
	}
	if err := lo.follow(out); err != nil {
		lo.error(p.At.pos, "envoy", "", "%v", err)
		return nil
	}
	r, err := envoy.Resource(out, wire)
	if err != nil {
		lo.error(p.At.pos, "envoy", "", "%v", err)
		return nil
	}
	lo.reserved(body)
	lo.examine(r.Key, authored{msg: out, body: merged, allow: p.Allow, entry: at})
	lo.origin(r.Key, schema.Origin{Kind: "patch", Name: k.Name, Pos: p.At.pos})
	return r
}

// nodeOf writes a message as a tree all of whose nodes stand at one place.
func nodeOf(msg proto.Message, at schema.Pos) (*node, error) {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(msg)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return nodeOfJSON(v, at), nil
}

func nodeOfJSON(v any, at schema.Pos) *node {
	n := &node{pos: at}
	switch v := v.(type) {
	case map[string]any:
		n.kind = cue.StructKind
		for name, e := range sorted(v) {
			n.fields = append(n.fields, field{name, nodeOfJSON(e, at)})
		}
	case []any:
		n.kind = cue.ListKind
		for _, e := range v {
			n.elems = append(n.elems, nodeOfJSON(e, at))
		}
	case string:
		n.kind, n.text = cue.StringKind, v
	default:
		n.kind, n.text = cue.NumberKind, fmt.Sprint(v)
	}
	return n
}

// patching is one merge. The result's nodes stand where they were written, in
// the patch or in the entry.
type patching struct {
	lo   *lowering
	what string
	bad  bool
}

func (m *patching) refuse(pos schema.Pos, hint, format string, args ...any) {
	m.bad = true
	m.lo.error(pos, "patch", hint, m.what+": "+format, args...)
}

// merge is the JSON merge of RFC 7386, but for an object in place of a list,
// which goes into the list.
func (m *patching) merge(old, patch *node) *node {
	switch {
	case old.kind == cue.ListKind && patch.kind == cue.StructKind:
		return m.into(old, patch)
	case old.kind != cue.StructKind || patch.kind != cue.StructKind:
		return patch
	}
	out := &node{kind: cue.StructKind, pos: old.pos, fields: slices.Clone(old.fields)}
	for _, f := range patch.fields {
		i := slices.IndexFunc(out.fields, func(o field) bool { return o.name == f.name || jsonName(o.name) == f.name })
		switch {
		case i < 0 && f.value.kind == cue.NullKind:
		case i < 0 && slices.ContainsFunc(f.value.fields, func(o field) bool { return digits.MatchString(o.name) }):
			m.refuse(f.value.pos, "write the list as a whole", "there is no list %s to go into", f.name)
		case i < 0:
			out.fields = append(out.fields, f)
		case f.value.kind == cue.NullKind:
			out.fields = slices.Delete(out.fields, i, i+1)
		default:
			out.fields[i].value = m.merge(out.fields[i].value, f.value)
		}
	}
	if len(patch.fields) > 0 {
		out.pos = patch.pos
	}
	return out
}

var digits = regexp.MustCompile(`^[0-9]+$`)

// into merges onto the elements of a list, by position or by name.
func (m *patching) into(old, patch *node) *node {
	out := &node{kind: cue.ListKind, pos: patch.pos, elems: slices.Clone(old.elems)}
	gone := map[*node]bool{}
	for _, f := range patch.fields {
		i, err := strconv.Atoi(f.name)
		if err != nil {
			i = slices.IndexFunc(out.elems, func(e *node) bool { n := e.get("name"); return n != nil && n.text == f.name })
		} else if i < 0 || i >= len(old.elems) {
			m.refuse(f.value.pos, "name the element to add one", "there is no element %d: the list has %d", i, len(old.elems))
			continue
		} else {
			i = slices.Index(out.elems, old.elems[i])
		}
		switch null := f.value.kind == cue.NullKind; {
		case i < 0 && (null || err == nil):
			m.refuse(f.value.pos, meant(f.name, elementNames(old), ""), "there is no element %q to take away", f.name)
		case i < 0:
			m.add(out, f)
		case null:
			gone[out.elems[i]] = true
		default:
			e := m.merge(out.elems[i], f.value)
			for j := range old.elems {
				if old.elems[j] == out.elems[i] {
					old.elems[j] = e // so that another key finds it by its position
				}
			}
			out.elems[i] = e
		}
	}
	out.elems = slices.DeleteFunc(out.elems, func(e *node) bool { return gone[e] })
	return out
}

func elementNames(list *node) []string {
	var names []string
	for _, e := range list.elems {
		if n := e.get("name"); n != nil {
			names = append(names, n.text)
		}
	}
	return names
}

// add puts a new named element at the end, but before the router, which must be
// the last of the HTTP filters. A near miss of a name that is there is refused.
func (m *patching) add(list *node, f field) {
	for _, name := range elementNames(list) {
		if distance(f.name, name, 3) < 3 {
			m.refuse(f.value.pos, fmt.Sprintf("did you mean %q? to add another, write the list as a whole", name), "there is no element %q", f.name)
			return
		}
	}
	if f.value.kind != cue.StructKind {
		m.refuse(f.value.pos, "", "%q is no element: want a message", f.name)
		return
	}
	e := f.value
	if e.get("name") == nil {
		e = &node{kind: cue.StructKind, pos: e.pos}
		e.fields = append([]field{{"name", &node{kind: cue.StringKind, text: f.name, pos: f.value.pos}}}, f.value.fields...)
	}
	at := len(list.elems)
	if at > 0 {
		if last := list.elems[at-1].get("name"); last != nil && last.text == routerName {
			at--
		}
	}
	list.elems = slices.Insert(list.elems, at, e)
}
