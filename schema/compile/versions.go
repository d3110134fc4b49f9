package compile

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// sinceText says with which release of Envoy a field or a message came: made by
// gensince.go. What it does not list is as old as 1.32, of which nothing older is
// known; 1.33 and 1.34 are told from 1.35 by nobody.
//
//go:embed since.txt
var sinceText string

var since = sync.OnceValue(func() map[protoreflect.FullName]release {
	m := map[protoreflect.FullName]release{}
	for line := range strings.Lines(sinceText) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		m[protoreflect.FullName(name)], _ = releaseOf(v)
	}
	return m
})

// release is a minor version of Envoy.
type release struct{ major, minor int }

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(o release) bool {
	return r.major < o.major || r.major == o.major && r.minor < o.minor
}

func releaseOf(s string) (release, bool) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return release{}, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return release{major, minor}, err1 == nil && err2 == nil
}

// use is a place in a message that is worth a word.
type use struct {
	path string
	what protoreflect.FullName
	came release // of what is new
}

// survey is what a message uses that not every node knows, or should.
type survey struct {
	newer      []use
	deprecated []use
	endless    []string // paths of an initial_fetch_timeout of 0
}

func surveyOf(msg proto.Message) *survey {
	s := &survey{}
	s.message("", msg.ProtoReflect())
	by := func(a, b use) int { return strings.Compare(a.path, b.path) }
	slices.SortFunc(s.newer, by)
	slices.SortFunc(s.deprecated, by)
	slices.Sort(s.endless)
	return s
}

func (s *survey) message(path string, m protoreflect.Message) {
	if v, ok := since()[m.Descriptor().FullName()]; ok {
		s.newer = append(s.newer, use{path, m.Descriptor().FullName(), v})
	}
	if a, ok := m.Interface().(*anypb.Any); ok {
		if inner, err := a.UnmarshalNew(); err == nil {
			s.message(path, inner.ProtoReflect())
		}
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := string(fd.Name())
		if path != "" {
			at = path + "." + at
		}
		s.field(at, fd, v)
		return true
	})
}

func (s *survey) field(at string, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	if came, ok := since()[fd.FullName()]; ok {
		s.newer = append(s.newer, use{at, fd.FullName(), came})
	}
	if o, ok := fd.Options().(*descriptorpb.FieldOptions); ok && o.GetDeprecated() {
		s.deprecated = append(s.deprecated, use{path: at, what: fd.FullName()})
	}
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() == nil {
			return
		}
		v.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
			s.message(fmt.Sprintf("%s[%q]", at, k.String()), e.Message())
			return true
		})
	case fd.Message() == nil:
	case fd.IsList():
		for i := range v.List().Len() {
			s.message(fmt.Sprintf("%s[%d]", at, i), v.List().Get(i).Message())
		}
	default:
		if d, ok := v.Message().Interface().(*durationpb.Duration); ok {
			if fd.Name() == "initial_fetch_timeout" && d.AsDuration() == time.Duration(0) {
				s.endless = append(s.endless, at)
			}
			return
		}
		s.message(at, v.Message())
	}
}

// authored is a resource that its author wrote, or patched, in Envoy's words.
type authored struct {
	msg   proto.Message
	body  *node // stands where it was written
	allow map[string]string
	entry schema.Pos // of a patched one: what stands there is not the author's
}

// examine warns of what is doubtful about Envoy's own words, whatever the nodes.
func (lo *lowering) examine(k schema.Key, a authored) {
	lo.authored[k] = a
	what := quoted(k.Type.Noun(), k.Name)
	warn := func(path, code, hint, format string, args ...any) {
		lo.report(a.allow, schema.Diagnostic{
			Pos: a.body.follow(path).pos, Severity: schema.Warning, Code: code, Hint: hint, Message: what + ": " + fmt.Sprintf(format, args...),
		})
	}
	for _, doubt := range envoy.Unprovable(a.msg) {
		path, _, ok := strings.Cut(doubt, ": ")
		if !ok {
			path = ""
		}
		warn(path, "unproven", `allow: unproven: "why it is safe"`, "%s; sluice cannot prove what it needs", doubt)
	}
	s := surveyOf(a.msg)
	for _, path := range s.endless {
		warn(path, "initial-fetch-timeout", "leave it out: Envoy's default is 15s",
			"%s is 0: a node would wait for ever for what may never come", path)
	}
	for _, u := range s.deprecated {
		if a.body.follow(u.path).pos == a.entry {
			continue
		}
		warn(u.path, "deprecated-field", "", "%s is deprecated (%s)", u.path, u.what)
	}
}

// newer warns of what the oldest nodes of a group do not know.
func (lo *lowering) newer(name string, g *group, reached []*schema.Resource) {
	if g.client() != schema.Envoy || len(g.Versions) == 0 {
		return
	}
	oldest, ok := release{}, false
	for _, v := range g.Versions {
		if r, valid := releaseOf(v); valid && (!ok || r.before(oldest)) {
			oldest, ok = r, true
		}
	}
	for _, r := range reached {
		lo.newerIn(name, oldest, r)
	}
}

func (lo *lowering) newerIn(group string, oldest release, r *schema.Resource) {
	if r.Body == nil {
		r = lo.find(r.Key, schema.Envoy) // live: its body is elsewhere
	}
	if r == nil {
		return
	}
	from := lo.fleet.Provenance.Of(r.Key)
	a, own := lo.authored[r.Key]
	if !own {
		msg, err := envoy.Unpack(r)
		if err != nil {
			return
		}
		a = authored{msg: msg, body: &node{pos: from.Pos}, allow: lo.allowOf(from)}
	}
	for _, u := range surveyOf(a.msg).newer {
		if !oldest.before(u.came) {
			continue
		}
		came := "came with Envoy " + u.came.String()
		if u.came == (release{1, 35}) {
			came = "came after Envoy 1.32, with 1.35 at the latest"
		}
		where := u.path
		if where == "" {
			where = string(u.what)
		}
		lo.report(a.allow, schema.Diagnostic{
			Pos: a.body.follow(u.path).pos, Severity: schema.Warning, Code: "newer-field",
			Message: fmt.Sprintf("%s: %s %s, but group %q has nodes of %s, which would refuse it or pass over it",
				quoted(r.Type.Noun(), r.Name), where, came, group, oldest),
		})
	}
}

// allowOf is what an entry's author allows.
func (m *model) allowOf(o schema.Origin) map[string]string {
	switch o.Kind {
	case "service":
		if s := m.services[o.Name]; s != nil {
			return s.Allow
		}
	case "listener":
		if l := m.listeners[o.Name]; l != nil {
			return l.Allow
		}
	}
	return nil
}
