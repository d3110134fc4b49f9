package compile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// raw reads a resource that its author wrote as Envoy's own message. Everything
// but the two words that are sluice's is strict protojson; no v3 resource has
// fields of their names. Its name is its key and may be left out.
func (lo *lowering) raw(k schema.Key, r *resource) {
	body := r.At.without("groups", "allow")
	msg, err := envoy.ParseJSON(k.Type, body.json())
	if err != nil {
		lo.violations(quoted(k.Type.Noun(), k.Name), r, explain(err))
		return
	}
	if inner := envoy.NameOf(msg); inner == "" {
		setName(msg, k.Name)
	} else if inner != k.Name && k.Type != schema.VirtualHosts {
		lo.error(r.At.at(nameField(msg)), "raw-name", "leave the name out: it is the key",
			"the %s %q is named %q inside", k.Type.Noun(), k.Name, inner)
		return
	}
	if bad := envoy.Validate(msg); len(bad) > 0 {
		lo.violations(quoted(k.Type.Noun(), k.Name), r, bad)
		return
	}
	if err := lo.follow(msg); err != nil {
		lo.error(r.At.pos, "envoy", "", "%v", err)
		return
	}
	res, err := envoy.Resource(msg, k.Name)
	if err != nil {
		lo.error(r.At.pos, "envoy", "", "%v", err)
		return
	}
	lo.reserved(body)
	lo.examine(k, authored{msg: msg, body: r.At, allow: r.Allow})
	lo.share(res, schema.Origin{Kind: "resource", Name: k.Name, Pos: r.At.pos})
}

func explain(err error) []envoy.Violation {
	var many envoy.FormatError
	if errors.As(err, &many) {
		return many
	}
	return []envoy.Violation{{Message: err.Error()}}
}

// violations says each at the author's own line.
func (lo *lowering) violations(what string, r *resource, vs []envoy.Violation) {
	for _, v := range vs {
		at := r.At.follow(v.Path)
		if t := at.get("@type"); t != nil && unknownType.MatchString(v.Message) {
			at = t
		}
		lo.report(r.Allow, schema.Diagnostic{Pos: at.pos, Code: "envoy", Message: what + ": " + v.String(), Hint: suggest(v.Message)})
	}
}

var (
	unknownField = regexp.MustCompile(`^unknown field "(.*)" in (.*)$`)
	unknownType  = regexp.MustCompile(`^unknown type "type.googleapis.com/(.*)"$`)
)

// suggest guesses what a word that Envoy does not know was to be.
func suggest(message string) string {
	if m := unknownField.FindStringSubmatch(message); m != nil {
		desc, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(m[2]))
		if err != nil {
			return ""
		}
		var names []string
		for i := range desc.(protoreflect.MessageDescriptor).Fields().Len() {
			names = append(names, string(desc.(protoreflect.MessageDescriptor).Fields().Get(i).Name()))
		}
		return meant(m[1], names, "")
	}
	if m := unknownType.FindStringSubmatch(message); m != nil {
		var names []string
		protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
			names = append(names, string(t.Descriptor().FullName()))
			return true
		})
		slices.Sort(names)
		if best := nearest(m[1], names); best != "" {
			return fmt.Sprintf("did you mean %q?", "type.googleapis.com/"+best)
		}
	}
	return ""
}

// follow walks a path of protobuf names, filter_chains[0].filters, as far as the
// node goes; a field may stand there by its JSON name.
func (n *node) follow(path string) *node {
	for path != "" {
		var next *node
		switch {
		case path[0] == '.':
			path = path[1:]
			continue
		case path[0] == '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return n
			}
			index := path[1:end]
			path = path[end+1:]
			if i, err := strconv.Atoi(index); err == nil && i < len(n.elems) {
				next = n.elems[i]
			} else if key, err := strconv.Unquote(index); err == nil {
				next = n.get(key)
			}
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			name := path[:end]
			path = path[end:]
			if next = n.get(name); next == nil {
				next = n.get(jsonName(name))
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

func jsonName(s string) string {
	parts := strings.Split(s, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}

func nameField(msg proto.Message) string {
	if _, ok := msg.(*endpointv3.ClusterLoadAssignment); ok {
		return "cluster_name"
	}
	return "name"
}

func setName(msg proto.Message, name string) {
	m := msg.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(nameField(msg))), protoreflect.ValueOfString(name))
}

// reserved refuses the header that only the planner's warm routes may use.
func (lo *lowering) reserved(n *node) {
	if strings.EqualFold(n.text, envoy.WarmHeader) {
		lo.error(n.pos, "reserved-header", "", "the header %q is reserved", envoy.WarmHeader)
	}
	for _, f := range n.fields {
		lo.reserved(f.value)
	}
	for _, e := range n.elems {
		lo.reserved(e)
	}
}
