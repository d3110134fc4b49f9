package envoy

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

const anyName = "google.protobuf.Any"

// plan is what a walk does in messages of one type: it reads the fields that
// mean something and goes into those below which some may be. All others, the
// most, it never looks at.
type plan struct {
	desc  protoreflect.MessageDescriptor
	steps []step
	note  string // why a message of this type is unprovable
}

type step struct {
	field protoreflect.FieldDescriptor
	oneof protoreflect.OneofDescriptor // that the field is of, or nil
	means *meaning                     // nil if the table does not list the field
	any   bool
	into  *plan // of the message, or of the map's values; nil if nothing is below
}

// plans holds the plan of each descriptor that was met, or nil if nothing below
// it means anything. Descriptors live as long as the process does.
var plans struct {
	sync.Mutex
	fast sync.Map // protoreflect.MessageDescriptor → *plan
}

func planOf(desc protoreflect.MessageDescriptor) *plan {
	if p, ok := plans.fast.Load(desc); ok {
		return p.(*plan)
	}
	plans.Lock()
	defer plans.Unlock()
	b := planner{made: map[protoreflect.MessageDescriptor]*plan{}}
	b.collect(desc)
	b.mark()
	b.build()
	p, _ := plans.fast.Load(desc)
	return p.(*plan)
}

// planner makes the plans of a descriptor and of all that it can hold. Messages
// are recursive (a route's action holds routes), so it first collects all, then
// marks from the leaves up, then links.
type planner struct {
	order   []protoreflect.MessageDescriptor
	made    map[protoreflect.MessageDescriptor]*plan
	holders map[protoreflect.MessageDescriptor][]protoreflect.MessageDescriptor
	live    map[protoreflect.MessageDescriptor]bool
}

// elem is the message type of a field or of a map's values, or nil.
func elem(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}

func (b *planner) collect(desc protoreflect.MessageDescriptor) {
	if _, ok := b.made[desc]; ok || desc.FullName() == anyName {
		return
	}
	b.made[desc] = &plan{desc: desc, note: opaque[desc.FullName()]}
	b.order = append(b.order, desc)
	for i := range desc.Fields().Len() {
		if m := elem(desc.Fields().Get(i)); m != nil {
			b.collect(m)
		}
	}
}

func (b *planner) mark() {
	b.holders = map[protoreflect.MessageDescriptor][]protoreflect.MessageDescriptor{}
	b.live = map[protoreflect.MessageDescriptor]bool{}
	var todo []protoreflect.MessageDescriptor
	for _, desc := range b.order {
		live := b.made[desc].note != ""
		for i := range desc.Fields().Len() {
			fd := desc.Fields().Get(i)
			m := elem(fd)
			if m != nil {
				b.holders[m] = append(b.holders[m], desc)
			}
			live = live || m != nil && m.FullName() == anyName || meaningOf(fd) != nil
		}
		if live {
			b.live[desc] = true
			todo = append(todo, desc)
		}
	}
	for len(todo) > 0 {
		desc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, h := range b.holders[desc] {
			if !b.live[h] {
				b.live[h] = true
				todo = append(todo, h)
			}
		}
	}
}

func (b *planner) build() {
	for _, desc := range b.order {
		p := b.made[desc]
		if !b.live[desc] {
			plans.fast.Store(desc, (*plan)(nil))
			continue
		}
		for i := range desc.Fields().Len() {
			fd := desc.Fields().Get(i)
			s := step{field: fd, means: meaningOf(fd)}
			if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
				s.oneof = o
			}
			if m := elem(fd); m != nil {
				s.any = m.FullName() == anyName
				if b.live[m] {
					s.into = b.made[m]
				}
			}
			if s.means != nil || s.any || s.into != nil {
				p.steps = append(p.steps, s)
			}
		}
	}
	for _, desc := range b.order {
		if b.live[desc] {
			plans.fast.LoadOrStore(desc, b.made[desc])
		}
	}
}

// meaningOf is what the table says of a field, if the walk has to act on it.
func meaningOf(fd protoreflect.FieldDescriptor) *meaning {
	if m, ok := table[fd.FullName()]; ok && m.does != nothing {
		return &m
	}
	return nil
}

// place is one step of the way from the root to a message.
type place struct {
	field protoreflect.FieldDescriptor
	index int
	key   protoreflect.MapKey
}

// visitor is told what a walk meets. Any of its functions may be nil. It is used
// for one walk.
type visitor struct {
	message func(*plan, protoreflect.Message) // before its fields
	after   func(*plan, protoreflect.Message)
	field   func(protoreflect.Message, *step, protoreflect.Value)
	inside  func(proto.Message)     // the message of an Any
	failed  func(*anypb.Any, error) // an Any that cannot be read

	path []place
}

// where is the path to the message at hand, or to one of its fields: it is only
// written out when there is something to say.
func (v *visitor) where(field ...protoreflect.FieldDescriptor) string {
	var parts []string
	for _, p := range v.path {
		s := string(p.field.Name())
		switch {
		case p.field.IsMap():
			s += fmt.Sprintf("[%q]", p.key.String())
		case p.field.IsList():
			s += fmt.Sprintf("[%d]", p.index)
		}
		parts = append(parts, s)
	}
	for _, fd := range field {
		parts = append(parts, string(fd.Name()))
	}
	return strings.Join(parts, ".")
}

// walk visits m and all below it, the messages of every Any included.
func (v *visitor) walk(m protoreflect.Message) {
	if p := planOf(m.Descriptor()); p != nil {
		v.descend(p, m)
	}
}

func (v *visitor) descend(p *plan, m protoreflect.Message) {
	if v.message != nil {
		v.message(p, m)
	}
	var choice protoreflect.OneofDescriptor
	var chosen protoreflect.FieldDescriptor
	for i := range p.steps {
		s := &p.steps[i]
		if s.oneof == nil {
			if !m.Has(s.field) {
				continue
			}
		} else {
			if s.oneof != choice {
				choice, chosen = s.oneof, m.WhichOneof(s.oneof)
			}
			if s.field != chosen {
				continue
			}
		}
		v.step(s, m)
	}
	if v.after != nil {
		v.after(p, m)
	}
}

// step acts on a field that is set, and goes into it.
func (v *visitor) step(s *step, m protoreflect.Message) {
	val := m.Get(s.field)
	if s.means != nil && v.field != nil {
		v.field(m, s, val)
	}
	switch {
	case s.into == nil && !s.any:
	case s.field.IsList():
		for i, l := 0, val.List(); i < l.Len(); i++ {
			v.enter(place{field: s.field, index: i}, s, l.Get(i).Message())
		}
	case s.field.IsMap():
		val.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
			v.enter(place{field: s.field, key: k}, s, e.Message())
			return true
		})
	default:
		v.enter(place{field: s.field}, s, val.Message())
	}
}

func (v *visitor) enter(at place, s *step, m protoreflect.Message) {
	v.path = append(v.path, at)
	if s.any {
		v.open(m)
	} else {
		v.descend(s.into, m)
	}
	v.path = v.path[:len(v.path)-1]
}

// open walks the message of an Any. An empty Any is none.
func (v *visitor) open(m protoreflect.Message) {
	a, ok := m.Interface().(*anypb.Any)
	if !ok { // in a message that is not generated
		fields := m.Descriptor().Fields()
		a = &anypb.Any{TypeUrl: m.Get(fields.ByName("type_url")).String(), Value: m.Get(fields.ByName("value")).Bytes()}
	}
	if a.GetTypeUrl() == "" && len(a.GetValue()) == 0 {
		return
	}
	inner, err := a.UnmarshalNew()
	if err != nil {
		if v.failed != nil {
			v.failed(a, err)
		}
		return
	}
	if v.inside != nil {
		v.inside(inner)
	}
	v.walk(inner.ProtoReflect())
}
