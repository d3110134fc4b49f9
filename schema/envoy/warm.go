package envoy

import (
	"cmp"
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
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
func Warm(r *schema.Resource, names map[string][]string) (*schema.Resource, error) {
	rc, err := unpackAs[*routev3.RouteConfiguration](r)
	if err != nil {
		return nil, err
	}
	found := 0
	warmed := map[string]bool{}
	for _, h := range rc.GetVirtualHosts() {
		h.Routes = slices.DeleteFunc(h.Routes, isWarm)
		clusters, ok := names[h.GetName()]
		if !ok {
			continue
		}
		found++
		if w := warmRoute(clusters); w != nil {
			h.Routes = slices.Insert(h.Routes, 0, w)
		}
		for _, c := range clusters {
			warmed[c] = true
		}
	}
	if found < len(names) {
		return nil, fmt.Errorf("cannot warm %s: it lacks a virtual host of %d that are asked for", r.Key, len(names))
	}
	body, err := encode(schema.Routes, rc)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", r.Key, err)
	}
	return schema.NewResource(r.Key, warmRefs(r.Refs, warmed), body), nil
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
