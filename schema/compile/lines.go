package compile

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/sluice-xds/sluice/schema"
)

// lines remembers where the author wrote each field that stands in a file as
// itself. What is computed (comprehensions, references, templates) is not in
// it: there the evaluator's own positions, or the parent's, must do.
type lines struct {
	pos    schema.Pos
	value  schema.Pos // of the field's value
	isTrue bool       // the field is written as: true
	kids   map[string]*lines

	// open is set where something else than plain fields takes part, here or
	// above: only the evaluator knows the fields then. All others are kids, or
	// defaults of the definition.
	open bool
	// of is the definition that the author wrote: "#Service".
	of string
}

// linesOf indexes a package's files. Where several write one field, the last
// wins: files come from the root down, so that is the nearest directory.
func linesOf(files []*ast.File) *lines {
	root := &lines{}
	for _, f := range files {
		in := indexer{}
		for spec := range f.ImportSpecs() {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && path == schemaImport {
				in.schema = "schema"
				if spec.Name != nil {
					in.schema = spec.Name.Name
				}
			}
		}
		in.decls(root, f.Decls)
	}
	return root
}

// indexer reads one file. Schema is the name by which it knows the schema.
type indexer struct{ schema string }

func (in indexer) decls(l *lines, decls []ast.Decl) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			name, _, err := ast.LabelName(d.Label)
			if err != nil {
				l.open = true
				continue // computed
			}
			if d.Alias != nil {
				l.open = true
			}
			k := l.child(name, d.Label.Pos())
			k.value, _ = position(d.Value.Pos())
			in.expr(k, d.Value)
		case *ast.EmbedDecl:
			in.expr(l, d.Expr)
		case *ast.CommentGroup, *ast.Package, *ast.ImportDecl, *ast.Attribute:
		default: // a comprehension, a let, an ellipsis
			l.open = true
		}
	}
}

func (l *lines) child(name string, p token.Pos) *lines {
	k := l.kids[name]
	if k == nil {
		if k = new(lines); l.kids == nil {
			l.kids = map[string]*lines{}
		}
		l.kids[name] = k
	}
	if pos, ok := position(p); ok {
		k.pos = pos
	}
	return k
}

func (in indexer) expr(l *lines, e ast.Expr) {
	switch e := e.(type) {
	case *ast.StructLit:
		in.decls(l, e.Elts)
	case *ast.BasicLit:
		l.isTrue = e.Kind == token.TRUE
	case *ast.ParenExpr:
		in.expr(l, e.X)
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		name, _, err := ast.LabelName(e.Sel)
		if ok && err == nil && x.Name == in.schema && in.schema != "" && strings.HasPrefix(name, "#") {
			l.of = name
		} else {
			l.open = true
		}
	case *ast.BinaryExpr:
		if e.Op != token.AND {
			l.open = true
			return
		}
		in.expr(l, e.X)
		in.expr(l, e.Y)
	case *ast.ListLit:
		for i, x := range e.Elts {
			switch x.(type) {
			case *ast.Comprehension, *ast.Ellipsis:
				l.open = true
				return // what follows has no index of its own
			}
			in.expr(l.child(strconv.Itoa(i), x.Pos()), x)
		}
	default:
		l.open = true
	}
}

// kid is the index below a field; nil knows nothing.
func (l *lines) kid(name string) *lines {
	if l == nil {
		return nil
	}
	return l.kids[name]
}

// find is the position of the deepest known part of a path.
func (l *lines) find(path []string) (pos schema.Pos) {
	for _, p := range path {
		if s, err := strconv.Unquote(p); err == nil {
			p = s
		}
		if l = l.kid(p); l == nil {
			break
		}
		if l.pos.Line != 0 {
			pos = l.pos
		}
	}
	return pos
}
