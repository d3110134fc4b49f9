package compile

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestEveryFieldIsShown: each field of the language is written in some golden of
// what it is lowered to, or in an example, which are goldens too.
func TestEveryFieldIsShown(t *testing.T) {
	s := shown{}
	goldens, err := filepath.Glob("testdata/good/*.txtar")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, name := range goldens {
		ar, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range ar.Files {
			s.read(t, f.Name, f.Data)
		}
	}
	err = filepath.WalkDir("../../examples", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		s.read(t, p, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.missing(t, reflect.TypeFor[config](), map[reflect.Type]bool{})
}

// fieldOf is a field of the surface.
type fieldOf struct {
	owner reflect.Type
	name  string
}

// shown are the fields that some configuration writes.
type shown map[fieldOf]bool

func (s shown) read(t *testing.T, name string, data []byte) {
	t.Helper()
	if !strings.HasSuffix(name, ".cue") || strings.Contains(name, "cue.mod") {
		return
	}
	f, err := parser.ParseFile(name, data)
	if err != nil {
		t.Fatal(err)
	}
	s.fields(f.Decls, reflect.TypeFor[config]())
}

// see walks a value beside its type. What is computed is passed over.
func (s shown) see(e ast.Expr, typ reflect.Type) {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch e := e.(type) {
	case *ast.BinaryExpr: // schema.#X & {…}
		s.see(e.X, typ)
		s.see(e.Y, typ)
	case *ast.StructLit:
		s.fields(e.Elts, typ)
	case *ast.ListLit:
		if typ.Kind() == reflect.Slice {
			for _, x := range e.Elts {
				s.see(x, typ.Elem())
			}
		}
	}
}

func (s shown) fields(decls []ast.Decl, typ reflect.Type) {
	for _, d := range decls {
		f, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		if typ.Kind() == reflect.Map {
			s.see(f.Value, typ.Elem())
			continue
		}
		name, _, err := ast.LabelName(f.Label)
		if err != nil || typ.Kind() != reflect.Struct {
			continue
		}
		if child, ok := fieldsOfType(typ)[name]; ok {
			s[fieldOf{typ, name}] = true
			s.see(f.Value, typ.Field(child).Type)
		}
	}
}

// missing says which fields nothing shows, all the way down.
func (s shown) missing(t *testing.T, typ reflect.Type, seen map[reflect.Type]bool) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || seen[typ] {
		return
	}
	seen[typ] = true
	fields := fieldsOfType(typ)
	for _, name := range sortedKeys(fields) {
		if !s[fieldOf{typ, name}] && !notServed[typ.Name()+"."+name] {
			t.Errorf("%s.%s: no golden and no example has it", typ.Name(), name)
		}
		s.missing(t, typ.Field(fields[name]).Type, seen)
	}
}

// notServed are the words that are refused today: a configuration with one of
// them is lowered to nothing.
var notServed = map[string]bool{"service.discovered": true, "secret.file": true, "secret.env": true}
