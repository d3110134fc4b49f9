package envoy

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

// References lists what msg and all messages in it refer to, sorted. Of several
// edges to one resource the strictest stays, in the order of schema.Edge: a
// cluster that takes requests and is also called by a filter is traffic.
//
// A source of configuration is this server's if it is ads or self, or an API
// whose clusters are all in own: the names that nodes' bootstraps give this
// server. What comes from another source is not referred to; the cluster that
// leads there is, as one that a filter calls. An Any that cannot be read is an
// error.
func References(msg proto.Message, own ...string) ([]schema.Ref, error) {
	c := newCollector(own)
	c.visitor.failed = c.failed
	c.walk(msg.ProtoReflect())
	if c.err != nil {
		return nil, c.err
	}
	if len(c.refs) == 0 {
		return nil, nil
	}
	refs := make([]schema.Ref, 0, len(c.refs))
	for k, e := range c.refs {
		refs = append(refs, schema.Ref{Key: k, Edge: e})
	}
	slices.SortFunc(refs, compareRefs)
	return refs, nil
}

type collector struct {
	visitor
	own    []string
	refs   map[schema.Key]schema.Edge
	owner  string // the enclosing cluster
	warm   int    // how many warm routes enclose this place
	doubts []string
	err    error
}

func newCollector(own []string) *collector {
	c := &collector{own: own, refs: map[schema.Key]schema.Edge{}}
	c.visitor = visitor{message: c.enter, after: c.leave, field: c.field}
	return c
}

var (
	clusterType = (*clusterv3.Cluster)(nil).ProtoReflect().Descriptor()
	routeType   = (*routev3.Route)(nil).ProtoReflect().Descriptor()
)

func (c *collector) enter(p *plan, m protoreflect.Message) {
	if p.note != "" {
		c.doubt(c.where(), p.note)
	}
	switch p.desc {
	case clusterType:
		c.owner = m.Get(p.desc.Fields().ByName("name")).String()
	case routeType:
		if r, ok := m.Interface().(*routev3.Route); ok && isWarm(r) {
			c.warm++
		}
	}
}

func (c *collector) leave(p *plan, m protoreflect.Message) {
	if p.desc != routeType {
		return
	}
	if r, ok := m.Interface().(*routev3.Route); ok && isWarm(r) {
		c.warm--
	}
}

func (c *collector) failed(a *anypb.Any, err error) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: cannot read a %s: %w", c.where(), a.GetTypeUrl(), err)
	}
}

func (c *collector) doubt(where, why string) {
	if where != "" {
		where += ": "
	}
	c.doubts = append(c.doubts, where+why)
}

func (c *collector) field(m protoreflect.Message, s *step, v protoreflect.Value) {
	switch s.means.does {
	case names:
		c.add(s.means, s.field, v)
	case source:
		if c.ours(v.Message().Interface()) {
			sibling := m.Descriptor().Fields().ByName(s.means.name)
			c.add(s.means, sibling, m.Get(sibling))
		}
	}
	if s.means.reason != "" {
		c.doubt(c.where(s.field), s.means.reason)
	}
}

// add refers to a string field's value or values, or to the keys of a map.
func (c *collector) add(means *meaning, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsList():
		for i, l := 0, v.List(); i < l.Len(); i++ {
			c.ref(means, l.Get(i).String())
		}
		return
	case fd.IsMap():
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			c.ref(means, k.String())
			return true
		})
		return
	}
	name := v.String()
	if name == "" && means.to == schema.Endpoints {
		name = c.owner
	}
	c.ref(means, name)
}

func (c *collector) ref(means *meaning, name string) {
	if name == "" {
		return
	}
	edge := means.edge
	if c.warm > 0 && edge == schema.Traffic {
		edge = schema.Child
	}
	k := schema.Key{Type: means.to, Name: name}
	if old, ok := c.refs[k]; !ok || edge < old {
		c.refs[k] = edge
	}
}

// ours reports whether a ConfigSource, or that of an ExtensionConfigSource, is
// this server.
func (c *collector) ours(m protoreflect.ProtoMessage) bool {
	src, ok := m.(*corev3.ConfigSource)
	if !ok {
		ext, ok := m.(*corev3.ExtensionConfigSource)
		if !ok {
			return false
		}
		src = ext.GetConfigSource()
	}
	switch src.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self:
		return true
	}
	clusters := slices.Clone(src.GetApiConfigSource().GetClusterNames())
	for _, g := range src.GetApiConfigSource().GetGrpcServices() {
		clusters = append(clusters, g.GetEnvoyGrpc().GetClusterName())
	}
	for _, name := range clusters {
		if !slices.Contains(c.own, name) {
			return false
		}
	}
	return len(clusters) > 0
}

// Unprovable says what in msg refers to resources that only a running proxy can
// name, and where: "virtual_hosts[0].routes[1].route.cluster_header: a request
// header chooses the cluster". It is sorted, and empty if References is all.
func Unprovable(msg proto.Message) []string {
	c := newCollector(nil)
	c.visitor.failed = c.unread
	c.walk(msg.ProtoReflect())
	slices.Sort(c.doubts)
	return slices.Compact(c.doubts)
}

func (c *collector) unread(a *anypb.Any, _ error) {
	c.doubt(c.where(), "a "+a.GetTypeUrl()+" cannot be read")
}
