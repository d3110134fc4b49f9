package compile

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"

	"github.com/sluice-xds/sluice/schema"
)

// cueDiagnostics translates CUE's errors about what is no package yet.
func cueDiagnostics(err error, code string, pos schema.Pos) schema.Diagnostics {
	ds := (&evaluator{pkg: pos}).diagnostics(err)
	for i := range ds {
		if ds[i].Code == codeCUE {
			ds[i].Code = code
		}
	}
	return ds
}

const giveValue = `give it a value, or a default: *"value" | string`

// codeCUE is the code of an error that CUE says in its own words.
const codeCUE = "cue"

// diagnostics translates CUE's errors to the author's words and lines. Of one
// field it says the cause and not what follows from it.
func (e *evaluator) diagnostics(err error) schema.Diagnostics {
	var ds, wants schema.Diagnostics
	contradicted := map[string]bool{} // fields that the author gave two values
	caused := map[string]bool{}       // paths of fields of which a cause is told
	var wantPaths []string
	for _, err := range errors.Errors(err) {
		t := e.translate(err)
		switch key := strings.Join(err.Path(), "."); t.kind {
		case consequence:
		case wanted:
			wants, wantPaths = append(wants, t.Diagnostic), append(wantPaths, key)
		default:
			caused[key] = true
			ds = append(ds, t.Diagnostic)
			if t.Code == "conflict" && t.Hint != "" {
				contradicted[of(t.Message)] = true
			}
		}
	}
	for i, d := range wants {
		if !caused[wantPaths[i]] {
			ds = append(ds, d)
		}
	}
	return slices.DeleteFunc(ds, func(d schema.Diagnostic) bool {
		// An enum's other words contradict what the author wrote, too.
		return d.Code == "conflict" && d.Hint == "" && contradicted[of(d.Message)]
	}).Sorted()
}

// of is the field that a message speaks of.
func of(message string) string {
	name, _, _ := strings.Cut(message, ": ")
	return name
}

type errorKind int

const (
	cause       errorKind = iota
	wanted                // a definition's own error("want …")
	consequence           // of another error that is reported
)

// translation is one of CUE's errors on its way to a diagnostic.
type translation struct {
	schema.Diagnostic
	kind errorKind

	err    errors.Error
	format string
	args   []any
	path   []string
	others []string // further positions that take part
}

func (e *evaluator) translate(err errors.Error) *translation {
	t := &translation{err: err, path: err.Path()}
	t.format, t.args = err.Msg()
	t.Pos, t.others = e.place(err)
	switch {
	case strings.HasSuffix(t.format, "errors in empty disjunction:"):
		t.kind = consequence
	case t.format == "import failed":
		t.importFailed()
	case len(t.path) > 0 && t.format == "field not allowed":
		in, name := t.split()
		t.say("unknown-field", fmt.Sprintf("%q is no field here", name), meant(name, fieldsAt(in), ""))
	case len(t.path) > 0 && t.format == "field is required but not present":
		in, name := t.split()
		t.Pos = e.parent(in)
		t.say("missing-field", fmt.Sprintf("%q is missing", name), "")
	case strings.HasPrefix(t.format, "undefined field") && len(t.args) == 1:
		name := fmt.Sprint(t.args[0])
		t.say("reference", "there is no "+name, meant(name, e.definitions(), ""))
	case strings.HasPrefix(t.format, "reference %q not found"):
		t.say("reference", fmt.Sprintf(t.format, t.args...), "")
	default:
		t.value()
	}
	return t
}

// split parts the path of a field into that of its struct, of which the message
// then speaks, and the field's name.
func (t *translation) split() (in []string, name string) {
	in, name = t.path[:len(t.path)-1], unquote(t.path[len(t.path)-1])
	t.path = in
	return in, name
}

func (t *translation) say(code, text, hint string) {
	if p := showPath(t.path); p != "" {
		text = p + ": " + text
	}
	t.Code, t.Message, t.Hint = code, text, hint
}

// value translates an error about what a field holds.
func (t *translation) value() {
	text := strings.TrimPrefix(t.err.Error(), strings.Join(t.path, ".")+": ")
	conflict := strings.HasPrefix(t.format, "conflicting values")
	if conflict && len(t.args) == 4 && len(t.others) == 0 {
		if want, got, ok := mismatch(t.args); ok {
			t.say("value", fmt.Sprintf("want %s, found %s", want, got), "")
			return
		}
	}
	var also string
	if len(t.others) > 0 {
		also = "also at " + strings.Join(t.others, ", ")
	}
	switch {
	case conflict && len(t.args) >= 2:
		t.say("conflict", fmt.Sprintf("has two values that contradict each other: %s and %s", short(fmt.Sprint(t.args[0]), 60), short(fmt.Sprint(t.args[1]), 60)), also)
	case conflict:
		t.say("conflict", text, also)
	case strings.HasPrefix(t.format, "invalid value %v (out of bound"):
		t.say("value", fmt.Sprintf("%v is out of bounds: want %v", t.args...), "")
	case strings.HasPrefix(text, "want "):
		t.kind = wanted
		t.say("value", text, "")
	case strings.HasPrefix(text, "incomplete value") || strings.Contains(text, "non-concrete value"):
		_, only, ok := strings.Cut(text, "incomplete value ")
		switch {
		case ok && strings.HasPrefix(only, "{"):
			text = "is not complete: a name or a value in it is left open"
		case ok:
			text = "has no value, only a constraint: " + short(only, 80)
		}
		t.say("incomplete", short(text, 120), giveValue)
	case text == "structural cycle":
		t.say(codeCUE, "holds itself, without end (structural cycle)", also)
	case strings.Contains(text, "larger than ") && strings.HasPrefix(text, "read "):
		t.say("too-large", "cannot "+text, "keep what is embedded small, or apart")
	case strings.HasPrefix(text, "builtin package"):
		t.say("import", text, "")
	default:
		t.say(codeCUE, text, also)
	}
}

// definitions are those of the schema.
func (e *evaluator) definitions() []string {
	if e.schema == nil {
		return nil
	}
	return sortedKeys(linesOf(e.schema.Files).kids)
}

// place picks the author's position of an error: the deepest that is theirs,
// and the others that take part.
func (e *evaluator) place(err errors.Error) (schema.Pos, []string) {
	var mine []schema.Pos
	for _, p := range append(err.InputPositions(), err.Position()) {
		if pos, ok := position(p); ok && !slices.Contains(mine, pos) {
			mine = append(mine, pos)
		}
	}
	if len(mine) == 0 {
		return e.parent(err.Path()), nil
	}
	if p, ok := position(err.Position()); ok {
		return p, nil
	}
	var others []string
	for _, p := range mine[1:] {
		others = append(others, p.String())
	}
	return mine[0], others
}

// parent is the position of the deepest part of a path that the author wrote.
func (e *evaluator) parent(path []string) schema.Pos {
	if pos := e.lines.find(path); pos.Line != 0 {
		return pos
	}
	return e.pkg
}

func (t *translation) importFailed() {
	text := t.err.Error()
	t.Code, t.Message = "import", strings.TrimPrefix(text, "import failed: ")
	_, after, ok := strings.Cut(text, "cannot find package ")
	if !ok {
		return
	}
	quoted, why, _ := strings.Cut(after, ":")
	t.Message = fmt.Sprintf("cannot import %s:%s", quoted, why)
	if name, err := strconv.Unquote(quoted); err == nil && strings.Contains(why, "cannot find module") {
		t.Message = fmt.Sprintf("cannot import %q: it is not in this repository", name)
		t.Hint = fmt.Sprintf("nothing is downloaded: put it under cue.mod/pkg/%s", name)
		if strings.HasPrefix(name, path.Dir(schemaImport)) {
			t.Hint = fmt.Sprintf("did you mean %q?", schemaImport)
		}
	}
}

// mismatch reads CUE's "conflicting values %s and %s (mismatched types %s and
// %s)" where one side is the schema's.
func mismatch(args []any) (want, got string, ok bool) {
	a, b := fmt.Sprint(args[0]), fmt.Sprint(args[1])
	switch {
	case isType(b) && !isType(a):
		return article(fmt.Sprint(args[3])), short(a, 40), true
	case isType(a) && !isType(b):
		return article(fmt.Sprint(args[2])), short(b, 40), true
	}
	return "", "", false
}

func isType(s string) bool {
	switch s {
	case "string", "int", "number", "float", "bool", "bytes", "true", "uint32":
		return true
	}
	return strings.HasPrefix(s, "(") || strings.Contains(s, "[...") || strings.Contains(s, "?:") ||
		strings.Contains(s, "!:") || strings.Contains(s, "[string]:") || strings.Contains(s, "#")
}

func article(kind string) string {
	if kind == "int" {
		return "an integer"
	}
	return "a " + kind
}

// short cuts a value that may be large.
func short(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n-3], "") + "..."
	}
	return s
}

func unquote(s string) string {
	if u, err := strconv.Unquote(s); err == nil {
		return u
	}
	return s
}

// showPath writes a path as an author would: rules[2].match.
func showPath(path []string) string {
	var b strings.Builder
	for i, p := range path {
		_, err := strconv.Atoi(p)
		switch {
		case err == nil && i > 0:
			b.WriteString("[" + p + "]")
			continue
		case i > 0:
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

// unexplained drops missing fields that another error already accounts for: a
// definition that does not exist, or a misspelling of the very field.
func unexplained(said, missing schema.Diagnostics) (out schema.Diagnostics) {
	for _, d := range missing {
		path, rest, _ := strings.Cut(d.Message, ": ")
		name := strings.TrimSuffix(rest, " is missing")
		if !slices.ContainsFunc(said, func(o schema.Diagnostic) bool {
			return strings.HasPrefix(o.Message, path+": ") &&
				(o.Code == "reference" || o.Hint == "did you mean "+name+"?")
		}) {
			out = append(out, d)
		}
	}
	return out
}

// missing finds required fields that are absent anywhere in a value that has
// other errors: CUE stops looking for them at the first of those.
func (e *evaluator) missing(v cue.Value, path []string) (ds schema.Diagnostics) {
	if it, err := v.List(); err == nil {
		for i := 0; it.Next(); i++ {
			ds = append(ds, e.missing(it.Value(), append(path[:len(path):len(path)], strconv.Itoa(i)))...)
		}
		return ds
	}
	it, err := v.Fields(cue.Optional(true))
	if err != nil {
		return nil
	}
	for it.Next() {
		sel := it.Selector()
		switch sel.ConstraintType() {
		case cue.RequiredConstraint:
			ds = append(ds, schema.Diagnostic{
				Pos: e.parent(path), Code: "missing-field",
				Message: fmt.Sprintf("%s: %q is missing", showPath(path), sel.Unquoted()),
			})
		case cue.OptionalConstraint:
		default:
			ds = append(ds, e.missing(it.Value(), append(path[:len(path):len(path)], sel.String()))...)
		}
	}
	return ds
}
