package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Violation is one thing that is wrong with a message.
type Violation struct {
	// Path leads to the field by its protobuf names and goes on inside of an
	// Any: filter_chains[0].filters[1].typed_config.stat_prefix. The keys of
	// maps are quoted in brackets. It is empty for the message as a whole.
	Path    string
	Message string
}

func (v Violation) String() string {
	if v.Path == "" {
		return v.Message
	}
	return v.Path + ": " + v.Message
}

// Validate checks msg, and every message in an Any of it, against the rules that
// Envoy itself enforces (protoc-gen-validate). It reports all violations, sorted
// by path; nil means that there is none.
func Validate(msg proto.Message) []Violation {
	var c checker
	c.visitor = visitor{inside: c.check, failed: c.failed}
	c.check(msg)
	c.walk(msg.ProtoReflect())
	return sorted(c.found)
}

func sorted(vs []Violation) []Violation {
	slices.SortFunc(vs, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(vs)
}

type checker struct {
	visitor
	found []Violation
}

func (c *checker) failed(a *anypb.Any, err error) {
	c.found = append(c.found, Violation{c.where(), unreadable(a.GetTypeUrl(), err)})
}

func unreadable(url string, err error) string {
	if _, err := findAny(url); err != nil {
		return fmt.Sprintf("unknown type %q", url)
	}
	return fmt.Sprintf("cannot read a %s: %v", url, err)
}

func (c *checker) check(msg proto.Message) {
	all, ok := msg.(interface{ ValidateAll() error })
	if !ok {
		return
	}
	if err := all.ValidateAll(); err != nil {
		c.explain(c.where(), msg.ProtoReflect().Descriptor(), err)
	}
}

// pgvError is what every generated error of protoc-gen-validate is.
type pgvError interface {
	Field() string
	Reason() string
	Cause() error
}

// explain turns the generated errors, which speak of Go's fields, into
// violations that speak of the API's. Desc is the message that err is about, or
// nil where that is not known.
func (c *checker) explain(path string, desc protoreflect.MessageDescriptor, err error) {
	var many interface{ AllErrors() []error }
	if errors.As(err, &many) {
		for _, e := range many.AllErrors() {
			c.explain(path, desc, e)
		}
		return
	}
	var one pgvError
	if !errors.As(err, &one) {
		c.found = append(c.found, Violation{path, err.Error()})
		return
	}
	sub, below, choice := locate(desc, one.Field())
	path = join(path, sub)
	switch {
	case one.Cause() != nil:
		c.explain(path, below, one.Cause())
	case choice != nil:
		c.found = append(c.found, Violation{path, "one of " + oneof(choice) + " is required"})
	default:
		c.found = append(c.found, Violation{path, one.Reason()})
	}
}

func join(path, sub string) string {
	if path == "" || sub == "" {
		return path + sub
	}
	return path + "." + sub
}

// locate reads a generated field, "VirtualHosts[0]", as a path in desc. It
// returns the message type below it, or the oneof that it names.
func locate(desc protoreflect.MessageDescriptor, field string) (string, protoreflect.MessageDescriptor, protoreflect.OneofDescriptor) {
	name, index := field, ""
	if i := strings.IndexByte(field, '['); i >= 0 {
		name, index = field[:i], field[i:]
	}
	if desc == nil {
		return field, nil, nil
	}
	for i := range desc.Fields().Len() {
		fd := desc.Fields().Get(i)
		if goName(string(fd.Name())) != name {
			continue
		}
		if fd.IsMap() && index != "" {
			index = fmt.Sprintf("[%q]", index[1:len(index)-1])
		}
		return string(fd.Name()) + index, elem(fd), nil
	}
	for i := range desc.Oneofs().Len() {
		if o := desc.Oneofs().Get(i); goName(string(o.Name())) == name {
			return string(o.Name()), nil, o
		}
	}
	return field, nil, nil
}

func oneof(o protoreflect.OneofDescriptor) string {
	var names []string
	for i := range o.Fields().Len() {
		names = append(names, string(o.Fields().Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

// goName is the name that protoc-gen-go gives a field.
func goName(s string) string {
	var b strings.Builder
	upper := true
	for i := range len(s) {
		switch c := s[i]; {
		case c == '_' && i+1 < len(s) && 'a' <= s[i+1] && s[i+1] <= 'z':
			upper = true
		case upper && 'a' <= c && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
			upper = false
		default:
			b.WriteByte(c)
			upper = '0' <= c && c <= '9'
		}
	}
	return b.String()
}
