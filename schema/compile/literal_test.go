package compile

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestLiteral holds the reader of plain data against CUE's evaluator: what it
// accepts, CUE accepts too, and both give the same values at the same places. The
// trees are those of the examples, of all golden cases, and each of them damaged
// in many small ways.
func TestLiteral(t *testing.T) {
	read, all := 0, 0
	agree := func(t *testing.T, name string, tree fs.FS) {
		t.Helper()
		n, of := agreement(t, name, tree)
		read, all = read+n, all+of
	}
	trees := literalTrees(t)
	for name, tree := range trees {
		agree(t, name, tree)
	}
	if read < all/3 {
		t.Errorf("only %d of %d packages were read as data", read, all)
	}
	t.Logf("%d of %d packages were read as data", read, all)

	rounds := 8
	if testing.Short() {
		rounds = 1
	}
	read, all = 0, 0
	rng := rand.New(rand.NewPCG(1, 2))
	for name, tree := range trees {
		for round := range rounds {
			agree(t, fmt.Sprintf("%s, damaged %d", name, round), damaged(rng, tree))
		}
	}
	t.Logf("%d of %d damaged packages were read as data", read, all)
	if read == 0 {
		t.Error("no damaged package was read as data: nothing was tested")
	}
}

// TestShapes: each field of the schema is of a form that the reader of plain data
// knows; what it does not know it would leave to CUE, a hundred times slower.
func TestShapes(t *testing.T) {
	seen := map[*shape]bool{}
	var walk func(path string, s *shape)
	walk = func(path string, s *shape) {
		if seen[s] {
			return
		}
		seen[s] = true
		if s.fits == nil && s.elem == nil && s.each == nil && s.fields == nil {
			t.Errorf("%s: shape.go does not know what the schema says there", path)
		}
		for name, f := range s.fields {
			walk(path+"."+name, f)
		}
		if s.elem != nil {
			walk(path+"[]", s.elem)
		}
		if s.each != nil {
			walk(path+".NAME", s.each)
		}
	}
	walk("", shapes())
}

// agreement counts the packages of a tree that were read as data, and all.
func agreement(t *testing.T, name string, tree fs.FS) (read, all int) {
	t.Helper()
	s, ds := loadTree(tree, ".", Limits{})
	if s == nil || failed(ds) {
		return 0, 0
	}
	for _, ref := range s.pkgs {
		all++
		got, ok := s.literal(ref)
		if !ok {
			continue
		}
		read++
		evalBatch(t.Context(), s, []pkgRef{ref}, func(_ int, want pkg) {
			if len(want.bad) > 0 || want.base {
				t.Errorf("%s: %s: was read, but CUE says: %v", name, ref.file, want.bad)
			} else if d := cmp.Diff(show(want.root), show(got.root)); d != "" {
				t.Errorf("%s: %s: CUE -, data +\n%s", name, ref.file, d)
			}
		})
	}
	return read, all
}

// show is all that there is in a node, a line each.
func show(n *node) []string {
	var out []string
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		at := n.pos.String()
		if path == "" {
			at = ""
		}
		out = append(out, fmt.Sprintf("%s %v %q at %s", path, n.kind, n.text, at))
		for _, f := range n.fields {
			walk(path+"."+f.name, f.value)
		}
		for i, e := range n.elems {
			walk(fmt.Sprintf("%s[%d]", path, i), e)
		}
	}
	walk("", n)
	return out
}

func literalTrees(t *testing.T) map[string]fstest.MapFS {
	t.Helper()
	out := map[string]fstest.MapFS{"words": literalWords}
	broken := []byte("package b\n\nservices: a: {dns: \"a:1\"\n")
	for i, above := range [][]byte{broken, []byte("import 5\n"), []byte("package null\n"), []byte("package  b\n\nx: 5 6\n")} {
		out[fmt.Sprintf("above %d", i)] = fstest.MapFS{
			"a.cue":       &fstest.MapFile{Data: above},
			"below/b.cue": &fstest.MapFile{Data: []byte("package c\n\nservices: a: {dns: \"a:1\"}\n")},
		}
	}
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden cases", err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree := fstest.MapFS{}
		for _, f := range ar.Files {
			if f.Name != "want" {
				tree[f.Name] = &fstest.MapFile{Data: f.Data}
			}
		}
		out[file] = tree
	}
	root := "../../examples"
	err = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".cue") {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		example, rest, ok := strings.Cut(filepath.ToSlash(rel), "/")
		data, err := os.ReadFile(p)
		if ok {
			if out[example] == nil {
				out[example] = fstest.MapFS{}
			}
			out[example][rest] = &fstest.MapFile{Data: data}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// literalWords is one package for each odd way to write data.
var literalWords = func() fstest.MapFS {
	tree := fstest.MapFS{}
	add := func(src string) {
		name := fmt.Sprintf("w%03d/a.cue", len(tree))
		tree[name] = &fstest.MapFile{Data: []byte("package a\n\n" + src)}
	}
	raw := "resources: clusters: x: "
	for _, v := range []string{
		"{a: 1}", "{a: 1, b: 2,}", "{\n\ta: 1 // c\n\n\tb: 2\n}", "{a: [1, 2, ]}", "{a: [1,\n2]}", "{a: [\n1\n2\n]}", "{a: []}", "{a: {}}",
		"{a: 1.5}", "{a: 1.50}", "{a: 0.0}", "{a: 1.0}", "{a: 007}", "{a: 100000000000000000000}", "{a: 123456789.125}", "{a: 1e3}", "{a: .5}", "{a: 5.}", "{a: 1K}", "{a: -1}", "{a: 0x10}",
		"{a: null}", "{a: true, b: false}", `{a: "\n\t\"\\"}`, `{a: "\/"}`, `{a: "\(1)"}`, `{a: "ü"}`, `{a: ""}`, `{"a b": 1}`, `{"_x": 1}`, `{_x: 1}`, `{#x: 1}`, `{a: 'x'}`, `{a: """` + "\n\tx\n\t" + `"""}`, `{a: #"x"#}`,
		"{a: b: 1}", "{a: b: c: \"x\"}", "{a: \"b\": 1}", "{a: {b: 1}, a: {c: 2}}", "{a: 1, a: 1}", "{a: b: 1, a: c: 2}", "{a: [1], a: [1]}", "{for: 1}", "{if: 1}", "{in: 1}", "{let: 1}", "{try: 1}", "{else: 1}", "{true: 1}", "{string: 1}", "{int: {a: 1}}", "{a:\n1}", "{a\n: 1}", "{a: // x\n1}",
		"{a: 1 b: 2}", "{a: 1}}", "{a: [1 2]}", "{a: [{b: 1}, {c: [[1]]}]}", "{a: [b: 1]}", "{a?: 1}", "{a!: 1}", "{@x(y)\na: 1}", "{a: 1 @x(y)}", "{a: 1, ...}", "{a: _}", "{a: string}", "{x=a: 1}", "{(\"a\"): 1}", "{a: (1)}", "{a: 1 | 2}", "{a: *1 | 2}", "{a: 1 & 1}", "{a: {1}}", "{groups: [\"a\"]}", "{groups: 5}", "{allow: dangling: \"x\"}", "{allow: dangling: \" \"}", "{a: 1;}", "{a: [1,,2]}", "{,a: 1}", "\n{a: 1}", "{a: [\"x\": 1]}", "{self: 1}", "{func: 1}", "{of: 1, at: 2, len: 3, close: 4, and: 5, or: 6, div: 7, mod: 8, quo: 9, rem: 10, error: 11, embed: 12, number: 13, bytes: 14, float: 15, bool: 16}",
	} {
		add(raw + v + "\n")
		add("services: a: {endpoints: []}\n" + raw + v)
	}
	imp := "import \"github.com/sluice-xds/sluice/schema\"\n\n"
	for _, v := range []string{
		"services: a: schema.#Service", "services: a: schema.#Service & {dns: \"a:1\"}", "services: a: schema.#Service &\n{dns: \"a:1\"}", "services: a: schema.#Service &{}",
		"services: a: schema.#Routes & {dns: \"a:1\"}", "services: a: schema.#None & {dns: \"a:1\"}", "services: a: schema . #Service & {dns: \"a:1\"}", "services: a: {dns: \"a:1\"} & schema.#Service",
		"services: [string]: schema.#Service\nservices: a: dns: \"a:1\"", "services: a: schema.#Service & schema.#Service & {dns: \"a:1\"}", "services: schema: schema.#Service & {dns: \"a:1\"}",
		"services: \"schema\": schema.#Service & {dns: \"a:1\"}", "services: a: dns: \"a:1\"", "services: a: tls: schema.#ServiceTLS & {sni: \"x\"}", "services: a: tls: {}", "services: a: endpoints: [schema.#Endpoint & {address: \"1.1.1.1:1\"}, {address: \"1.1.1.1:2\"}]",
		"services: a: schema.#Service & {dns: \"a:1\"}\nservices: a: schema.#Service & {lb: \"random\"}", "services: a: schema.#Service & {dns: \"a:1\"}, services: b: schema.#Service & {dns: \"a:1\"}",
		"routes: a: schema.#Routes & {listeners: [], hosts: [], rules: [schema.#Rule & {match: prefix: \"/\"}]}", "secrets: a: schema.#Secret & {file: \"x\"}", "sluice: schema.#Settings & {owner: \"x\"}", "sluice: schema.#Settings & {base: true}", "sluice: schema.#Settings & {base: false}",
		"groups: a: schema.#Group & {client: \"envoy\", match: {}, rollout: {waves: [{percent: 10}, {rest: true}], bake: \"5m\"}}", "tests: a: schema.#Test & {request: {host: \"a\", path: \"/\"}, expect: status: 200}", "patches: clusters: a: schema.#Patch & {x: null}", "resources: schema.#Resources & {clusters: a: {x: 1}}", "resources: clusters: a: schema.#Resource & {x: 1}",
	} {
		add(imp + v + "\n")
	}
	add("import schema \"github.com/sluice-xds/sluice/schema\"\nservices: a: schema.#Service & {dns: \"a:1\"}\n")
	add("import (\n\t\"github.com/sluice-xds/sluice/schema\"\n)\nservices: a: schema.#Service & {dns: \"a:1\"}\n")
	add("import \"strings\"\nservices: a: dns: \"a:1\"\n")
	add("services: a: schema.#Service & {dns: \"a:1\"}\n")
	tree["crlf/a.cue"] = &fstest.MapFile{Data: []byte("package a\r\n\r\nservices: a: dns: \"a:1\"\r\n")}
	tree["bom/a.cue"] = &fstest.MapFile{Data: []byte("\xef\xbb\xbfpackage a\n\nservices: a: dns: \"a:1\"\n")}
	tree["comma/a.cue"] = &fstest.MapFile{Data: []byte("// A comment.\n\n// Another, ü.\npackage a, services: a: dns: \"a:1\"\n")}
	tree["many/a.cue"] = &fstest.MapFile{Data: []byte("package m\n\nservices: a: {dns: \"a:1\"}\n")}
	tree["many/b.cue"] = &fstest.MapFile{Data: []byte("package m\n\nservices: b: {dns: \"b:1\"}\nservices: a: lb: \"random\"\n")}
	tree["many/c.cue"] = &fstest.MapFile{Data: []byte("package other\n\nservices: c: {dns: \"c:1\"}\n")}
	tree["many/deep/er/d.cue"] = &fstest.MapFile{Data: []byte("package m\n\nservices: d: {dns: \"d:1\"}\nservices: a: protocol: \"grpc\"\n")}
	tree["many/_e.cue"] = &fstest.MapFile{Data: []byte("package m\n\nservices: e: {dns: \"c:1\"}\n")}
	tree["many/e_tool.cue"] = &fstest.MapFile{Data: []byte("package m\n\nservices: f: {dns: \"c:1\"}\n")}
	tree["broken/a.cue"] = &fstest.MapFile{Data: []byte("package b\n\nservices: a: {dns: \"a:1\"}\n")}
	tree["broken/b.cue"] = &fstest.MapFile{Data: []byte("package c\n\nservices: a: {dns: \"a:1\"\n")}
	tree["deep/a.cue"] = &fstest.MapFile{Data: []byte("package b\n\nresources: clusters: x: y: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "\n")}
	return tree
}()

// damaged changes each file of a tree a little: a byte, a line, a token.
func damaged(rng *rand.Rand, tree fstest.MapFS) fstest.MapFS {
	bits := []string{
		"\n", " ", ",", "{", "}", "[", "]", ":", "\"", "0", "1", "-", "//", "a", "_", "\\", "&", "|", "schema.#Service & ", "true", "null", "5", "\"x\"", "...", "?", "#", ".", "\t", "/",
	}
	out := fstest.MapFS{}
	for name, f := range tree {
		data := append([]byte(nil), f.Data...)
		if len(data) == 0 {
			continue
		}
		at := rng.IntN(len(data))
		switch rng.IntN(4) {
		case 0:
			data = append(data[:at], data[min(len(data), at+1+rng.IntN(3)):]...)
		case 1:
			data = append(data[:at], append([]byte(bits[rng.IntN(len(bits))]), data[at:]...)...)
		case 2: // a line twice, or none
			lines := strings.SplitAfter(string(data), "\n")
			i := rng.IntN(len(lines))
			lines[i] = strings.Repeat(lines[i], rng.IntN(2)*2)
			data = []byte(strings.Join(lines, ""))
		case 3:
			bit := bits[rng.IntN(len(bits))]
			data = append(data[:at], append([]byte(bit), data[min(len(data), at+len(bit)):]...)...)
		}
		out[name] = &fstest.MapFile{Data: data}
	}
	return out
}
