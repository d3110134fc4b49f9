package compile

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	cueliteral "cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/sluice-xds/sluice/schema"
)

// shape is what the schema says of one value, as far as it can be held against
// a literal without CUE. A shape is derived from the schema's own text: what that
// says in another way than is understood here fits nothing, so that CUE is asked.
type shape struct {
	def    string            // the definition's name; empty if it has none
	any    bool              // whatever is literal
	fits   func(*node) bool  // of a scalar; nil if it may be none
	elem   *shape            // of a list
	each   *shape            // of a struct whose names are the author's own
	fields map[string]*shape // of a struct
	open   bool              // fields may hold others, of any shape

	required []string
	defaults []field

	kind  cue.Kind          // of a scalar
	shown map[string]string // an example of each field, of the schema's own
}

// shapes are those of a package's top-level fields. They are derived once.
func shapes() *shape {
	top, _ := allShapes()
	return top
}

// allShapes are that of a package, and those of the definitions.
var allShapes = sync.OnceValues(func() (*shape, map[string]*shape) {
	in := shaper{defs: map[string]ast.Expr{}, made: map[string]*shape{}}
	names, err := schema.CUE.ReadDir(".")
	if err != nil {
		return &shape{}, nil
	}
	for _, name := range names {
		data, err := schema.CUE.ReadFile(name.Name())
		if err != nil {
			return &shape{}, nil
		}
		f, err := parser.ParseFile(name.Name(), data, parser.ParseComments)
		if err != nil {
			return &shape{}, nil
		}
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.Field); ok {
				if label, _, err := ast.LabelName(fd.Label); err == nil {
					in.defs[label] = fd.Value
				}
			}
		}
	}
	top := &shape{fields: map[string]*shape{}}
	for name, text := range constraints {
		e, err := parser.ParseExpr(name, "{"+strings.ReplaceAll(text, "sluiceschema.", "")+"}")
		if lit, ok := e.(*ast.StructLit); ok && err == nil && len(lit.Elts) == 1 {
			if emb, ok := lit.Elts[0].(*ast.EmbedDecl); ok {
				e = emb.Expr
			}
		}
		top.fields[name] = in.expr(e)
	}
	return top, in.made
})

type shaper struct {
	defs map[string]ast.Expr
	made map[string]*shape
}

// unknown fits nothing.
func unknown() *shape { return &shape{} }

func (in *shaper) expr(e ast.Expr) *shape {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return in.expr(e.X)
	case *ast.Ident:
		if strings.HasPrefix(e.Name, "#") {
			return in.definition(e.Name)
		}
	case *ast.ListLit:
		if len(e.Elts) == 1 {
			if el, ok := e.Elts[0].(*ast.Ellipsis); ok && el.Type != nil {
				return &shape{elem: in.expr(el.Type)}
			}
		}
		return unknown()
	case *ast.StructLit:
		return in.structure(e)
	}
	if fits := in.scalar(e); fits != nil {
		return &shape{fits: fits, kind: in.kind(e)}
	}
	return unknown()
}

// definition is that of the schema; one may hold itself.
func (in *shaper) definition(name string) *shape {
	if s := in.made[name]; s != nil {
		return s
	}
	s := &shape{}
	in.made[name] = s
	if e := in.defs[name]; e != nil {
		*s = *in.expr(e)
	}
	s.def = name
	return s
}

func (in *shaper) structure(e *ast.StructLit) *shape {
	s := &shape{fields: map[string]*shape{}, shown: map[string]string{}}
	for _, d := range e.Elts {
		switch d := d.(type) {
		case *ast.CommentGroup:
		case *ast.Ellipsis:
			s.open = true
		case *ast.Field:
			if pattern, ok := d.Label.(*ast.ListLit); ok && len(e.Elts) == 1 && len(pattern.Elts) == 1 {
				if id, ok := pattern.Elts[0].(*ast.Ident); ok && id.Name == "string" {
					return &shape{each: in.expr(d.Value)}
				}
			}
			name, _, err := ast.LabelName(d.Label)
			if err != nil || d.Alias != nil {
				return unknown()
			}
			s.fields[name] = in.expr(d.Value)
			s.shown[name] = exampleOf(d)
			if d.Constraint == token.NOT {
				s.required = append(s.required, name)
			} else if d.Constraint != token.OPTION {
				value := defaultOf(d.Value)
				if value == nil {
					return unknown()
				}
				s.defaults = append(s.defaults, field{name, value})
			}
		default:
			return unknown()
		}
	}
	return s
}

// defaultOf is the value that a disjunction marks, or nil.
func defaultOf(e ast.Expr) *node {
	for {
		b, ok := e.(*ast.BinaryExpr)
		if !ok || b.Op != token.OR {
			break
		}
		if n := defaultOf(b.Y); n != nil {
			return n
		}
		e = b.X
	}
	if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.MUL {
		if lit, ok := u.X.(*ast.BasicLit); ok {
			return literalOf(lit)
		}
	}
	return nil
}

// literalOf is a literal of the schema's, or nil if it is of no kind that is read.
func literalOf(lit *ast.BasicLit) *node {
	switch lit.Kind {
	case token.STRING:
		if text, err := cueliteral.Unquote(lit.Value); err == nil {
			return &node{kind: cue.StringKind, text: text}
		}
	case token.TRUE, token.FALSE:
		return &node{kind: cue.BoolKind, text: lit.Value}
	case token.INT:
		if _, err := strconv.ParseUint(lit.Value, 10, 32); err == nil {
			return &node{kind: cue.IntKind, text: lit.Value}
		}
	}
	return nil
}

// scalar is what a constraint says of a literal, or nil if it is not understood.
// A literal fits a disjunction if it fits one side, as it is itself the whole.
func (in *shaper) scalar(e ast.Expr) func(*node) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return in.scalar(e.X)
	case *ast.Ident:
		if strings.HasPrefix(e.Name, "#") {
			return in.definition(e.Name).fits
		}
		return kinds[e.Name]
	case *ast.BasicLit:
		return equal(e)
	case *ast.CallExpr:
		if id, ok := e.Fun.(*ast.Ident); ok && id.Name == "error" {
			return func(*node) bool { return false }
		}
	case *ast.UnaryExpr:
		if e.Op == token.MUL {
			return in.scalar(e.X)
		}
		return bound(e)
	case *ast.BinaryExpr:
		x, y := in.scalar(e.X), in.scalar(e.Y)
		switch {
		case x == nil || y == nil:
		case e.Op == token.OR:
			return func(n *node) bool { return x(n) || y(n) }
		case e.Op == token.AND:
			return func(n *node) bool { return x(n) && y(n) }
		}
	}
	return nil
}

var kinds = map[string]func(*node) bool{
	"string": ofKind(cue.StringKind), "bool": ofKind(cue.BoolKind),
	"int": ofKind(cue.IntKind), "float": ofKind(cue.FloatKind), "number": ofKind(cue.NumberKind),
	"uint32": func(n *node) bool { return n.kind == cue.IntKind && within64(n, 0, math.MaxUint32) },
}

func ofKind(k cue.Kind) func(*node) bool { return func(n *node) bool { return n.kind&k != 0 } }

func within64(n *node, least, most int64) bool {
	v, err := strconv.ParseInt(n.text, 10, 64)
	return err == nil && v >= least && v <= most
}

func equal(lit *ast.BasicLit) func(*node) bool {
	want := literalOf(lit)
	if want == nil {
		return nil
	}
	return func(n *node) bool { return n.kind == want.kind && n.text == want.text }
}

// bound is a comparison with a number, or a match of a regular expression. It
// holds for the numbers that a float64 holds as they are.
func bound(e *ast.UnaryExpr) func(*node) bool {
	lit, ok := e.X.(*ast.BasicLit)
	if !ok {
		return nil
	}
	if e.Op == token.MAT && lit.Kind == token.STRING {
		text, err := cueliteral.Unquote(lit.Value)
		if err != nil {
			return nil
		}
		re, err := regexp.Compile(text)
		if err != nil {
			return nil
		}
		return func(n *node) bool { return n.kind == cue.StringKind && re.MatchString(n.text) }
	}
	limit, err := strconv.ParseFloat(lit.Value, 64)
	if err != nil {
		return nil
	}
	var holds func(v float64) bool
	switch e.Op {
	case token.GTR:
		holds = func(v float64) bool { return v > limit }
	case token.GEQ:
		holds = func(v float64) bool { return v >= limit }
	case token.LSS:
		holds = func(v float64) bool { return v < limit }
	case token.LEQ:
		holds = func(v float64) bool { return v <= limit }
	default:
		return nil
	}
	return func(n *node) bool {
		v, err := strconv.ParseFloat(n.text, 64)
		return n.kind&cue.NumberKind != 0 && len(n.text) <= 15 && err == nil && holds(v)
	}
}
