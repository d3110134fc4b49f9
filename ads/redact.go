package ads

import (
	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

const redactedWord = "[redacted]"

// redacted is a resource for people to see: without what its fields' annotations
// call sensitive, such as a key that stands in a listener instead of a secret.
func redacted(r *schema.Resource) *anypb.Any {
	var a anypb.Any
	if len(r.Body) == 0 || proto.Unmarshal(r.Body, &a) != nil {
		return nil
	}
	redactAny(&a)
	return &a
}

// redactAny drops a value that cannot be read: who knows what it holds.
func redactAny(a *anypb.Any) {
	m, err := a.UnmarshalNew()
	if err == nil {
		redact(m.ProtoReflect())
		err = a.MarshalFrom(m)
	}
	if err != nil {
		a.Value = nil
	}
}

func redact(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		redactAny(a)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case proto.GetExtension(f.Options(), annotations.E_Sensitive).(bool):
			m.Clear(f)
			if f.Kind() == protoreflect.StringKind && !f.IsList() {
				m.Set(f, protoreflect.ValueOfString(redactedWord))
			}
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { redact(v.Message()); return true })
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				redact(v.List().Get(i).Message())
			}
		default:
			redact(v.Message())
		}
		return true
	})
}
