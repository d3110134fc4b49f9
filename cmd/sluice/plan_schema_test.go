package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

const planSchemaFile = "../../docs/schema/plan.json"

// TestPlanSchema holds docs/schema/plan.json against the document's Go types.
func TestPlanSchema(t *testing.T) {
	w := schemaWriter{words: commentsOf(t, "plan_document.go"), defs: map[string]any{}}
	root := w.object(reflect.TypeFor[planDocument]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "A plan of sluice, format " + planFormat
	root["$defs"] = w.defs
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	must(t, enc.Encode(root))
	if *update {
		must(t, os.WriteFile(planSchemaFile, want.Bytes(), 0o644))
	}
	if got, err := os.ReadFile(planSchemaFile); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("docs/schema/plan.json is not what the document says: run go test ./cmd/sluice -update (%v)", err)
	}
}

// schemaWriter makes a JSON Schema of Go types; words are their comments, by
// type and field.
type schemaWriter struct {
	words map[string]string
	defs  map[string]any
}

func (w *schemaWriter) object(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	w.fields(t, properties, &required)
	s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if doc := w.words[t.Name()]; doc != "" {
		s["description"] = doc
	}
	return s
}

func (w *schemaWriter) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			w.fields(f.Type, properties, required)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		s := w.value(f.Type)
		if doc := w.words[t.Name()+"."+f.Name]; doc != "" {
			s["description"] = doc
		}
		properties[name] = s
		if options == "" {
			*required = append(*required, name)
		}
	}
}

func (w *schemaWriter) value(t reflect.Type) map[string]any {
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return map[string]any{"type": "string", "enum": wordsOf(t)}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.value(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": w.value(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": w.value(t.Elem())}
	case reflect.Struct:
		if _, ok := w.defs[t.Name()]; !ok {
			w.defs[t.Name()] = nil // a type that refers to itself ends here
			w.defs[t.Name()] = w.object(t)
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "integer"}
}

// wordsOf are the words of an enumeration.
func wordsOf(t reflect.Type) (words []string) {
	var all []encoding.TextMarshaler
	switch t {
	case reflect.TypeFor[schema.Type]():
		for _, v := range schema.AllTypes() {
			all = append(all, v)
		}
	case reflect.TypeFor[schema.StageKind]():
		for v := range schema.StageKind(schema.NumStages) {
			all = append(all, v)
		}
	case reflect.TypeFor[schema.Client]():
		all = append(all, schema.Envoy, schema.GRPC)
	case reflect.TypeFor[planner.Level]():
		all = append(all, planner.Warmed, planner.Acked, planner.Timed, planner.Unproven)
	}
	for _, v := range all {
		text, err := v.MarshalText()
		if err != nil {
			panic(err)
		}
		words = append(words, string(text))
	}
	return words
}

// commentsOf reads the comments of a file's types and fields.
func commentsOf(t *testing.T, file string) map[string]string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	must(t, err)
	words := map[string]string{}
	put := func(name string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
				words[name] = strings.TrimPrefix(text, name+" is ")
			}
		}
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			ts, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			put(ts.Name.Name, g.Doc)
			st, ok := ts.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range st.Fields.List {
				for _, n := range field.Names {
					put(ts.Name.Name+"."+n.Name, field.Doc, field.Comment)
				}
			}
		}
	}
	return words
}

// TestPlanExamples shows what sluice plan says of a dozen changes, in all formats.
func TestPlanExamples(t *testing.T) { testscript.Run(t, scripts(t, "testdata/plans")) }

// scriptConforms holds a plan against the published schema: conforms FILE.
func scriptConforms(ts *testscript.TestScript, _ bool, args []string) {
	data, err := os.ReadFile(planSchemaFile)
	ts.Check(err)
	var doc map[string]any
	ts.Check(json.Unmarshal(data, &doc))
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	if wrong := openAPI(doc).validate("", doc, v); len(wrong) > 0 {
		ts.Fatalf("not what docs/schema/plan.json says:\n%s", strings.Join(wrong, "\n"))
	}
}
