package compile

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// exampleOf is what a field's doc comment shows behind "Example:".
func exampleOf(f *ast.Field) string {
	for _, c := range ast.Comments(f) {
		if _, example, ok := strings.Cut(strings.Join(strings.Fields(c.Text()), " "), "Example: "); ok {
			return example
		}
	}
	return ""
}

// kind is what a scalar's constraint leaves of the kinds.
func (in *shaper) kind(e ast.Expr) cue.Kind {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return in.kind(e.X)
	case *ast.Ident:
		if strings.HasPrefix(e.Name, "#") {
			return in.definition(e.Name).kind
		}
		return kindNames[e.Name]
	case *ast.BasicLit:
		if n := literalOf(e); n != nil {
			return n.kind
		}
	case *ast.UnaryExpr:
		switch e.Op {
		case token.MUL:
			return in.kind(e.X)
		case token.MAT:
			return cue.StringKind
		}
		return cue.NumberKind
	case *ast.BinaryExpr:
		if e.Op == token.OR {
			return in.kind(e.X) | in.kind(e.Y)
		}
		return in.kind(e.X) & in.kind(e.Y)
	}
	return 0
}

var kindNames = map[string]cue.Kind{
	"string": cue.StringKind, "bool": cue.BoolKind, "int": cue.IntKind, "uint32": cue.IntKind,
	"float": cue.FloatKind, "number": cue.NumberKind,
}

// kinds of a value that has a shape: a struct, a list, or those of a scalar.
func (s *shape) kinds() cue.Kind {
	switch {
	case s == nil:
		return 0
	case s.elem != nil:
		return cue.ListKind
	case s.fields != nil || s.each != nil:
		return cue.StructKind
	}
	return s.kind
}

// want says in words what a value must be.
func (s *shape) want() string {
	switch s.kinds() {
	case cue.ListKind:
		return "a list"
	case cue.StructKind:
		return "fields"
	case cue.StringKind:
		return "a string"
	case cue.IntKind:
		return "an integer"
	case cue.BoolKind:
		if !s.fits(&node{kind: cue.BoolKind, text: "false"}) {
			return "true"
		}
		return "true or false"
	}
	return "a number"
}

// shapeAt is what a path of fields leads to, and the shapes on the way, the
// package's own first. It is nil where the schema says nothing.
func (e *evaluator) shapeAt(path []string) (*shape, []*shape) {
	s, defs := allShapes()
	var way []*shape
	for i, p := range path {
		if i == 0 && (strings.HasPrefix(p, "#") || strings.HasPrefix(p, "_")) {
			l := e.lines.kid(p)
			if l == nil || defs[l.of] == nil {
				return nil, nil
			}
			s = defs[l.of]
			continue
		}
		way = append(way, s)
		if s = s.child(unquote(p)); s == nil {
			return nil, nil
		}
	}
	return s, way
}

// child is the shape of a field or an element; nil if there is none.
func (s *shape) child(name string) *shape {
	switch {
	case s.each != nil:
		return s.each
	case s.elem != nil:
		if _, err := strconv.Atoi(name); err == nil {
			return s.elem
		}
		return nil
	}
	return s.fields[name]
}

// names are those of the fields that may stand in a struct, or nil if they are
// the author's or Envoy's own.
func (s *shape) names() []string {
	if s == nil || s.open {
		return nil
	}
	return sortedKeys(s.fields)
}
