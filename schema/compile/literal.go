package compile

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cuelang.org/go/cue"

	"github.com/sluice-xds/sluice/schema"
)

// Most packages are data: names, text and numbers that are written out. Such a
// package is read here, in one pass over its bytes; CUE's evaluator takes a
// hundred times as long. Whatever is not plainly data, or does not fit the
// schema, is CUE's: this reader never reports an error, it gives up. What it
// accepts is a small part of the language, and tests hold that it reads that
// part as CUE does.

// maxLiteralDepth is above any real configuration, and far below what a stack holds.
const maxLiteralDepth = 64

// literal reads a package, or reports that CUE has to.
func (s *source) literal(ref pkgRef) (pkg, bool) {
	if !s.plain {
		return pkg{}, false
	}
	r := literalReader{index: map[*node]map[string]*node{}}
	root := &node{kind: cue.StructKind, pos: schema.Pos{File: ref.file}}
	for _, dir := range s.inherited(ref.dir) {
		for _, f := range s.byDir[dir] {
			switch {
			case f.pkg == ref.name:
				if !r.file(f.path, s.tree.files[f.path].data, root) {
					return pkg{}, false
				}
			case !f.isLiteral(s.tree.files[f.path].data):
				return pkg{}, false // CUE parses this one too, and it may be wrong
			}
		}
	}
	if root.get("sluice").get("base") != nil || !finish(root, shapes()) {
		return pkg{}, false
	}
	return pkg{pkgRef: ref, root: root, data: true}, true
}

// isLiteral reports whether a file is data that this reader knows.
func (f *cueFile) isLiteral(data []byte) bool {
	f.once.Do(func() {
		r := literalReader{index: map[*node]map[string]*node{}}
		f.literal = r.file(f.path, data, &node{kind: cue.StructKind})
	})
	return f.literal
}

// inherited are the directories whose files are part of a package in dir: from
// the module's root down.
func (s *source) inherited(dir string) []string {
	dirs := []string{dir}
	for dir != s.module && dir != "." {
		dir = path.Dir(dir)
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

// plainModule reports whether a module is of a language that this reader knows.
func plainModule(version string) bool {
	if version == languageLevel {
		return true
	}
	minor, rest, _ := strings.Cut(strings.TrimPrefix(version, "v0."), ".")
	n, err := strconv.Atoi(minor)
	_, bad := strconv.ParseUint(rest, 10, 16)
	return err == nil && bad == nil && n >= 9 && n < 17 && strings.HasPrefix(version, "v0.")
}

// literalReader is a cursor in one file after the other.
type literalReader struct {
	src  []byte
	at   int
	name string // of the file
	line int
	bol  int // where the line begins

	imported, used bool // the schema, by this file
	// index finds the fields of large structs.
	index map[*node]map[string]*node
}

func (r *literalReader) file(name string, src []byte, into *node) bool {
	r.src, r.at, r.name, r.line, r.bol = src, 0, name, 1, 0
	r.imported, r.used = false, false
	r.blank()
	if _, ok := r.clause(); !ok || !r.imports() {
		return false
	}
	return r.fields(into, shapes(), 0, 0) && r.at == len(r.src) && r.imported == r.used
}

// packageClause is the package that a file says it is in, if that is plain.
func packageClause(src []byte) (string, bool) {
	r := literalReader{src: src, line: 1}
	r.blank()
	return r.clause()
}

func (r *literalReader) clause() (string, bool) {
	if r.ident() != "package" {
		return "", false
	}
	r.space()
	name := r.ident()
	return name, name != "" && (name == "schema" || !reserved[name]) && r.ends()
}

func (r *literalReader) imports() bool {
	for r.word("import") {
		r.ident()
		r.space()
		group := r.take('(')
		if group {
			r.blank()
		}
		path, ok := r.text()
		if !ok || path != schemaImport || r.imported {
			return false
		}
		r.imported = true
		if group {
			if r.blank(); !r.take(')') {
				return false
			}
		}
		if !r.ends() {
			return false
		}
	}
	return true
}

// reserved are CUE's words, which are labels only in some places.
var reserved = setOf([]string{
	"package", "import", "for", "in", "if", "let", "true", "false", "null", "func",
	"try", "else", "otherwise", "fallback", "self", "this", "_", "__", "___",
	"schema", // it would hide the import
})

// label reads the name of a field.
func (r *literalReader) label() (string, bool) {
	if r.peek() == '"' {
		return r.text()
	}
	name := r.ident()
	return name, name != "" && name[0] != '_' && !reserved[name]
}

// words are the schema's own, so that each is in memory once.
var words = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	seen := map[*shape]bool{}
	var walk func(s *shape)
	walk = func(s *shape) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		for name, f := range s.fields {
			all[name] = name
			walk(f)
		}
		walk(s.elem)
		walk(s.each)
	}
	walk(shapes())
	return all
})

// fields reads fields until end, or the end of the file if that is 0.
func (r *literalReader) fields(into *node, s *shape, end byte, depth int) bool {
	if s.fields == nil && s.each == nil && !s.any || depth > maxLiteralDepth {
		return false
	}
	r.blank()
	for {
		if end == 0 && r.at == len(r.src) || end != 0 && r.take(end) {
			return true
		}
		if !r.field(into, s, depth) {
			return false
		}
		comma := r.take(',')
		if ended := r.blank(); !ended && !comma && !(end == 0 && r.at == len(r.src)) && !(end != 0 && r.peek() == end) {
			return false
		}
	}
}

// field reads one field; a struct may be written in several places.
func (r *literalReader) field(into *node, s *shape, depth int) bool {
	pos := r.pos()
	name, ok := r.label()
	if r.space(); !ok || !r.take(':') {
		return false
	}
	var of *shape
	switch {
	case s.any:
		of = s
	case s.each != nil:
		of = s.each
	default:
		if of = s.fields[name]; of == nil {
			if !s.open {
				return false
			}
			of = anything
		}
	}
	r.blank()
	old := r.find(into, name)
	n, ok := r.value(of, old, depth)
	if r.space(); !ok {
		return false
	}
	if n.kind == cue.StructKind || n.kind == cue.ListKind {
		n.pos = pos
	}
	if old == nil {
		into.fields = append(into.fields, field{name, n})
		if m := r.index[into]; m != nil {
			m[name] = n
		} else if len(into.fields) > 32 {
			m = map[string]*node{}
			for _, f := range into.fields {
				m[f.name] = f.value
			}
			r.index[into] = m
		}
	}
	return true
}

func (r *literalReader) find(n *node, name string) *node {
	if m := r.index[n]; m != nil {
		return m[name]
	}
	return n.get(name)
}

var anything = &shape{any: true}

// value reads a value. Where the field is written already, old is what it holds.
func (r *literalReader) value(s *shape, old *node, depth int) (*node, bool) {
	if old != nil && old.kind != cue.StructKind || depth > maxLiteralDepth {
		return nil, false
	}
	n := old
	if n == nil {
		n = &node{pos: r.pos()}
	}
	if r.word("schema") {
		done, ok := r.reference(n, s)
		if done || !ok {
			return n, ok
		}
		if r.peek() != '{' {
			return nil, false
		}
	}
	switch c := r.peek(); {
	case c == '{':
		n.kind = cue.StructKind
		r.at++
		return n, r.fields(n, s, '}', depth+1)
	case isLetter(c) && !r.word("true") && !r.word("false") && !r.word("null") || c == '"' && r.chained():
		n.kind = cue.StructKind
		return n, (s.fields != nil || s.each != nil || s.any) && r.field(n, s, depth+1)
	case old != nil:
		return nil, false
	case c == '[':
		n.kind = cue.ListKind
		r.at++
		return n, r.list(n, s, depth+1)
	}
	return n, r.scalar(n, s)
}

// reference reads schema.#Name, and what it is unified with; done says that
// nothing is.
func (r *literalReader) reference(n *node, s *shape) (done, ok bool) {
	r.ident()
	if !r.take('.') || !r.take('#') {
		return false, false
	}
	if name := r.ident(); s.def == "" || s.def[1:] != name || s.fields == nil {
		return false, false
	}
	r.used = true
	r.space()
	if !r.take('&') {
		n.kind = cue.StructKind
		return true, true
	}
	r.blank()
	return false, true
}

// chained reports whether a string that comes next is a label.
func (r *literalReader) chained() bool {
	at := *r
	_, ok := at.text()
	at.space()
	return ok && at.peek() == ':'
}

func (r *literalReader) list(n *node, s *shape, depth int) bool {
	of := s.elem
	if s.any {
		of = s
	}
	if of == nil {
		return false
	}
	for r.blank(); !r.take(']'); r.blank() {
		if isLetter(r.peek()) && !r.word("schema") && !r.word("true") && !r.word("false") && !r.word("null") || r.peek() == '"' && r.chained() {
			return false // no field stands in a list
		}
		e, ok := r.value(of, nil, depth)
		if r.space(); !ok {
			return false
		}
		n.elems = append(n.elems, e)
		if !r.take(',') {
			r.blank()
			return r.take(']')
		}
	}
	return true
}

func (r *literalReader) scalar(n *node, s *shape) bool {
	switch c := r.peek(); {
	case c == '"':
		n.kind = cue.StringKind
		var ok bool
		if n.text, ok = r.text(); !ok {
			return false
		}
	case isDigit(c):
		n.kind = cue.IntKind
		from := r.at
		for isDigit(r.peek()) {
			r.at++
		}
		if r.at-from > 1 && c == '0' || r.at-from > 15 {
			return false
		}
		if r.peek() == '.' {
			n.kind = cue.FloatKind
			r.at++
			for isDigit(r.peek()) {
				r.at++
			}
			if !isDigit(r.src[r.at-1]) || r.at-from > 15 {
				return false
			}
		}
		n.text = string(r.src[from:r.at])
	default:
		switch n.text = r.ident(); n.text {
		case "true", "false":
			n.kind = cue.BoolKind
		case "null":
			n.kind = cue.NullKind
		default:
			return false
		}
	}
	return s.any || s.fits != nil && s.fits(n)
}

// finish gives a struct what the schema does where the author did not, and puts
// its fields in order. It reports whether nothing is missing.
func finish(n *node, s *shape) bool {
	for _, name := range s.required {
		if n.get(name) == nil {
			return false
		}
	}
	for _, d := range s.defaults {
		if n.get(d.name) == nil {
			v := *d.value
			v.pos = n.pos
			n.fields = append(n.fields, field{d.name, &v})
		}
	}
	slices.SortFunc(n.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	for _, f := range n.fields {
		of := s.fields[f.name]
		switch {
		case s.each != nil:
			of = s.each
		case of == nil:
			of = anything
		}
		if !finish(f.value, of) {
			return false
		}
	}
	for _, e := range n.elems {
		of := s.elem
		if of == nil {
			of = anything
		}
		if !finish(e, of) {
			return false
		}
	}
	return true
}
