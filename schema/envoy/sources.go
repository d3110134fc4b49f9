package envoy

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

// Source is a place in a message that says from where a resource comes.
type Source struct {
	// ConfigSource may be changed: the message is.
	*corev3.ConfigSource
	// Key is what comes from there; of scoped routes, which come all at once,
	// it has no name.
	Key schema.Key
	// Known is false if the field takes nothing that has a Key: Field says which
	// it is.
	Known bool
	Field string
}

// Ours reports whether the source is the server that sent the message itself.
func (s Source) Ours() bool {
	switch s.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self:
		return true
	}
	return false
}

// Sources calls visit with each source of configuration in msg, also in the
// messages of every Any, and writes what visit changes into msg. It ends with the
// first error of visit, or at an Any that cannot be read.
func Sources(msg proto.Message, visit func(Source) error) error {
	w := sourceWalk{visit: visit}
	return w.message(msg.ProtoReflect())
}

type sourceWalk struct {
	visit func(Source) error
	owner string // the enclosing cluster
}

func (w *sourceWalk) message(m protoreflect.Message) (err error) {
	if c, ok := m.Interface().(*clusterv3.Cluster); ok {
		w.owner = c.GetName()
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case elem(fd) == nil:
		case fd.IsList():
			for i, l := 0, v.List(); i < l.Len() && err == nil; i++ {
				err = w.field(m, fd, l.Get(i).Message())
			}
		case fd.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
				err = w.field(m, fd, e.Message())
				return err == nil
			})
		default:
			err = w.field(m, fd, v.Message())
		}
		return err == nil
	})
	return err
}

// field looks at one message of a field of m.
func (w *sourceWalk) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Message) error {
	switch inner := v.Interface().(type) {
	case *anypb.Any:
		return w.open(inner)
	case *corev3.ConfigSource:
		return w.source(m, fd, inner)
	case *corev3.ExtensionConfigSource:
		if inner.GetConfigSource() == nil {
			return w.message(v)
		}
		if err := w.source(m, fd, inner.GetConfigSource()); err != nil {
			return err
		}
		return w.message(v)
	}
	return w.message(v)
}

func (w *sourceWalk) source(m protoreflect.Message, fd protoreflect.FieldDescriptor, src *corev3.ConfigSource) error {
	s := Source{ConfigSource: src, Field: string(fd.FullName())}
	switch means := table[fd.FullName()]; {
	case s.Field == "envoy.config.core.v3.ExtensionConfigSource.config_source":
		return nil // met by the field that holds it
	case s.Field == "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds.scoped_rds_config_source":
		s.Key, s.Known = schema.Key{Type: schema.ScopedRoutes}, true
	case means.does == source:
		sibling := m.Descriptor().Fields().ByName(means.name)
		if sibling == nil || sibling.Kind() != protoreflect.StringKind || sibling.IsList() || sibling.IsMap() {
			break
		}
		s.Key, s.Known = schema.Key{Type: means.to, Name: m.Get(sibling).String()}, true
		if s.Key.Name == "" && means.to == schema.Endpoints {
			s.Key.Name = w.owner
		}
	}
	return w.visit(s)
}

// open visits the message of an Any, and puts it back if it was changed.
func (w *sourceWalk) open(a *anypb.Any) error {
	if a.GetTypeUrl() == "" && len(a.GetValue()) == 0 {
		return nil
	}
	inner, err := a.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("cannot read a %s: %w", a.GetTypeUrl(), err)
	}
	changed := false
	below := sourceWalk{owner: w.owner, visit: func(s Source) error {
		before := proto.Clone(s.ConfigSource)
		err := w.visit(s)
		changed = changed || !proto.Equal(before, s.ConfigSource)
		return err
	}}
	if err := below.message(inner.ProtoReflect()); err != nil || !changed {
		return err
	}
	return anypb.MarshalFrom(a, inner, proto.MarshalOptions{Deterministic: true})
}
