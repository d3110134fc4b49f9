package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sluice-xds/sluice/schema"
)

// FormatError is all that is wrong with a JSON document, sorted by path.
type FormatError []Violation

func (e FormatError) Error() string {
	lines := make([]string, len(e))
	for i, v := range e {
		lines[i] = v.String()
	}
	return strings.Join(lines, "\n")
}

// ParseJSON reads strict protojson as a resource of type t. Fields may have
// their JSON or their protobuf names; a top-level "@type" may stand there if it
// agrees with t. Every unknown field and every unknown Any type is named in the
// error, which is a FormatError. It does not Validate.
func ParseJSON(t schema.Type, data []byte) (proto.Message, error) {
	msg := New(t)
	data, err := stripType(t, data)
	if err != nil {
		return nil, err
	}
	err = protojson.Unmarshal(data, msg)
	if err == nil {
		return msg, nil
	}
	return nil, explainJSON(msg.ProtoReflect().Descriptor(), data, err)
}

// stripType takes a top-level "@type" away, which protojson knows only in an Any.
func stripType(t schema.Type, data []byte) ([]byte, error) {
	if !bytes.Contains(data, []byte(`"@type"`)) {
		return data, nil
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(data, &top) != nil || top["@type"] == nil {
		return data, nil
	}
	var url string
	if err := json.Unmarshal(top["@type"], &url); err != nil || url != t.URL() {
		return nil, FormatError{{"@type", fmt.Sprintf("this is a %s, not a %s", top["@type"], t.URL())}}
	}
	delete(top, "@type")
	return json.Marshal(top)
}

// explainJSON says all that is wrong where protojson stops at the first.
func explainJSON(desc protoreflect.MessageDescriptor, data []byte, first error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return FormatError{{"", "this is no JSON: " + err.Error()}}
	}
	var s shape
	s.message("", desc, tree)
	if len(s.found) == 0 { // what a tree does not show: a key that stands twice
		s.say("", "%s", plain(first))
	}
	return FormatError(sorted(s.found))
}

var prefix = regexp.MustCompile(`^proto:[\s\x{a0}]*(syntax error )?(\(line \d+:\d+\): )?`)

// plain is an error of protojson without its prefix, which is random on purpose,
// and without a position in a text that the author may never have seen.
func plain(err error) string { return prefix.ReplaceAllString(err.Error(), "") }

// shape holds a JSON tree against a descriptor, from the leaves up, so that each
// mistake is said once and at its deepest.
type shape struct{ found []Violation }

func (s *shape) say(path, format string, args ...any) {
	s.found = append(s.found, Violation{path, fmt.Sprintf(format, args...)})
}

func (s *shape) message(path string, desc protoreflect.MessageDescriptor, v any) {
	before := len(s.found)
	if obj, ok := v.(map[string]any); ok {
		switch {
		case desc.FullName() == anyName:
			s.any(path, obj)
		case !wellKnown(desc):
			s.fields(path, desc, obj)
		}
	}
	if len(s.found) > before {
		return
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByName(desc.FullName())
	if err != nil {
		return // nested in a message that is linked, so this does not happen
	}
	if err := reread(mt, v); err != nil {
		s.say(path, "%s", plain(err))
	}
}

func reread(mt protoreflect.MessageType, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(data, mt.New().Interface())
}

// wellKnown messages have a JSON form of their own.
func wellKnown(desc protoreflect.MessageDescriptor) bool {
	return strings.HasPrefix(string(desc.FullName()), "google.protobuf.")
}

func (s *shape) fields(path string, desc protoreflect.MessageDescriptor, obj map[string]any) {
	mt, _ := protoregistry.GlobalTypes.FindMessageByName(desc.FullName())
	for name, v := range obj {
		fd := fieldOf(desc, name)
		if fd == nil {
			s.say(join(path, name), "unknown field %q in %s", name, desc.FullName())
			continue
		}
		at := join(path, string(fd.Name()))
		before := len(s.found)
		s.field(at, fd, v)
		if len(s.found) > before || mt == nil {
			continue
		}
		if err := reread(mt, map[string]any{name: v}); err != nil {
			s.say(at, "%s", strings.ReplaceAll(plain(err), "field "+fd.JSONName()+":", "field "+string(fd.Name())+":"))
		}
	}
}

func fieldOf(desc protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := desc.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return desc.Fields().ByTextName(name)
}

func (s *shape) field(path string, fd protoreflect.FieldDescriptor, v any) {
	m := elem(fd)
	if m == nil {
		return
	}
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			s.message(fmt.Sprintf("%s[%d]", path, i), m, e)
		}
	case map[string]any:
		if !fd.IsMap() {
			s.message(path, m, v)
			return
		}
		for k, e := range v {
			s.message(fmt.Sprintf("%s[%q]", path, k), m, e)
		}
	}
}

func (s *shape) any(path string, obj map[string]any) {
	if len(obj) == 0 {
		return
	}
	url, ok := obj["@type"].(string)
	if !ok {
		s.say(path, `an Any needs an "@type"`)
		return
	}
	mt, err := findAny(url)
	if err != nil {
		s.say(path, "unknown type %q", url)
		return
	}
	desc := mt.Descriptor()
	if wellKnown(desc) {
		return // its form is in "value"; the Any as a whole is read next
	}
	rest := maps.Clone(obj)
	delete(rest, "@type")
	s.message(path, desc, rest)
}

func findAny(url string) (protoreflect.MessageType, error) {
	return protoregistry.GlobalTypes.FindMessageByURL(url)
}
