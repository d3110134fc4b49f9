package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// openAPI is docs/admin-api.yaml, as a tree.
type openAPI map[string]any

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	data, err := os.ReadFile("../../docs/admin-api.yaml")
	must(t, err)
	var doc map[string]any
	must(t, yaml.Unmarshal(data, &doc))
	return doc
}

// at follows names into the tree.
func (o openAPI) at(names ...string) any {
	var v any = map[string]any(o)
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	return v
}

// Every route is described, and nothing else is.
func TestOpenAPIRoutes(t *testing.T) {
	doc := readOpenAPI(t)
	var want, got []string
	for _, r := range (&admin{}).routes() {
		want = append(want, r.method+" "+r.path)
	}
	for path, methods := range doc.at("paths").(map[string]any) {
		for method := range methods.(map[string]any) {
			got = append(got, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("docs/admin-api.yaml has\n%s\nand the server\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What a request may show is a scheme that is described.
func TestOpenAPISecurity(t *testing.T) {
	doc := readOpenAPI(t)
	var got []string
	for _, one := range doc.at("security").([]any) {
		for scheme := range one.(map[string]any) {
			if doc.at("components", "securitySchemes", scheme, "type") == nil {
				t.Errorf("nothing is said of the scheme %s", scheme)
			}
			got = append(got, scheme)
		}
	}
	if want := []string{"token", "certificate"}; !slices.Equal(got, want) {
		t.Errorf("the schemes are %v, want %v", got, want)
	}
}

// check holds an answer against what the file says of it.
func (o openAPI) check(t *testing.T, method, path, code string, body []byte) {
	t.Helper()
	media, _ := o.at("paths", path, strings.ToLower(method), "responses", code, "content").(map[string]any)
	for _, m := range media {
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, body)
		}
		for _, wrong := range o.validate("", m.(map[string]any)["schema"].(map[string]any), v) {
			t.Errorf("%s %s, %s: %s\n%s", method, path, code, wrong, body)
		}
		return
	}
	t.Errorf("%s %s: the file has no answer %s", method, path, code)
}

// validate is the part of JSON Schema that the file uses. Properties that it does
// not name are wrong.
func (o openAPI) validate(at string, schema map[string]any, v any) (wrong []string) {
	if ref, ok := schema["$ref"].(string); ok {
		named, ok := o.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(map[string]any)
		if !ok {
			return []string{at + ": no schema " + ref}
		}
		return o.validate(at, named, v)
	}
	if allowed, ok := schema["enum"].([]any); ok && !slices.Contains(allowed, v) {
		wrong = append(wrong, fmt.Sprintf("%s: %v is none of %v", at, v, allowed))
	}
	if !typed(schema["type"], v) {
		return append(wrong, fmt.Sprintf("%s: %v is no %v", at, v, schema["type"]))
	}
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			wrong = append(wrong, o.validate(fmt.Sprintf("%s[%d]", at, i), schema["items"].(map[string]any), e)...)
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s: no %v", at, name))
			}
		}
		for name, e := range v {
			p, ok := properties[name].(map[string]any)
			if !ok {
				p, ok = schema["additionalProperties"].(map[string]any)
			}
			if !ok {
				wrong = append(wrong, fmt.Sprintf("%s: nothing is said of %s", at, name))
				continue
			}
			wrong = append(wrong, o.validate(at+"."+name, p, e)...)
		}
	}
	return wrong
}

func typed(want, v any) bool {
	if all, ok := want.([]any); ok {
		return slices.ContainsFunc(all, func(one any) bool { return typed(one, v) })
	}
	switch v := v.(type) {
	case nil:
		return want == "null"
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	}
	return want == "object"
}
