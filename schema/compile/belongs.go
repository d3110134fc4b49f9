package compile

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// stray is what to do about a field that does not exist where it stands: its
// hint, and the field of the same struct that the author must have meant, or "".
func (e *evaluator) stray(in []string, name string) (hint, means string) {
	s, way := e.shapeAt(in)
	known := s.names()
	if known == nil {
		return "", ""
	}
	if name == "name" && len(in) == 2 {
		return fmt.Sprintf("the name is the key: %s: NAME: {…}", in[0]), ""
	}
	if len(in) == 2 && s.fields[unquote(in[1])] != nil && !slices.Contains(known, name) {
		return fmt.Sprintf("is %s an entry? its name stands before it: %s: NAME: %s", in[1], in[0], in[1]), allMeant
	}
	if other := otherWords[s.def][name]; other != "" {
		return fmt.Sprintf("did you mean %q?", other), other
	}
	best := nearest(name, known)
	if best != "" && distance(name, best, 2) == 1 {
		return meant(name, known, ""), best
	}
	places := s.below(name, 1)
	if _, defs := allShapes(); s.def == "#Service" && defs["#Rule"].child(name) != nil { // what others say of an upstream
		places = append([]string{"routes.NAME.rules[]"}, places...)
	}
	if len(places) > 0 {
		return belongs(name, places), firstOf(places[0])
	}
	for i := len(way) - 1; i > 0; i-- {
		if up := way[i]; up.fields[name] != nil {
			return fmt.Sprintf("%s belongs in %s, beside %s", name, showPath(in[:i]), unquote(in[i])), ""
		}
	}
	if best != "" {
		return meant(name, known, ""), best
	}
	for depth := 2; depth <= 3; depth++ {
		if places := s.below(name, depth); len(places) > 0 {
			return belongs(name, places), firstOf(places[0])
		}
	}
	if len(way) > 0 {
		if hint = inEntry(name); hint != "" {
			return hint, ""
		}
	}
	return meant(name, known, ""), ""
}

// inEntry says in which entries a field may stand, or nothing.
func inEntry(name string) string {
	places := slices.DeleteFunc(shapes().below(name, 1), func(p string) bool { return !strings.HasSuffix(p, ".NAME") })
	if len(places) == 0 {
		return ""
	}
	return belongs(name, places)
}

// allMeant is what is meant where no field of a struct is what it should be.
const allMeant = "*"

// belongs says where a field may stand.
func belongs(name string, places []string) string {
	return name + " belongs in " + either(places)
}

func either(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// firstOf is the first field of a place.
func firstOf(place string) string {
	return place[:strings.IndexAny(place+".", ".[")]
}

// otherWords are what other proxies call some fields, by definition.
var otherWords = map[string]map[string]string{
	"#Endpoint": {"host": "address", "ip": "address", "port": "address", "addr": "address", "url": "address"},
	"#Listener": {"port": "bind", "address": "bind", "listen": "bind"},
	"#Routes":   {"domains": "hosts", "vhosts": "hosts", "paths": "rules", "matches": "rules"},
	"#Rule":     {"cluster": "service", "backend": "service", "upstream": "service", "to": "service", "weights": "split", "retries": "retry"},
	"#Service":  {"upstreams": "endpoints", "hosts": "endpoints", "servers": "endpoints", "host": "dns", "url": "dns"},
	"#Health":   {"path": "http"},
	"#Respond":  {"code": "status", "text": "body"},
	"#Retry":    {"count": "attempts", "retries": "attempts", "conditions": "on"},
	"":          {"clusters": "services", "backends": "services", "upstreams": "services", "virtual_hosts": "routes", "vhosts": "routes"},
}

// below are the structs that hold a field, so many levels down: those that cannot
// be left out if they are among them, none if there are too many to choose from.
func (s *shape) below(name string, depth int) []string {
	var places []string
	best := 0
	for _, f := range sortedKeys(s.fields) {
		of, at := s.fields[f].inside(f)
		if of == nil {
			continue
		}
		var found []string
		likely := 0
		switch {
		case depth > 1:
			for _, p := range of.below(name, depth-1) {
				found = append(found, at+"."+p)
			}
		case of.fields[name] != nil:
			found = []string{at}
			if slices.Contains(of.required, name) {
				likely++
			}
		}
		if slices.Contains(s.required, f) {
			likely++
		}
		if len(found) > 0 && likely > best {
			places, best = nil, likely
		}
		if likely == best {
			places = append(places, found...)
		}
	}
	if len(places) > 3 {
		return nil
	}
	return places
}

// inside is the struct that a field is, or is a list or a map of, and how that
// is written.
func (s *shape) inside(name string) (*shape, string) {
	for s != nil {
		switch {
		case s.elem != nil:
			s, name = s.elem, name+"[]"
		case s.each != nil:
			s, name = s.each, name+".NAME"
		case s.fields != nil:
			return s, name
		default:
			return nil, ""
		}
	}
	return nil, ""
}

// mismatch says what a field must be that holds another kind of value, as far
// as it can be shown with the author's own.
func (e *evaluator) mismatch(path []string, s *shape, w written) string {
	want := "want " + s.want()
	if example := e.asIn(path, s, w); example != "" {
		return want + ", as in " + example
	}
	switch {
	case len(path) == 1 && s.each != nil:
		want = fmt.Sprintf("want entries by their names, as in %s: NAME: {…}", path[0])
	case s.kinds() == cue.StructKind:
		want += " in braces"
	}
	return want + ", found " + short(w.text, 40)
}

// asIn is an example of a field, of the author's own value if that can be mended.
func (e *evaluator) asIn(path []string, s *shape, w written) string {
	name, text := path[len(path)-1], unquote(w.text)
	_, way := e.shapeAt(path)
	up := way[len(way)-1]
	switch k := s.kinds(); {
	case len(path) == 2 && s.fields[name] != nil: // an entry without its name
		return fmt.Sprintf("%s: NAME: %s: %s", path[0], name, short(w.text, 40))
	case up.elem != nil && len(way) > 1: // show the whole list
		return way[len(way)-2].shown[path[len(path)-2]]
	case k == cue.ListKind && s.elem.kinds() == cue.StringKind && w.kind == cue.StringKind && len(w.text) <= 40:
		return fmt.Sprintf("%s: [%s]", name, w.text)
	case k == cue.StringKind && w.name && !helper(w.text) && s.fits(&node{kind: k, text: w.text}): // text without its quotes
		return fmt.Sprintf("%s: %q", name, w.text)
	case k == cue.StringKind && w.kind == cue.BytesKind:
		return fmt.Sprintf("%s: %q", name, strings.Trim(w.text, "'"))
	case k == cue.StringKind && w.kind&(cue.NumberKind|cue.BoolKind) != 0 && s.fits(&node{kind: k, text: w.text}):
		return fmt.Sprintf("%s: %q", name, w.text)
	case w.kind == cue.StringKind && digits.MatchString(text) && s.fits != nil && s.fits(&node{kind: cue.IntKind, text: text}):
		return name + ": " + text
	}
	return up.shown[unquote(name)]
}
