package envoy

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

// RenameClusters changes the names by which msg, and all messages in it, refer to
// clusters. A cluster's own name is no reference.
func RenameClusters(msg proto.Message, to func(string) string) error {
	_, err := renaming{to}.message(msg.ProtoReflect())
	return err
}

type renaming struct{ to func(string) string }

// message renames in m and below, and reports whether it changed anything.
func (r renaming) message(m protoreflect.Message) (changed bool, err error) {
	p := planOf(m.Descriptor())
	if p == nil {
		return false, nil
	}
	for i := range p.steps {
		s := &p.steps[i]
		if !m.Has(s.field) {
			continue
		}
		if s.means != nil && s.means.does == names && s.means.to == schema.Clusters {
			changed = r.names(m, s.field) || changed
		}
		if s.into == nil && !s.any {
			continue
		}
		below, err := r.below(m, s)
		if err != nil {
			return changed, err
		}
		changed = changed || below
	}
	return changed, nil
}

// names renames the strings of a field, or the keys of a map.
func (r renaming) names(m protoreflect.Message, fd protoreflect.FieldDescriptor) (changed bool) {
	switch {
	case fd.IsMap():
		mp := m.Mutable(fd).Map()
		moved := map[string]protoreflect.Value{}
		mp.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			if k.String() != r.to(k.String()) {
				moved[k.String()] = v
			}
			return true
		})
		for k, v := range moved {
			mp.Clear(protoreflect.ValueOfString(k).MapKey())
			mp.Set(protoreflect.ValueOfString(r.to(k)).MapKey(), v)
		}
		return len(moved) > 0
	case fd.IsList():
		l := m.Mutable(fd).List()
		for i := range l.Len() {
			if name := l.Get(i).String(); r.to(name) != name {
				l.Set(i, protoreflect.ValueOfString(r.to(name)))
				changed = true
			}
		}
		return changed
	}
	name := m.Get(fd).String()
	if name == "" || r.to(name) == name {
		return false
	}
	m.Set(fd, protoreflect.ValueOfString(r.to(name)))
	return true
}

// below renames in the messages of a field.
func (r renaming) below(m protoreflect.Message, s *step) (changed bool, err error) {
	one := func(v protoreflect.Value) {
		if err != nil {
			return
		}
		var did bool
		if s.any {
			did, err = r.packed(v.Message())
		} else {
			did, err = r.message(v.Message())
		}
		changed = changed || did
	}
	switch {
	case s.field.IsList():
		for i, l := 0, m.Mutable(s.field).List(); i < l.Len(); i++ {
			one(l.Get(i))
		}
	case s.field.IsMap():
		m.Mutable(s.field).Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			one(v)
			return true
		})
	default:
		one(m.Mutable(s.field))
	}
	return changed, err
}

// packed renames in the message of an Any, and packs it anew if that changed it.
func (r renaming) packed(m protoreflect.Message) (bool, error) {
	a, ok := m.Interface().(*anypb.Any)
	if !ok || a.GetTypeUrl() == "" {
		return false, nil
	}
	inner, err := a.UnmarshalNew()
	if err != nil {
		return false, fmt.Errorf("cannot read a %s: %w", a.GetTypeUrl(), err)
	}
	changed, err := r.message(inner.ProtoReflect())
	if err != nil || !changed {
		return false, err
	}
	return true, anypb.MarshalFrom(a, inner, proto.MarshalOptions{Deterministic: true})
}
