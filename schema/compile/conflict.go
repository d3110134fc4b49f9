package compile

import (
	"fmt"
	"path"
	"strings"
)

// conflict translates that a field has two values: two of its author's, or one
// of another kind than the schema wants.
func (t *translation) conflict(e *evaluator) {
	s, _ := e.shapeAt(t.path)
	var all, names []written
	for _, w := range e.writtenAt(t.path) {
		switch {
		case w.name:
			names = append(names, w)
		case s.kinds() != 0 && w.kind&s.kinds() == 0:
			t.refuse(e, s, w)
			return
		default:
			all = append(all, w)
		}
	}
	lists := strings.HasPrefix(t.format, "incompatible list lengths")
	switch {
	case t.twice(all):
	case s.kinds() != 0 && len(names) > 0:
		t.refuse(e, s, names[0])
	case s.kinds() != 0 && len(t.args) >= 2 && !lists:
		got := written{text: fmt.Sprint(t.args[0])}
		if len(t.args) == 4 && s.kinds()&kindNames[fmt.Sprint(t.args[2])] != 0 || len(all) > 0 && got.text != all[0].text {
			got.text = fmt.Sprint(t.args[1])
		}
		t.refuse(e, s, got)
	case lists && len(all) > 1 && len(t.args) == 2:
		first, _ := position(all[0].pos)
		t.Pos, _ = position(all[len(all)-1].pos)
		t.say("conflict", fmt.Sprintf("is written twice, as lists of %v and of %v", t.args...), "also at "+first.String())
	default:
		t.contradicted()
	}
}

// refuse says that a field's value is of another kind than it must be.
func (t *translation) refuse(e *evaluator, s *shape, w written) {
	t.kind = refused
	if pos, ok := position(w.pos); ok {
		t.Pos = pos
	}
	t.say("value", e.mismatch(t.path, s, w), "")
}

// contradicted says that a field has two values, as CUE has them.
func (t *translation) contradicted() {
	text := t.err.Error()
	if len(t.args) >= 2 {
		text = fmt.Sprintf("has two values that contradict each other: %s and %s", short(fmt.Sprint(t.args[0]), 60), short(fmt.Sprint(t.args[1]), 60))
	}
	var also string
	if len(t.others) > 0 {
		also = "also at " + strings.Join(t.others, ", ")
	}
	t.say("conflict", text, also)
}

// twice says that the author wrote two values for one field: the last place is
// the one that is marked.
func (t *translation) twice(all []written) bool {
	for i := len(all) - 2; i >= 0; i-- {
		last := all[len(all)-1]
		if w := all[i]; w.text != last.text {
			first, _ := position(w.pos)
			t.Pos, _ = position(last.pos)
			t.say("conflict", fmt.Sprintf("has two values that contradict each other: %s and %s", short(last.text, 60), short(w.text, 60)), "also at "+first.String())
			return true
		}
	}
	return false
}

// standard are packages of CUE's own that configurations use.
var standard = []string{"encoding/json", "encoding/yaml", "list", "math", "net", "path", "regexp", "strconv", "strings", "struct", "text/template", "time"}

// unresolved translates a name that nothing declares: an import that was
// forgotten, a helper that is misspelt, or text without its quotes.
func (t *translation) unresolved(e *evaluator, name string) {
	t.once = name
	for _, p := range append([]string{schemaImport}, standard...) {
		if path.Base(p) == name {
			t.say("reference", fmt.Sprintf("%q is not imported", name), fmt.Sprintf("write below the package clause: import %q", p))
			return
		}
	}
	var known []string
	if e.lines != nil {
		known = sortedKeys(e.lines.kids)
	}
	hint := fmt.Sprintf("text stands in quotes: %q", name)
	if best := nearest(name, known); best != "" {
		hint = fmt.Sprintf("did you mean %s?", best)
	} else if strings.HasPrefix(name, "_") || strings.HasPrefix(name, "#") {
		hint = "declare it in this package, or in a directory above with the same package clause"
	}
	t.say("reference", fmt.Sprintf("there is no %s", name), hint)
}
