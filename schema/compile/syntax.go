package compile

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/encoding/yaml"

	"github.com/sluice-xds/sluice/schema"
)

// readable says of a file that cannot be parsed what is wrong with it first, as
// what follows is mostly a consequence, and of one that holds YAML only that.
func (s *source) readable(ds schema.Diagnostics) schema.Diagnostics {
	ds = ds.Sorted()
	var out schema.Diagnostics
	said := map[string]bool{}
	yamlAt := map[string]int{} // the line that is, of each file; 0 for none
	for _, d := range ds {
		known := d.Code == "syntax" || d.Code == "no-package" || d.Code == "reference" || d.Code == "unknown-field"
		f := s.tree.files[d.Pos.File]
		if !known || f == nil || !takesPart(f.name) {
			out = append(out, d)
			continue
		}
		line, looked := yamlAt[d.Pos.File]
		if !looked {
			line = yamlLine(f.data)
			yamlAt[d.Pos.File] = line
		}
		if line > 0 && said[d.Pos.File] {
			continue
		}
		if line > 0 {
			d = yamlIn(d.Pos.File, f.data, line)
		}
		if said[d.Pos.File] && d.Code == "syntax" {
			continue
		}
		if d.Code == "syntax" {
			said[d.Pos.File] = true
			if d.Hint == "" {
				d.Hint = syntaxHint(d, f.data)
			}
		}
		out = append(out, d)
	}
	return out
}

var (
	yamlItem = regexp.MustCompile(`^\s*- +[^\s]`)
	yamlKey  = regexp.MustCompile(`^(\s*)[\w."/-]+:\s*$`)
	indent   = regexp.MustCompile(`^(\s*)[^\s]`)
)

// yamlLine finds the first line that only YAML would have: an item of a list, or
// a field with nothing behind it but deeper lines. It is 0 if there is none.
func yamlLine(src []byte) int {
	lines := strings.Split(string(src), "\n")
	quoted, depth := false, 0
	for i, l := range lines {
		if strings.Count(l, `"""`)%2 == 1 {
			quoted = !quoted
		}
		open := depth > 0
		depth += strings.Count(l, "{") + strings.Count(l, "[") + strings.Count(l, "(") -
			strings.Count(l, "}") - strings.Count(l, "]") - strings.Count(l, ")")
		if quoted || open || strings.HasPrefix(strings.TrimSpace(l), "//") {
			continue
		}
		if yamlItem.MatchString(l) {
			return i + 1
		}
		if m := yamlKey.FindStringSubmatch(l); m != nil && i+1 < len(lines) {
			if in := indent.FindStringSubmatch(lines[i+1]); in != nil && len(in[1]) > len(m[1]) {
				return i + 1
			}
		}
	}
	return 0
}

// yamlIn says that a file is YAML, and shows a part of it in CUE.
func yamlIn(file string, src []byte, line int) schema.Diagnostic {
	d := schema.Diagnostic{
		Pos: schema.Pos{File: file, Line: line, Col: 1}, Code: "syntax",
		Message: "the file is written as YAML, but a .cue file is CUE",
		Hint:    `braces make a struct, brackets a list, and text stands in quotes: services: web: {dns: "shop.example.com:443"}`,
	}
	var plain []byte
	for l := range bytes.Lines(src) {
		if t := bytes.TrimSpace(l); !bytes.HasPrefix(t, []byte("package ")) && !bytes.HasPrefix(t, []byte("//")) && !bytes.HasPrefix(t, []byte("import ")) {
			plain = append(plain, l...)
		}
	}
	f, err := yaml.Extract(file, plain)
	if err != nil {
		return d
	}
	for _, decl := range f.Decls {
		field, ok := decl.(*ast.Field)
		if !ok {
			continue
		}
		text, err := format.Node(first(field), format.Simplify())
		if one := tight.Replace(strings.Join(strings.Fields(string(text)), " ")); err == nil && len(one) <= 160 {
			d.Hint = "in CUE it is " + one
		}
		break
	}
	return d
}

var tight = strings.NewReplacer("{ ", "{", " }", "}")

// first is a field with the first of all that is in it, so that it is short.
func first(f *ast.Field) *ast.Field {
	return &ast.Field{Label: f.Label, Value: firstIn(f.Value)}
}

func firstIn(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.StructLit:
		for _, d := range e.Elts {
			if f, ok := d.(*ast.Field); ok {
				return &ast.StructLit{Elts: []ast.Decl{first(f)}}
			}
		}
	case *ast.ListLit:
		if len(e.Elts) > 0 {
			return ast.NewList(firstIn(e.Elts[0]))
		}
	case *ast.BasicLit:
		return &ast.BasicLit{Kind: e.Kind, Value: e.Value, ValuePos: token.NoPos}
	}
	return e
}

var (
	word      = regexp.MustCompile(`[^\s"'\[\]{}(),]+`)
	braced    = regexp.MustCompile(`^\s*[\w"-]+(: *[\w"-]+)* +\{`)
	colonless = regexp.MustCompile(`^\s*([\w-]+) +("|\d)`)
	assigned  = regexp.MustCompile(`^\s*[\w"-]+\s*=[^=~]`)
)

// syntaxHint is what the author most likely has to do about what cannot be parsed.
func syntaxHint(d schema.Diagnostic, src []byte) string {
	lines := strings.Split(string(src), "\n")
	line := ""
	if d.Pos.Line > 0 && d.Pos.Line <= len(lines) {
		line = strings.TrimSpace(lines[d.Pos.Line-1])
	}
	open := lastOpen(string(src))
	switch {
	case strings.HasPrefix(d.Message, "expected 'EOF', found '"):
		return "there is one too many of it"
	case open != nil && (open.mismatched || strings.HasSuffix(d.Message, "found 'EOF'")):
		return fmt.Sprintf("the %c at %s:%d:%d is not closed", open.is, d.Pos.File, open.line, open.col)
	case strings.HasPrefix(line, "#"):
		return "a comment begins with //"
	case strings.HasPrefix(line, "import "):
		return "imports stand right below the package clause"
	case line == "package":
		return "name the package: package " + suggestPackage(path.Dir(d.Pos.File))
	}
	for _, at := range []int{d.Pos.Line - 1, d.Pos.Line - 2} {
		if at < 0 || at >= len(lines) {
			continue
		}
		if assigned.MatchString(lines[at]) {
			return "a field is written name: value"
		}
	}
	if d.Pos.Line > 0 && d.Pos.Line <= len(lines) {
		if hint := quoteHint(lines[d.Pos.Line-1], d.Pos.Col-1); hint != "" {
			return hint
		}
	}
	switch {
	case strings.HasPrefix(d.Message, "missing ',' in list") && strings.Contains(line, ":"):
		return "an element with fields stands in braces: [{name: value}]"
	case strings.HasPrefix(d.Message, "missing ',' in struct"):
		return "fields on one line are parted by commas"
	}
	return ""
}

// quoteHint is for a word that lacks its quotes, or a field its colon.
func quoteHint(line string, col int) string {
	for _, m := range word.FindAllStringIndex(line, -1) {
		if m[0] > col || m[1] <= col && m[1] < col {
			continue
		}
		w := line[m[0]:m[1]]
		before := strings.TrimSpace(line[:m[0]])
		label := strings.HasSuffix(w, ":")
		switch {
		case strings.ContainsAny(strings.Trim(w, ":"), "-./@") && label:
			return fmt.Sprintf("a name with other than letters, digits and _ stands in quotes: %q:", strings.TrimSuffix(w, ":"))
		case before != "" && slices.Contains([]string{":", "[", ","}, before[len(before)-1:]) && !label:
			return fmt.Sprintf("text stands in quotes: %q", w)
		}
	}
	if braced.MatchString(line) {
		return "a field is written name: {…}, with a colon"
	}
	if m := colonless.FindStringSubmatch(line); m != nil && m[1] != "package" && m[1] != "import" {
		return "a field is written name: value, with a colon"
	}
	return ""
}

// bracket is one that nothing closes, or a bracket of another kind.
type bracket struct {
	is         byte
	line, col  int
	mismatched bool
}

// lastOpen is the first bracket that another kind of bracket closes, else the
// innermost that is open at the end of a file, or nil.
func lastOpen(src string) *bracket {
	var open []bracket
	for i, l := range strings.Split(src, "\n") {
		quoted := false
		for j := 0; j < len(l); j++ {
			switch c := l[j]; {
			case c == '\\' && quoted:
				j++
			case c == '"':
				quoted = !quoted
			case quoted:
			case strings.HasPrefix(l[j:], "//"):
				j = len(l)
			case strings.IndexByte("{[(", c) >= 0:
				open = append(open, bracket{is: c, line: i + 1, col: j + 1})
			case strings.IndexByte("}])", c) >= 0 && len(open) > 0:
				last := &open[len(open)-1]
				if last.mismatched = strings.IndexByte("{[(", last.is) != strings.IndexByte("}])", c); last.mismatched {
					return last
				}
				open = open[:len(open)-1]
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	return &open[len(open)-1]
}
