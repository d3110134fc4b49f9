package compile

import (
	"fmt"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/format"
)

// definition is one of the schema's, as the reference shows it.
type definition struct {
	name   string // with #
	doc    string
	of     string // what it is, for one that is no struct
	fields []docField
}

type docField struct {
	name, doc, example, typ string
	required                bool
}

// definitionsOf reads the schema's files in their order.
func definitionsOf(t *testing.T) []definition {
	t.Helper()
	var out []definition
	for _, f := range schemaFiles(t) {
		for _, d := range f.Decls {
			field, ok := d.(*ast.Field)
			if !ok {
				continue
			}
			def := definition{name: labelOf(t, field), doc: docOf(field)}
			if s, ok := field.Value.(*ast.StructLit); ok && def.name != "#Allow" {
				for _, e := range s.Elts {
					if f, ok := e.(*ast.Field); ok {
						def.fields = append(def.fields, docFieldOf(t, f))
					}
				}
			} else {
				def.of = cueText(t, field.Value)
			}
			out = append(out, def)
		}
	}
	return out
}

func docFieldOf(t *testing.T, f *ast.Field) docField {
	t.Helper()
	doc, example, _ := strings.Cut(docOf(f), "Example: ")
	return docField{
		name: labelOf(t, f), doc: strings.TrimSpace(doc), example: example, typ: cueText(t, f.Value),
		required: f.Constraint.String() == "!",
	}
}

func labelOf(t *testing.T, f *ast.Field) string {
	t.Helper()
	name, _, err := ast.LabelName(f.Label)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func docOf(f *ast.Field) string {
	var b strings.Builder
	for _, g := range ast.Comments(f) {
		if g.Doc {
			b.WriteString(g.Text())
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func cueText(t *testing.T, e ast.Expr) string {
	t.Helper()
	data, err := format.Node(e)
	if err != nil {
		t.Fatal(err)
	}
	s := string(data)
	if i := strings.Index(s, " | error("); i >= 0 { // of the message the doc comment speaks
		rest := s[i+len(" | error("):]
		if j := strings.LastIndex(rest, `")`); j >= 0 {
			s = s[:i] + rest[j+2:]
		}
	}
	return strings.Join(strings.Fields(s), " ")
}

// TestSchemaDocs: every definition and every field says what it is, and every
// field has an example that its definition accepts.
func TestSchemaDocs(t *testing.T) {
	var src strings.Builder
	src.WriteString("package schema\n")
	for _, f := range schemaFiles(t) {
		for _, d := range f.Decls {
			if _, ok := d.(*ast.Package); ok {
				continue
			}
			data, err := format.Node(d)
			if err != nil {
				t.Fatal(err)
			}
			src.Write(data)
			src.WriteByte('\n')
		}
	}
	ctx := cuecontext.New()
	v := ctx.CompileString(src.String())
	if v.Err() != nil {
		t.Fatal(v.Err())
	}
	for _, def := range definitionsOf(t) {
		if def.doc == "" || !strings.HasSuffix(strings.TrimRight(def.doc, ")"), ".") && def.of == "" {
			t.Errorf("%s: no doc comment: %q", def.name, def.doc)
		}
		d := v.LookupPath(cue.MakePath(cue.Def(def.name)))
		for _, f := range def.fields {
			switch {
			case f.doc == "":
				t.Errorf("%s.%s: no doc comment", def.name, f.name)
			case f.example == "":
				t.Errorf("%s.%s: no example", def.name, f.name)
			default:
				e := ctx.CompileString(strings.TrimSuffix(strings.TrimPrefix(f.example, "{"), "}"))
				if !strings.HasPrefix(f.example, "{") {
					e = ctx.CompileString(f.example)
				}
				if err := d.Unify(e).Validate(); err != nil {
					t.Errorf("%s.%s: example %s: %v", def.name, f.name, f.example, err)
				}
				if !e.LookupPath(cue.MakePath(cue.Str(f.name))).Exists() {
					t.Errorf("%s.%s: the example %s does not show it", def.name, f.name, f.example)
				}
			}
			if !strings.HasPrefix(f.doc, f.name) && !strings.Contains(f.doc, fmt.Sprint(f.name)) {
				t.Errorf("%s.%s: the comment speaks of something else: %s", def.name, f.name, f.doc)
			}
		}
	}
}
