package compile

import (
	"io/fs"
	"reflect"
	"testing"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	cuetoken "cuelang.org/go/cue/token"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

// TestSurface: the schema and the Go surface have the same fields, all the way
// down, and every field of a package has its constraint.
func TestSurface(t *testing.T) {
	defs := linesOf(schemaFiles(t))
	for def, typ := range map[string]reflect.Type{
		"#Group": reflect.TypeFor[group](), "#NodeMatch": reflect.TypeFor[match](),
		"#Rollout": reflect.TypeFor[rollout](), "#Wave": reflect.TypeFor[wave](),
		"#Listener": reflect.TypeFor[listener](), "#ListenerTLS": reflect.TypeFor[listenerTLS](),
		"#ClientTLS": reflect.TypeFor[clientTLS](), "#AccessLog": reflect.TypeFor[accessLog](),
		"#Routes": reflect.TypeFor[routes](), "#TCP": reflect.TypeFor[tcpRule](),
		"#Rule": reflect.TypeFor[rule](), "#Match": reflect.TypeFor[ruleMatch](),
		"#ValueMatch": reflect.TypeFor[valueMatch](), "#Redirect": reflect.TypeFor[redirect](),
		"#Respond": reflect.TypeFor[respond](), "#Retry": reflect.TypeFor[retry](),
		"#Mirror": reflect.TypeFor[mirror](), "#Rewrite": reflect.TypeFor[rewrite](),
		"#Substitution": reflect.TypeFor[substitution](), "#CORS": reflect.TypeFor[cors](),
		"#HeaderChanges": reflect.TypeFor[headerChanges](), "#Hash": reflect.TypeFor[hashOn](),
		"#Service": reflect.TypeFor[service](), "#Endpoint": reflect.TypeFor[endpoint](),
		"#LBSettings": reflect.TypeFor[lbSettings](), "#Health": reflect.TypeFor[health](),
		"#Outliers": reflect.TypeFor[outliers](), "#Breakers": reflect.TypeFor[breakers](),
		"#ServiceTLS": reflect.TypeFor[serviceTLS](), "#Secret": reflect.TypeFor[secret](), "#NodeSecret": reflect.TypeFor[nodeSecret](),
		"#Resource": reflect.TypeFor[resource](), "#Patch": reflect.TypeFor[patch](), "#TTL": reflect.TypeFor[timesToLive](),
		"#Test": reflect.TypeFor[test](), "#Request": reflect.TypeFor[request](),
		"#Expect": reflect.TypeFor[expect](), "#Settings": reflect.TypeFor[settings](),
	} {
		l := defs.kid(def)
		if l == nil {
			t.Errorf("%s: not in the schema", def)
			continue
		}
		if d := cmp.Diff(sortedKeys(fieldsOfType(typ)), sortedKeys(l.kids)); d != "" {
			t.Errorf("%s: Go -, CUE +\n%s", def, d)
		}
		delete(defs.kids, def)
	}
	if d := cmp.Diff(sortedKeys(resourceKinds), sortedKeys(defs.kid("#Resources").kids)); d != "" {
		t.Errorf("#Resources: %s", d)
	}
	if d := cmp.Diff(patchable, sortedKeys(defs.kid("#Patches").kids)); d != "" {
		t.Errorf("#Patches: %s", d)
	}
	// What is left has no fields of its own.
	if d := cmp.Diff([]string{"#Address", "#Allow", "#Duration", "#Patches", "#Path", "#Resources"}, sortedKeys(defs.kids)); d != "" {
		t.Errorf("definitions without a Go type: %s", d)
	}
	for name := range topLevel {
		if constraints[name] == "" {
			t.Errorf("no constraint for %s", name)
		}
	}
}

// TestDefaults: the fields that the schema gives a value are those that the
// evaluator looks for.
func TestDefaults(t *testing.T) {
	types := map[string]reflect.Type{
		"#Listener": reflect.TypeFor[listener](), "#AccessLog": reflect.TypeFor[accessLog](), "#Redirect": reflect.TypeFor[redirect](),
		"#Service": reflect.TypeFor[service](), "#ServiceTLS": reflect.TypeFor[serviceTLS](), "#Request": reflect.TypeFor[request](),
	}
	for _, f := range schemaFiles(t) {
		for _, d := range f.Decls {
			def, ok := d.(*ast.Field)
			if !ok {
				continue
			}
			s, ok := def.Value.(*ast.StructLit)
			if !ok {
				continue
			}
			name, _, _ := ast.LabelName(def.Label)
			var got []string
			for _, e := range s.Elts {
				if f, ok := e.(*ast.Field); ok && f.Constraint != cuetoken.OPTION && f.Constraint != cuetoken.NOT {
					if label, _, err := ast.LabelName(f.Label); err == nil {
						got = append(got, label)
					}
				}
			}
			if d := cmp.Diff(defaults[types[name]], got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
}

func schemaFiles(t *testing.T) []*ast.File {
	t.Helper()
	names, err := fs.Glob(schema.CUE, "*.cue")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		data, err := schema.CUE.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(name, data, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

func TestNearest(t *testing.T) {
	known := []string{"services", "listeners", "routes", "web", "cart-v2"}
	for name, want := range map[string]string{
		"sevices": "services", "Services": "services", "listners": "listeners", "route": "routes",
		"wbe": "web", "cart-v1": "cart-v2", "zzz": "", "": "", "w": "",
	} {
		if got := nearest(name, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestFollow(t *testing.T) {
	leaf := &node{text: "x"}
	n := &node{fields: []field{{"filterChains", &node{elems: []*node{{fields: []field{{"by.name", leaf}}}}}}}}
	if got := n.follow(`filter_chains[0]["by.name"].more`); got != leaf {
		t.Errorf("got %+v", got)
	}
	if got := n.follow("nothing[3].here"); got != n {
		t.Errorf("got %+v", got)
	}
}
