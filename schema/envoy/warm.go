package envoy

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/schema"
)

// WarmHeader is the header that warm routes match, in two ways that exclude each
// other (rule P6). No other route may use it.
const WarmHeader = "x-sluice-warm"

// WarmName is the name of warm routes.
const WarmName = "sluice-warm"

// Warm makes the version of a route table that names clusters in virtual hosts
// without sending them anything (rules P6 and G9): first in each virtual host
// stands one route that never matches, whose action is split over the clusters.
// It replaces the warm routes that r has. Their references are children: no
// traffic comes by them, but the clusters must be there. A virtual host that r
// lacks is an error; one without clusters gets no warm route.
//
// It works on the encoded table: what it does not touch stays as it is, byte by
// byte, whoever encoded it.
func Warm(r *schema.Resource, names map[string][]string) (*schema.Resource, error) {
	w := warming{names: names, warmed: map[string]bool{}}
	body, err := w.table(r)
	switch {
	case err != nil:
		return nil, err
	case w.found < len(names):
		return nil, fmt.Errorf("cannot warm %s: it lacks a virtual host of %d that are asked for", r.Key, len(names))
	}
	return schema.NewResource(r.Key, warmRefs(r.Refs, w.warmed), body), nil
}

// EqualButWarm reports whether two tables differ in warm routes at most.
func EqualButWarm(a, b *schema.Resource) bool {
	if a.Version == b.Version && a.Version != "" {
		return true
	}
	bare := func(r *schema.Resource) []byte {
		if r.Type == schema.Routes && bytes.Contains(r.Body, []byte(WarmName)) {
			w := warming{}
			if body, err := w.table(r); err == nil {
				return body
			}
		}
		return r.Body
	}
	return a.Key == b.Key && bytes.Equal(bare(a), bare(b))
}

// warming replaces the warm routes of a table.
type warming struct {
	names  map[string][]string // by virtual host
	found  int                 // how many of them
	warmed map[string]bool     // clusters
}

// table is the table's body with other warm routes.
func (w *warming) table(r *schema.Resource) ([]byte, error) {
	if r.Type != schema.Routes {
		return nil, fmt.Errorf("cannot warm %s: it is no route table", r.Key)
	}
	value, err := anyBytes(r)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(value)+len(value)/64)
	err = eachField(value, func(num protowire.Number, whole, content []byte) {
		if num == tableHosts {
			if host, changed := w.host(content); changed {
				out = protowire.AppendTag(out, tableHosts, protowire.BytesType)
				out = protowire.AppendBytes(out, host)
				return
			}
		}
		out = append(out, whole...)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot decode %s: %w", r.Key, err)
	}
	body := make([]byte, 0, len(r.Body)-len(value)+len(out)+8)
	err = eachField(r.Body, func(num protowire.Number, whole, _ []byte) {
		if num == anyValue {
			body = protowire.AppendTag(body, anyValue, protowire.BytesType)
			body = protowire.AppendBytes(body, out)
			return
		}
		body = append(body, whole...)
	})
	return body, err
}

// host replaces the warm routes of a virtual host: they stand first.
func (w *warming) host(raw []byte) ([]byte, bool) {
	h := hostOf(raw, nil)
	clusters, ok := w.names[h.Name()]
	if !ok && !h.MayBeWarm() {
		return raw, false
	}
	var first []byte
	if ok {
		w.found++
		if route := warmRoute(clusters); route != nil {
			// Encoding what this package made does not fail.
			first, _ = proto.MarshalOptions{Deterministic: true}.Marshal(route)
		}
		for _, c := range clusters {
			w.warmed[c] = true
		}
	}
	out := make([]byte, 0, len(raw)+len(first)+8)
	put := func() {
		if first != nil {
			out = protowire.AppendTag(out, hostRoutes, protowire.BytesType)
			out = protowire.AppendBytes(out, first)
			first = nil
		}
	}
	_ = eachField(raw, func(num protowire.Number, whole, content []byte) {
		if num >= hostRoutes {
			put()
		}
		if num == hostRoutes && encodesWarm(content) {
			return
		}
		out = append(out, whole...)
	})
	put()
	return out, true
}

// encodesWarm reports whether an encoded route is warm.
func encodesWarm(raw []byte) bool {
	if !bytes.Contains(raw, []byte(WarmName)) {
		return false
	}
	r := &routev3.Route{}
	return proto.Unmarshal(raw, r) == nil && isWarm(r)
}

// warmRefs are refs with those of the old warm routes replaced. Only warm routes
// have clusters for children; what the caller made optional stays so.
func warmRefs(refs []schema.Ref, warmed map[string]bool) []schema.Ref {
	var out []schema.Ref
	for _, ref := range refs {
		if ref.Type == schema.Clusters && ref.Edge == schema.Child {
			continue
		}
		// Of two edges the strictest stays.
		if ref.Type == schema.Clusters && warmed[ref.Name] {
			if ref.Edge == schema.Filter {
				continue
			}
			delete(warmed, ref.Name)
		}
		out = append(out, ref)
	}
	for name := range warmed {
		out = append(out, schema.Ref{Key: schema.Key{Type: schema.Clusters, Name: name}, Edge: schema.Child})
	}
	slices.SortFunc(out, compareRefs)
	return out
}

func compareRefs(a, b schema.Ref) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// warmRoute is a route to the clusters that matches no request, or nil if there
// is none to name.
func warmRoute(clusters []string) *routev3.Route {
	clusters = slices.Compact(slices.Sorted(slices.Values(clusters)))
	if len(clusters) == 0 {
		return nil
	}
	// The C core of gRPC takes a total that is absent for 100, and refuses
	// weights that do not add up to it.
	//lint:ignore SA1019 deprecated for Envoy, which never sees a warm route
	split := &routev3.WeightedCluster{TotalWeight: wrapperspb.UInt32(uint32(len(clusters)))}
	for _, c := range clusters {
		split.Clusters = append(split.Clusters, &routev3.WeightedCluster_ClusterWeight{
			Name: c, Weight: wrapperspb.UInt32(1),
		})
	}
	present := func(want bool) *routev3.HeaderMatcher {
		return &routev3.HeaderMatcher{
			Name:                 WarmHeader,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: want},
		}
	}
	return &routev3.Route{
		Name: WarmName,
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""},
			Headers:       []*routev3.HeaderMatcher{present(true), present(false)},
		},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: split},
		}},
	}
}

// isWarm reports whether r is a route that Warm made: the header must be there
// and must not be. An author's route of that name which can match is not.
func isWarm(r *routev3.Route) bool {
	if r.GetName() != WarmName {
		return false
	}
	var yes, no bool
	for _, h := range r.GetMatch().GetHeaders() {
		p, ok := h.GetHeaderMatchSpecifier().(*routev3.HeaderMatcher_PresentMatch)
		if !ok || h.GetName() != WarmHeader || h.GetInvertMatch() || h.GetTreatMissingHeaderAsEmpty() {
			return false
		}
		yes, no = yes || p.PresentMatch, no || !p.PresentMatch
	}
	return yes && no
}
