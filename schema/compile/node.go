package compile

import (
	"encoding/json"
	"strings"

	"cuelang.org/go/cue"

	"github.com/sluice-xds/sluice/schema"
)

// node is a concrete value that knows where its author wrote it. It is all
// that later passes see of CUE.
type node struct {
	kind   cue.Kind
	pos    schema.Pos
	text   string // of a scalar: the string, or its JSON literal
	fields []field
	elems  []*node
}

type field struct {
	name  string
	value *node
}

// get finds a field, or returns nil; a nil node has none.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// at is the position of what a path of field names leads to, or of the deepest
// part of it that exists.
func (n *node) at(path ...string) schema.Pos {
	for _, p := range path {
		next := n.get(p)
		if next == nil {
			break
		}
		n = next
	}
	return n.pos
}

// elem is the position of an element of the list at a field.
func (n *node) elem(name string, i int) schema.Pos {
	if l := n.get(name); l != nil && i < len(l.elems) {
		return l.elems[i].pos
	}
	return n.at(name)
}

// without is a shallow copy of the node that lacks some fields.
func (n *node) without(names ...string) *node {
	out := *n
	out.fields = nil
next:
	for _, f := range n.fields {
		for _, name := range names {
			if f.name == name {
				continue next
			}
		}
		out.fields = append(out.fields, f)
	}
	return &out
}

// json writes the value as JSON.
func (n *node) json() []byte {
	var b strings.Builder
	n.writeJSON(&b)
	return []byte(b.String())
}

func (n *node) writeJSON(b *strings.Builder) {
	switch n.kind {
	case cue.StructKind:
		b.WriteByte('{')
		for i, f := range n.fields {
			if i > 0 {
				b.WriteByte(',')
			}
			writeString(b, f.name)
			b.WriteByte(':')
			f.value.writeJSON(b)
		}
		b.WriteByte('}')
	case cue.ListKind:
		b.WriteByte('[')
		for i, e := range n.elems {
			if i > 0 {
				b.WriteByte(',')
			}
			e.writeJSON(b)
		}
		b.WriteByte(']')
	case cue.StringKind:
		writeString(b, n.text)
	default:
		b.WriteString(n.text)
	}
}

func writeString(b *strings.Builder, s string) {
	q, err := json.Marshal(s)
	if err != nil {
		q = []byte(`""`) // strings always marshal
	}
	b.Write(q)
}
