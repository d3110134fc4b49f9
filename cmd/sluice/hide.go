package main

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// hidden is what stands for a secret value in a plan.
const hidden = "(hidden)"

// withoutSecrets is a copy of m in which the fields that Envoy's API marks as
// sensitive say nothing: a plan is posted where everybody reads it.
func withoutSecrets(m proto.Message) proto.Message {
	m = proto.Clone(m)
	hide(m.ProtoReflect())
	return m
}

func hide(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return
		}
		hide(inner.ProtoReflect())
		// What was just read can be written; if not, the value goes.
		if a.MarshalFrom(inner) != nil {
			a.Value = nil
		}
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case sensitive(fd):
			cover(m, fd)
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
				hide(e.Message())
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				hide(v.List().Get(i).Message())
			}
		case fd.Message() != nil && !fd.IsMap():
			hide(v.Message())
		}
		return true
	})
}

func cover(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsList() || fd.IsMap():
		m.Clear(fd)
	case fd.Kind() == protoreflect.StringKind:
		m.Set(fd, protoreflect.ValueOfString(hidden))
	case fd.Kind() == protoreflect.BytesKind:
		m.Set(fd, protoreflect.ValueOfBytes(nil))
	case fd.Message() != nil:
		m.Set(fd, m.NewField(fd))
	default:
		m.Clear(fd)
	}
}

// sensitive reads the mark by its name: the package that declares it is linked
// by Envoy's types.
func sensitive(fd protoreflect.FieldDescriptor) bool {
	marked := false
	fd.Options().ProtoReflect().Range(func(ext protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		marked = ext.FullName() == "udpa.annotations.sensitive" && v.Bool()
		return !marked
	})
	return marked
}
