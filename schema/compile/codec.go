package compile

import (
	"encoding/binary"
	"errors"

	"cuelang.org/go/cue"

	"github.com/sluice-xds/sluice/schema"
)

// codecVersion changes with the form of an encoded package: what a cache holds in
// another form is passed over.
const codecVersion = 1

// encode writes an evaluated package as bytes, for another process or for a
// cache. Names and texts that come again are written once.
func (p *pkg) encode() []byte {
	e := encoder{seen: map[string]uint64{}}
	e.uint(codecVersion)
	e.text(p.dir)
	e.text(p.name)
	e.text(p.file)
	e.bool(p.base)
	e.uint(uint64(len(p.bad)))
	for _, d := range p.bad {
		e.pos(d.Pos)
		e.uint(uint64(d.Severity))
		e.text(d.Code)
		e.text(d.Message)
		e.text(d.Hint)
	}
	e.bool(p.root != nil)
	if p.root != nil {
		e.node(p.root)
	}
	return e.out
}

type encoder struct {
	out  []byte
	seen map[string]uint64
}

func (e *encoder) uint(n uint64) { e.out = binary.AppendUvarint(e.out, n) }

func (e *encoder) bool(b bool) {
	if b {
		e.uint(1)
	} else {
		e.uint(0)
	}
}

// text writes 0, the length and the bytes, or the number of a text before, from 1.
func (e *encoder) text(s string) {
	if i, ok := e.seen[s]; ok {
		e.uint(i)
		return
	}
	e.seen[s] = uint64(len(e.seen) + 1)
	e.uint(0)
	e.uint(uint64(len(s)))
	e.out = append(e.out, s...)
}

func (e *encoder) pos(p schema.Pos) {
	e.text(p.File)
	e.uint(uint64(p.Line))
	e.uint(uint64(p.Col))
}

func (e *encoder) node(n *node) {
	e.uint(uint64(n.kind))
	e.pos(n.pos)
	switch n.kind {
	case cue.StructKind:
		e.uint(uint64(len(n.fields)))
		for _, f := range n.fields {
			e.text(f.name)
			e.node(f.value)
		}
	case cue.ListKind:
		e.uint(uint64(len(n.elems)))
		for _, x := range n.elems {
			e.node(x)
		}
	default:
		e.text(n.text)
	}
}

var errEncoding = errors.New("not an evaluated package of this version")

// decodePkg reads what encode wrote. It never panics: a cache may be damaged.
func decodePkg(data []byte) (p pkg, err error) {
	d := decoding{in: data}
	if d.uint() != codecVersion {
		return p, errEncoding
	}
	p.dir, p.name, p.file, p.base = d.text(), d.text(), d.text(), d.uint() == 1
	for range d.count() {
		p.bad = append(p.bad, schema.Diagnostic{
			Pos: d.pos(), Severity: schema.Severity(d.uint() & 1), Code: d.text(), Message: d.text(), Hint: d.text(),
		})
	}
	if d.uint() == 1 {
		p.root = d.node(0)
	}
	if d.bad || len(d.in) > 0 {
		return pkg{}, errEncoding
	}
	return p, nil
}

type decoding struct {
	in    []byte
	texts []string
	bad   bool
}

func (d *decoding) uint() uint64 {
	n, size := binary.Uvarint(d.in)
	if size <= 0 {
		d.bad, d.in = true, nil
		return 0
	}
	d.in = d.in[size:]
	return n
}

// count is a length of what follows: each takes a byte at least.
func (d *decoding) count() int {
	n := d.uint()
	if n > uint64(len(d.in)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoding) text() string {
	i := d.uint()
	if i == 0 && !d.bad {
		n := d.count()
		s := string(d.in[:n])
		d.in = d.in[n:]
		d.texts = append(d.texts, s)
		return s
	}
	if i == 0 || i > uint64(len(d.texts)) {
		d.bad = true
		return ""
	}
	return d.texts[i-1]
}

func (d *decoding) pos() schema.Pos {
	return schema.Pos{File: d.text(), Line: int(d.uint()), Col: int(d.uint())}
}

const maxDepth = 10_000 // of a value: far above what CUE evaluates

func (d *decoding) node(depth int) *node {
	n := &node{kind: cue.Kind(d.uint()), pos: d.pos()}
	if d.bad || depth > maxDepth {
		d.bad = true
		return n
	}
	switch n.kind {
	case cue.StructKind:
		if count := d.count(); count > 0 {
			n.fields = make([]field, count)
		}
		for i := range n.fields {
			n.fields[i] = field{d.text(), d.node(depth + 1)}
		}
	case cue.ListKind:
		if count := d.count(); count > 0 {
			n.elems = make([]*node, count)
		}
		for i := range n.elems {
			n.elems[i] = d.node(depth + 1)
		}
	default:
		n.text = d.text()
	}
	return n
}
