package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// fieldChange is one field of a message that differs.
type fieldChange struct {
	path          string // virtual_hosts["api"].routes["/"].timeout
	before, after string // empty: it was not, or is no longer, set
	at            []elemStep
}

// elemStep is one element of a list on the way to a field, by its place on either
// side; -1 is none.
type elemStep struct {
	list          string
	key           string
	before, after int
}

// diffFields lists what differs between two messages of one type, in the order of
// their fields. Elements of lists are paired by their names, where they have any,
// so that an insertion is not a change of all that follows.
func diffFields(a, b proto.Message) []fieldChange {
	d := differ{}
	d.message("", a.ProtoReflect(), b.ProtoReflect())
	return d.found
}

type differ struct {
	at    []elemStep
	found []fieldChange
}

func (d *differ) say(path, before, after string) {
	d.found = append(d.found, fieldChange{path, before, after, slices.Clone(d.at)})
}

func (d *differ) message(path string, a, b protoreflect.Message) {
	if proto.Equal(a.Interface(), b.Interface()) {
		return
	}
	if x, ok := a.Interface().(*anypb.Any); ok {
		d.any(path, x, b.Interface().(*anypb.Any))
		return
	}
	skip := protoreflect.Name("")
	if x, ok := a.Interface().(*routev3.RouteAction); ok {
		if d.destination(path, x, b.Interface().(*routev3.RouteAction)) {
			skip = "cluster_specifier"
		}
	}
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if o := fd.ContainingOneof(); o != nil && o.Name() == skip || !a.Has(fd) && !b.Has(fd) {
			continue
		}
		d.field(below(path, string(fd.Name())), fd, a, b)
	}
}

func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (d *differ) field(path string, fd protoreflect.FieldDescriptor, a, b protoreflect.Message) {
	switch {
	case fd.IsMap():
		d.mapped(path, fd, a.Get(fd).Map(), b.Get(fd).Map())
	case fd.IsList() && fd.Message() != nil:
		d.list(path, a.Get(fd).List(), b.Get(fd).List())
	case fd.Message() != nil && !fd.IsList() && a.Has(fd) && b.Has(fd) && !atom(fd.Message()):
		d.message(path, a.Get(fd).Message(), b.Get(fd).Message())
	default:
		before, after := valueOf(a, fd), valueOf(b, fd)
		if before != after {
			d.say(path, before, after)
		}
	}
}

// atom reports whether a message reads best as one value: durations, wrappers.
func atom(m protoreflect.MessageDescriptor) bool {
	return strings.HasPrefix(string(m.FullName()), "google.protobuf.") && m.FullName() != "google.protobuf.Any"
}

func (d *differ) any(path string, a, b *anypb.Any) {
	x, errX := a.UnmarshalNew()
	y, errY := b.UnmarshalNew()
	if errX != nil || errY != nil || a.TypeUrl != b.TypeUrl {
		d.say(path, inline(a), inline(b))
		return
	}
	d.message(path, x.ProtoReflect(), y.ProtoReflect())
}

// destination shows where a route sends requests as one value, however it is
// written: api-v1: 90, api-v2: 10. It reports whether that says all.
func (d *differ) destination(path string, a, b *routev3.RouteAction) bool {
	path = strings.TrimSuffix(path, ".route") + "."
	x, y := a.GetWeightedClusters(), b.GetWeightedClusters()
	switch {
	case x != nil && y != nil:
		if weightWords(x) == weightWords(y) || !onlyWeights(x, y) {
			return false
		}
		d.say(path+"weighted_clusters", weightWords(x), weightWords(y))
	case x != nil && b.GetCluster() != "":
		d.say(path+"weighted_clusters", weightWords(x), alone(b.GetCluster(), x))
	case y != nil && a.GetCluster() != "":
		d.say(path+"weighted_clusters", alone(a.GetCluster(), y), weightWords(y))
	case a.GetCluster() != "" && b.GetCluster() != "" && a.GetCluster() != b.GetCluster():
		d.say(path+"cluster", a.GetCluster(), b.GetCluster())
	default:
		return false
	}
	return true
}

func weightWords(w *routev3.WeightedCluster) string {
	var parts []string
	for _, c := range w.GetClusters() {
		parts = append(parts, fmt.Sprintf("%s: %d", c.GetName(), c.GetWeight().GetValue()))
	}
	return strings.Join(parts, ", ")
}

// alone is a single cluster in the scale of a split.
func alone(cluster string, scale *routev3.WeightedCluster) string {
	var total uint32
	for _, c := range scale.GetClusters() {
		total += c.GetWeight().GetValue()
	}
	return fmt.Sprintf("%s: %d", cluster, total)
}

// onlyWeights reports whether two splits differ in their clusters and weights
// alone.
func onlyWeights(a, b *routev3.WeightedCluster) bool {
	rest := func(w *routev3.WeightedCluster) *routev3.WeightedCluster {
		w = proto.CloneOf(w)
		plain := func(c *routev3.WeightedCluster_ClusterWeight) bool {
			c.Weight = nil
			return proto.Size(c) == proto.Size(&routev3.WeightedCluster_ClusterWeight{Name: c.Name})
		}
		w.Clusters = slices.DeleteFunc(w.Clusters, plain)
		return w
	}
	return proto.Equal(rest(a), rest(b))
}

func (d *differ) mapped(path string, fd protoreflect.FieldDescriptor, a, b protoreflect.Map) {
	keys := map[string]protoreflect.MapKey{}
	for _, m := range []protoreflect.Map{a, b} {
		m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys[k.String()] = k
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		k, at := keys[name], fmt.Sprintf("%s[%q]", path, name)
		if fd.MapValue().Message() != nil && a.Has(k) && b.Has(k) {
			d.message(at, a.Get(k).Message(), b.Get(k).Message())
			continue
		}
		var before, after string
		if a.Has(k) {
			before = scalar(fd.MapValue(), a.Get(k))
		}
		if b.Has(k) {
			after = scalar(fd.MapValue(), b.Get(k))
		}
		if before != after {
			d.say(at, before, after)
		}
	}
}

func (d *differ) list(path string, a, b protoreflect.List) {
	ka, okA := elementKeys(a)
	kb, okB := elementKeys(b)
	if !okA || !okB {
		ka, kb = places(a.Len()), places(b.Len())
	}
	for i, k := range ka {
		at := fmt.Sprintf("%s[%s]", path, k)
		j := slices.Index(kb, k)
		d.at = append(d.at, elemStep{path, k, i, j})
		if j < 0 {
			d.say(at, element(a.Get(i).Message().Interface()), "")
		} else {
			d.message(at, a.Get(i).Message(), b.Get(j).Message())
		}
		d.at = d.at[:len(d.at)-1]
	}
	for j, k := range kb {
		if !slices.Contains(ka, k) {
			d.at = append(d.at, elemStep{path, k, -1, j})
			d.say(fmt.Sprintf("%s[%s]", path, k), "", element(b.Get(j).Message().Interface()))
			d.at = d.at[:len(d.at)-1]
		}
	}
	both := func(all, other []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(k string) bool { return !slices.Contains(other, k) })
	}
	if before, after := both(ka, kb), both(kb, ka); !slices.Equal(before, after) {
		d.say(path+" (order)", strings.Join(before, ", "), strings.Join(after, ", "))
	}
}

func places(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

// elementKeys names the elements of a list, quoted; ok is false if they have no
// names, or two have one.
func elementKeys(l protoreflect.List) (keys []string, ok bool) {
	seen := map[string]bool{}
	for i := range l.Len() {
		k := elementKey(l.Get(i).Message())
		if k == "" || seen[k] {
			return nil, false
		}
		seen[k] = true
		keys = append(keys, strconv.Quote(k))
	}
	return keys, true
}

// elementKey is what tells an element from its neighbours: its name, a route's
// match, an endpoint's address, a locality's zone.
func elementKey(m protoreflect.Message) string {
	for _, path := range [][]protoreflect.Name{
		{"name"},
		{"match", "path"},
		{"match", "prefix"},
		{"endpoint", "address", "socket_address"},
		{"locality", "zone"},
		{"header", "key"},
		{"key"},
	} {
		if k := textAt(m, path); k != "" {
			return k
		}
	}
	return ""
}

func textAt(m protoreflect.Message, path []protoreflect.Name) string {
	fd := m.Descriptor().Fields().ByName(path[0])
	if fd == nil || !m.Has(fd) || fd.IsList() || fd.IsMap() {
		return ""
	}
	switch {
	case len(path) > 1 && fd.Message() != nil:
		return textAt(m.Get(fd).Message(), path[1:])
	case len(path) > 1:
		return ""
	case fd.Name() == "socket_address":
		s := m.Get(fd).Message()
		fields := s.Descriptor().Fields()
		return fmt.Sprintf("%v:%v", s.Get(fields.ByName("address")), s.Get(fields.ByName("port_value")))
	case fd.Kind() == protoreflect.StringKind:
		return m.Get(fd).String()
	}
	return ""
}

func valueOf(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	if !m.Has(fd) {
		return ""
	}
	if fd.IsList() {
		var parts []string
		for l, i := m.Get(fd).List(), 0; i < l.Len(); i++ {
			parts = append(parts, scalar(fd, l.Get(i)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return scalar(fd, m.Get(fd))
}

func scalar(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return inline(v.Message().Interface())
	case protoreflect.EnumKind:
		if e := fd.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
	case protoreflect.StringKind:
		return word(v.String())
	case protoreflect.BytesKind:
		return fmt.Sprintf("%d bytes", len(v.Bytes()))
	}
	return fmt.Sprint(v.Interface())
}

// element is a whole element of a list on one line. What names it is in its path.
func element(m proto.Message) string {
	switch m := m.(type) {
	case *routev3.Route:
		rest := proto.CloneOf(m)
		rest.Name, rest.Match = "", nil
		to := ""
		if a := rest.GetRoute(); a.GetCluster() != "" || a.GetWeightedClusters() != nil {
			to = a.GetCluster() + weightWords(a.GetWeightedClusters())
			a.ClusterSpecifier = nil
		}
		if proto.Size(rest.GetRoute()) == 0 && rest.GetRoute() != nil {
			rest.Action = nil
		}
		if words := inline(rest); words != "{}" {
			to = strings.TrimSpace(to + " " + words)
		}
		return inline(m.GetMatch()) + " → " + to
	case *endpointv3.LbEndpoint:
		return fmt.Sprintf("%s, weight %d", elementKey(m.ProtoReflect()), max(m.GetLoadBalancingWeight().GetValue(), 1))
	}
	return inline(m)
}

// inline is a message on one line: {prefix: /cart, timeout: 2s}.
func inline(m proto.Message) string {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return string(m.ProtoReflect().Descriptor().FullName())
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return string(data)
	}
	return flow(tree)
}

func flow(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, word(k)+": "+flow(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, flow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return word(v)
	}
	return fmt.Sprint(v)
}

// word is a string, quoted if it could be taken for something else.
func word(s string) string {
	if s == "" || strings.ContainsAny(s, " ,{}[]\"\n\t") {
		return strconv.Quote(s)
	}
	return s
}
