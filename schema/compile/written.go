package compile

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// written is a literal that the author gave a field.
type written struct {
	kind cue.Kind
	text string // as it stands there
	pos  token.Pos
}

// writtenAt finds the literals of a path in a package's files, in order.
func writtenAt(files []*ast.File, path []string) (out []written) {
	for _, f := range files {
		if _, mine := position(f.Pos()); mine {
			out = append(out, writtenIn(f.Decls, path)...)
		}
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
		return []written{{cue.StructKind, "fields", e.Pos()}}
	case *ast.ListLit:
		if len(path) == 0 {
			return []written{{cue.ListKind, "a list", e.Pos()}}
		}
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(e.Elts) {
			return writtenAs(e.Elts[i], path[1:])
		}
	case *ast.UnaryExpr:
		if lit, ok := e.X.(*ast.BasicLit); ok && len(path) == 0 && (e.Op == token.SUB || e.Op == token.ADD) {
			return []written{{kindOf(lit.Kind), e.Op.String() + lit.Value, e.Pos()}}
		}
	case *ast.BasicLit:
		if len(path) == 0 {
			if strings.HasPrefix(e.Value, "'") {
				return []written{{cue.BytesKind, e.Value, e.Pos()}}
			}
			return []written{{kindOf(e.Kind), e.Value, e.Pos()}}
		}
	case *ast.Interpolation:
		if len(path) == 0 {
			return []written{{cue.StringKind, "a string", e.Pos()}}
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
