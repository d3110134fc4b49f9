package compile

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// written is a literal that the author gave a field, or a name.
type written struct {
	kind cue.Kind
	text string // as it stands there
	pos  token.Pos
	name bool // of another field or helper, whose value it is: kind is not known
}

// index is what a package's files write of each top-level field, and of each
// entry: there are thousands of entries, and an error may be one of each.
type index struct {
	top      map[string][]ast.Expr
	entries  map[[2]string][]ast.Expr
	patterns map[string][]ast.Expr // of entries, by their top-level field
}

func indexOf(files []*ast.File) *index {
	x := &index{map[string][]ast.Expr{}, map[[2]string][]ast.Expr{}, map[string][]ast.Expr{}}
	for _, f := range files {
		if _, mine := position(f.Pos()); mine {
			x.decls(f.Decls)
		}
	}
	return x
}

func (x *index) decls(decls []ast.Decl) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.EmbedDecl:
			if lit, ok := d.Expr.(*ast.StructLit); ok {
				x.decls(lit.Elts)
			}
		case *ast.Field:
			if name, _, err := ast.LabelName(d.Label); err == nil {
				x.top[name] = append(x.top[name], d.Value)
				x.below(name, d.Value)
			}
		}
	}
}

func (x *index) below(name string, e ast.Expr) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		x.below(name, e.X)
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			x.below(name, e.X)
			x.below(name, e.Y)
		}
	case *ast.StructLit:
		for _, d := range e.Elts {
			switch d := d.(type) {
			case *ast.EmbedDecl:
				x.below(name, d.Expr)
			case *ast.Field:
				if _, pattern := d.Label.(*ast.ListLit); pattern {
					x.patterns[name] = append(x.patterns[name], d.Value)
				} else if entry, _, err := ast.LabelName(d.Label); err == nil {
					x.entries[[2]string{name, entry}] = append(x.entries[[2]string{name, entry}], d.Value)
				}
			}
		}
	}
}

// writtenAt finds the literals and names at a path in a package's files: those of
// patterns first, then in order.
func (e *evaluator) writtenAt(path []string) (out []written) {
	if e.index == nil {
		e.index = indexOf(e.files)
	}
	from, rest := e.index.top[unquote(path[0])], path[1:]
	if len(rest) > 0 && !digits.MatchString(rest[0]) {
		from = slices.Concat(e.index.patterns[unquote(path[0])], e.index.entries[[2]string{unquote(path[0]), unquote(rest[0])}])
		rest = rest[1:]
	}
	for _, expr := range from {
		out = append(out, writtenAs(expr, rest)...)
	}
	return out
}

func writtenIn(decls []ast.Decl, path []string) (out []written) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.EmbedDecl:
			out = append(out, writtenAs(d.Expr, path)...)
		case *ast.Field:
			if name, _, err := ast.LabelName(d.Label); err == nil && name != unquote(path[0]) {
				continue
			} else if _, pattern := d.Label.(*ast.ListLit); err != nil && !pattern {
				continue
			}
			out = append(out, writtenAs(d.Value, path[1:])...)
		}
	}
	return out
}

func writtenAs(e ast.Expr, path []string) []written {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return writtenAs(e.X, path)
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			return append(writtenAs(e.X, path), writtenAs(e.Y, path)...)
		}
	case *ast.StructLit:
		if len(path) > 0 {
			return writtenIn(e.Elts, path)
		}
		return []written{{kind: cue.StructKind, text: "fields", pos: e.Pos()}}
	case *ast.ListLit:
		if len(path) == 0 {
			return []written{{kind: cue.ListKind, text: "a list", pos: e.Pos()}}
		}
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(e.Elts) {
			return writtenAs(e.Elts[i], path[1:])
		}
	case *ast.UnaryExpr:
		if lit, ok := e.X.(*ast.BasicLit); ok && len(path) == 0 && (e.Op == token.SUB || e.Op == token.ADD) {
			return []written{{kind: kindOf(lit.Kind), text: e.Op.String() + lit.Value, pos: e.Pos()}}
		}
	case *ast.BasicLit:
		if len(path) == 0 {
			if strings.HasPrefix(e.Value, "'") {
				return []written{{kind: cue.BytesKind, text: e.Value, pos: e.Pos()}}
			}
			return []written{{kind: kindOf(e.Kind), text: e.Value, pos: e.Pos()}}
		}
	case *ast.Ident:
		if len(path) == 0 && kindNames[e.Name] == 0 {
			return []written{{text: e.Name, pos: e.Pos(), name: true}}
		}
	case *ast.Interpolation:
		if len(path) == 0 {
			return []written{{kind: cue.StringKind, text: "a string", pos: e.Pos()}}
		}
	}
	return nil
}

func kindOf(t token.Token) cue.Kind {
	switch t {
	case token.INT:
		return cue.IntKind
	case token.FLOAT:
		return cue.FloatKind
	case token.TRUE, token.FALSE:
		return cue.BoolKind
	case token.NULL:
		return cue.NullKind
	}
	return cue.StringKind
}
