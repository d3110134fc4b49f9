package compile

import (
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

// writtenAt finds the literals and names at a path in a package's files, in order.
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
