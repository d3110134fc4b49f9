package envoy

import (
	"bytes"
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

// Managers lists the HTTP connection managers in a listener, in their order.
func Managers(r *schema.Resource) ([]*hcmv3.HttpConnectionManager, error) {
	msg, err := Unpack(r)
	if err != nil {
		return nil, err
	}
	var out []*hcmv3.HttpConnectionManager
	v := visitor{message: func(_ *plan, m protoreflect.Message) {
		if h, ok := m.Interface().(*hcmv3.HttpConnectionManager); ok {
			out = append(out, h)
		}
	}}
	v.walk(msg.ProtoReflect())
	return out, nil
}

// FiltersOf lists the HTTP filters of a listener by name, each once. A nil
// listener has none.
func FiltersOf(r *schema.Resource) ([]string, error) {
	if r == nil {
		return nil, nil
	}
	managers, err := Managers(r)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range managers {
		for _, f := range m.GetHttpFilters() {
			if !slices.Contains(names, f.GetName()) {
				names = append(names, f.GetName())
			}
		}
	}
	return names, nil
}

// Prepare makes the version of a route table that sends requests where old does,
// and has what r says of some filters: a listener that gains them may then come
// first (rule P4). It is old itself if r says nothing more of them. A route is the
// same in both if its match is; ok is false if r says something of the filters in
// a virtual host of which not all of old's routes are in r.
func Prepare(old, r *schema.Resource, filters []string) (made *schema.Resource, ok bool, err error) {
	if old.Type != schema.Routes || !slices.ContainsFunc(filters, func(f string) bool { return bytes.Contains(r.Body, []byte(f)) }) {
		return old, true, nil
	}
	was, is, err := two[*routev3.RouteConfiguration](old, r)
	if err != nil {
		return nil, false, err
	}
	p := preparing{filters: filters, ok: true}
	p.copy(&was.TypedPerFilterConfig, is.GetTypedPerFilterConfig())
	for _, h := range was.GetVirtualHosts() {
		i := slices.IndexFunc(is.GetVirtualHosts(), func(o *routev3.VirtualHost) bool { return o.GetName() == h.GetName() })
		if i < 0 {
			p.ok = p.ok && !slices.ContainsFunc(is.GetVirtualHosts(), p.says)
			continue
		}
		p.host(h, is.GetVirtualHosts()[i])
	}
	if !p.changed || !p.ok {
		return old, p.ok, nil
	}
	body, err := encode(schema.Routes, was)
	if err != nil {
		return nil, false, fmt.Errorf("cannot encode %s: %w", old.Key, err)
	}
	refs, err := References(was)
	if err != nil {
		return nil, false, err
	}
	// What the author made optional stays so.
	may := map[schema.Key]bool{}
	for _, ref := range slices.Concat(old.Refs, r.Refs) {
		may[ref.Key] = may[ref.Key] || ref.Edge == schema.Optional
	}
	for i := range refs {
		if may[refs[i].Key] {
			refs[i].Edge = schema.Optional
		}
	}
	return schema.NewResource(old.Key, refs, body), true, nil
}

type preparing struct {
	filters     []string
	changed, ok bool
}

type filterConfigs = map[string]*anypb.Any

// copy takes over what from says of the filters and to does not.
func (p *preparing) copy(to *filterConfigs, from filterConfigs) {
	for _, f := range p.filters {
		if from[f] == nil || proto.Equal((*to)[f], from[f]) {
			continue
		}
		if *to == nil {
			*to = filterConfigs{}
		}
		(*to)[f] = from[f]
		p.changed = true
	}
}

func (p *preparing) host(h, in *routev3.VirtualHost) {
	p.copy(&h.TypedPerFilterConfig, in.GetTypedPerFilterConfig())
	for _, r := range h.GetRoutes() {
		if isWarm(r) {
			continue
		}
		i := slices.IndexFunc(in.GetRoutes(), func(o *routev3.Route) bool { return !isWarm(o) && proto.Equal(o.GetMatch(), r.GetMatch()) })
		if i < 0 {
			p.ok = p.ok && !p.says(in)
			continue
		}
		p.route(r, in.GetRoutes()[i])
	}
}

func (p *preparing) route(r, in *routev3.Route) {
	p.copy(&r.TypedPerFilterConfig, in.GetTypedPerFilterConfig())
	for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
		for _, o := range in.GetRoute().GetWeightedClusters().GetClusters() {
			if o.GetName() == c.GetName() {
				p.copy(&c.TypedPerFilterConfig, o.GetTypedPerFilterConfig())
			}
		}
	}
}

// says reports whether a virtual host says something of the filters.
func (p *preparing) says(h *routev3.VirtualHost) bool {
	in := func(m filterConfigs) bool {
		return slices.ContainsFunc(p.filters, func(f string) bool { return m[f] != nil })
	}
	return in(h.GetTypedPerFilterConfig()) || slices.ContainsFunc(h.GetRoutes(), func(r *routev3.Route) bool {
		return in(r.GetTypedPerFilterConfig()) || slices.ContainsFunc(r.GetRoute().GetWeightedClusters().GetClusters(),
			func(c *routev3.WeightedCluster_ClusterWeight) bool { return in(c.GetTypedPerFilterConfig()) })
	})
}
