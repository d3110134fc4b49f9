package compile

import (
	"cmp"
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
	ds := together((&evaluator{pkg: pos}).translations(err))
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

// translations are CUE's errors in the author's words and lines. Of one field
// they say the cause and not what follows from it.
func (e *evaluator) translations(err error) []*translation {
	var all []*translation
	worst := map[string]errorKind{} // of each field
	for _, err := range errors.Errors(err) {
		t := e.translate(err)
		key := strings.Join(err.Path(), ".")
		if old, ok := worst[key]; !ok || t.kind < old {
			worst[key] = t.kind
		}
		all = append(all, t)
	}
	return slices.DeleteFunc(all, func(t *translation) bool {
		return t.kind == consequence || t.kind > worst[strings.Join(t.err.Path(), ".")]
	})
}

// together makes diagnostics of translations. What is wrong once, and seen from
// several fields or at each use of a name, is said once.
func together(ts []*translation) schema.Diagnostics {
	type key struct {
		file, code, text string
		line, col        int
	}
	by := map[key][]*translation{}
	for _, t := range ts {
		k := key{file: t.Pos.File, code: t.Code, text: t.Message}
		if t.once == "" {
			k.line, k.col = t.Pos.Line, t.Pos.Col
		}
		by[k] = append(by[k], t)
	}
	var ds schema.Diagnostics
	for _, same := range by {
		slices.SortFunc(same, func(a, b *translation) int {
			return cmp.Or(compareBool(helper(a.where), helper(b.where)), compareBool(a.Hint == "", b.Hint == ""),
				cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col), cmp.Compare(a.where, b.where))
		})
		first := same[0]
		d := first.Diagnostic
		uses := slices.CompactFunc(same, func(a, b *translation) bool { return a.where == b.where && a.Pos == b.Pos })
		uses = slices.DeleteFunc(uses, func(t *translation) bool { return helper(t.where) && !helper(first.where) })
		switch {
		case first.once != "" && len(uses) > 1:
			d.Message += fmt.Sprintf(" (%d uses)", len(uses))
		case first.once != "":
		case len(uses) > 2:
			d.Message = fmt.Sprintf("%s and %d more: %s", first.where, len(uses)-1, d.Message)
		case len(uses) == 2:
			d.Message = fmt.Sprintf("%s and %s: %s", first.where, uses[1].where, d.Message)
		case first.where != "":
			d.Message = first.where + ": " + d.Message
		}
		ds = append(ds, d)
	}
	return ds.Sorted()
}

// helper reports whether a path leads into what is no entry itself.
func helper(where string) bool { return strings.HasPrefix(where, "#") || strings.HasPrefix(where, "_") }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

type errorKind int

const (
	cause       errorKind = iota
	wanted                // a definition's own error("want …")
	refused               // because the value is of another kind
	consequence           // of another error that is reported
)

// translation is one of CUE's errors on its way to a diagnostic.
type translation struct {
	schema.Diagnostic // its message does not say where
	kind              errorKind
	field             string // of where, that is unknown or missing
	where             string // the field that it is about, as an author would write it
	once              string // what is said once for a file, not at each use
	means             string // the field beside it that the author must have meant

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
		hint, means := e.stray(in, name)
		t.say("unknown-field", fmt.Sprintf("%q is no field here", name), hint)
		t.means = means
	case len(t.path) > 0 && t.format == "field is required but not present":
		in, name := t.split()
		t.Pos, t.means = e.parent(in), name
		t.say("missing-field", fmt.Sprintf("%q is missing", name), "")
	case strings.HasPrefix(t.format, "undefined field") && len(t.args) == 1:
		name := fmt.Sprint(t.args[0])
		t.say("reference", "there is no "+name, meant(name, e.definitions(), ""))
	case strings.HasPrefix(t.format, "reference %q not found") && len(t.args) == 1:
		t.unresolved(e, fmt.Sprint(t.args[0]))
	case strings.HasPrefix(t.format, "conflicting value"), strings.HasPrefix(t.format, "incompatible list lengths"):
		t.conflict(e)
	default:
		t.value(e)
	}
	return t
}

// split parts the path of a field into that of its struct, of which the message
// then speaks, and the field's name.
func (t *translation) split() (in []string, name string) {
	in, name = t.path[:len(t.path)-1], unquote(t.path[len(t.path)-1])
	t.path, t.field = in, name
	return in, name
}

func (t *translation) say(code, text, hint string) {
	t.where, t.Code, t.Message, t.Hint = showPath(t.path), code, text, hint
}

// value translates an error about what a field holds.
func (t *translation) value(e *evaluator) {
	text := strings.TrimPrefix(t.err.Error(), strings.Join(t.path, ".")+": ")
	var also string
	if len(t.others) > 0 {
		also = "also at " + strings.Join(t.others, ", ")
	}
	switch {
	case strings.HasPrefix(t.format, "invalid value %v (out of bound"):
		t.say("value", fmt.Sprintf("%v is out of bounds: want %v", t.args...), "")
	case strings.HasPrefix(text, "want "):
		t.kind = wanted
		t.say("value", text, "")
		if all := e.writtenAt(t.path); len(all) == 1 && all[0].kind == cue.BytesKind {
			t.Hint = fmt.Sprintf("text stands in double quotes: %q", strings.Trim(all[0].text, "'"))
		}
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
	case strings.HasPrefix(t.format, "imported and not used: %s") && len(t.args) > 0:
		t.say("import", fmt.Sprintf("%v is imported, but not used", t.args[0]), "take the import out")
	case strings.HasPrefix(text, "builtin package"):
		t.say("import", text, importHint(text))
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

// importHint is the package that a name which is no package of CUE's could mean.
func importHint(text string) string {
	_, after, _ := strings.Cut(text, `"`)
	name, _, _ := strings.Cut(after, `"`)
	if path.Base(name) == "schema" || strings.HasPrefix(name, "sluice") {
		return fmt.Sprintf("did you mean %q?", schemaImport)
	}
	if best := nearest(name, standard); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "the packages that CUE has are at https://pkg.go.dev/cuelang.org/go/pkg"
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
// definition that does not exist, a misspelling of the very field, or a field
// that stands beside it instead of in it; and what is in a field that is unknown.
func unexplained(all []*translation) (out []*translation) {
	type meant struct{ where, field string }
	known, unknown := map[meant]bool{}, map[string]bool{}
	for _, t := range all {
		switch t.Code {
		case "reference":
			known[meant{t.where, allMeant}] = true
		case "unknown-field":
			known[meant{t.where, t.means}] = true
			unknown[showPath([]string{t.where, t.field})] = true
		}
	}
	for _, t := range all {
		switch {
		case t.Code == "missing-field" && (known[meant{t.where, t.means}] || known[meant{t.where, allMeant}]):
		case t.Code == "unknown-field" && unknown[t.where]:
		default:
			out = append(out, t)
		}
	}
	return out
}

// missing finds required fields that are absent anywhere in a value that has
// other errors: CUE stops looking for them at the first of those.
func (e *evaluator) missing(v cue.Value, path []string) (ds []*translation) {
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
			t := &translation{path: path, means: sel.Unquoted()}
			t.Pos = e.parent(path)
			t.say("missing-field", fmt.Sprintf("%q is missing", sel.Unquoted()), "")
			ds = append(ds, t)
		case cue.OptionalConstraint:
		default:
			ds = append(ds, e.missing(it.Value(), append(path[:len(path):len(path)], sel.String()))...)
		}
	}
	return ds
}

// strays finds fields that do not exist anywhere in what the author wrote: CUE
// stops looking for them at the first other error of a struct.
func (e *evaluator) strays(l *lines, path []string) (ts []*translation) {
	s, _ := e.shapeAt(path)
	if len(path) == 0 {
		s = nil // these are said anyway
	}
	for _, name := range sortedKeys(l.kids) {
		kid := append(path[:len(path):len(path)], name)
		switch {
		case helper(name) && (len(path) > 0 || l.kids[name].of == ""):
		case s != nil && s.elem == nil && digits.MatchString(name) && e.isList(path): // that should be none
		case s.names() != nil && s.fields[name] == nil:
			t := &translation{path: path, field: name}
			t.Pos = l.kids[name].pos
			hint, means := e.stray(path, name)
			t.say("unknown-field", fmt.Sprintf("%q is no field here", name), hint)
			t.means = means
			ts = append(ts, t)
		default:
			if of, _ := e.shapeAt(kid); of != nil {
				ts = append(ts, e.strays(l.kids[name], kid)...)
			}
		}
	}
	return ts
}

// isList reports whether the author gave a field a list.
func (e *evaluator) isList(path []string) bool {
	return slices.ContainsFunc(e.writtenAt(path), func(w written) bool { return w.kind == cue.ListKind })
}
