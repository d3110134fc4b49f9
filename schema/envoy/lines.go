package envoy

import (
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-xds/sluice/schema"
)

// Tables lists the route tables in a resource: a route table itself, a virtual
// host as a table of its own, and the tables that stand inside of a listener, a
// scoped route or an extension.
func Tables(r *schema.Resource) ([]*routev3.RouteConfiguration, error) {
	msg, err := Unpack(r)
	if err != nil {
		return nil, err
	}
	if h, ok := msg.(*routev3.VirtualHost); ok {
		return []*routev3.RouteConfiguration{{Name: r.Name, VirtualHosts: []*routev3.VirtualHost{h}}}, nil
	}
	var tables []*routev3.RouteConfiguration
	v := visitor{message: func(_ *plan, m protoreflect.Message) {
		if rc, ok := m.Interface().(*routev3.RouteConfiguration); ok {
			tables = append(tables, rc)
		}
	}}
	v.walk(msg.ProtoReflect())
	return tables, nil
}

// RouteLine is one route of a virtual host, in comparable words.
type RouteLine struct {
	VirtualHost string
	Domains     []string
	Index       int    // in the virtual host, warm routes not counted; -1 for require_tls
	Name        string // often empty
	Match       string // the whole match: path, then Headers
	PathKind    PathKind
	Path        string
	// Headers are all conditions beside the path: headers, query parameters,
	// cookies, gRPC, a fraction of requests.
	Headers string
	Kind    Kind
	// Weights are reduced to the smallest whole numbers of the same ratio; one
	// cluster has 1. Clusters of weight 0 are left out.
	Weights map[string]uint32
	// Redirect is the location, with {scheme}, {host} and {path} for what comes
	// from the request.
	Redirect   string
	Status     uint32
	Unprovable string // why the clusters are not all that may take requests
	Note       string // what is odd about the weights
}

// Routes lists the routes of all tables in r, in the order in which they are
// tried: see Host.Lines.
func Routes(r *schema.Resource) ([]RouteLine, error) {
	hosts, err := HostsOf(r)
	if err != nil {
		return nil, err
	}
	var lines []RouteLine
	for _, h := range hosts {
		more, err := h.Lines()
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func hostLines(rc *routev3.RouteConfiguration, h *routev3.VirtualHost) []RouteLine {
	var lines []RouteLine
	if tls := h.GetRequireTls(); tls != routev3.VirtualHost_NONE {
		line := RouteLine{
			VirtualHost: h.GetName(), Domains: h.GetDomains(), Index: -1, Name: "require_tls",
			PathKind: PathPrefix, Headers: "scheme http", Kind: Redirect,
			Redirect: "https://{host}{path}", Status: 301,
		}
		if tls == routev3.VirtualHost_EXTERNAL_ONLY {
			line.Headers += `, not header x-envoy-internal = "true"`
		}
		line.Match = `prefix "", ` + line.Headers
		lines = append(lines, line)
	}
	index := 0
	for _, src := range h.GetRoutes() {
		if isWarm(src) {
			continue
		}
		m := src.GetMatch()
		r := &route{src: src, path: newPathMatch(m, rc.GetIgnorePathParametersInPathMatching()), conditions: conditions(m)}
		line := RouteLine{
			VirtualHost: h.GetName(), Domains: h.GetDomains(), Index: index, Name: src.GetName(),
			Match: r.match(), PathKind: r.path.kind, Path: r.path.value, Headers: r.demands(),
		}
		line.act(src)
		lines = append(lines, line)
		index++
	}
	return lines
}

// act fills in what the route does.
func (l *RouteLine) act(src *routev3.Route) {
	switch a := src.GetAction().(type) {
	case *routev3.Route_Redirect:
		l.Kind, l.Status = Redirect, redirectStatus[a.Redirect.GetResponseCode()]
		l.Redirect = redirectWords(a.Redirect)
	case *routev3.Route_DirectResponse:
		l.Kind, l.Status = Respond, a.DirectResponse.GetStatus()
	case *routev3.Route_NonForwardingAction:
		l.Kind = Local
	case *routev3.Route_Route:
		l.Kind = Forward
		var doubts []string
		switch s := a.Route.GetClusterSpecifier().(type) {
		case *routev3.RouteAction_Cluster:
			l.Weights = map[string]uint32{s.Cluster: 1}
		case *routev3.RouteAction_WeightedClusters:
			l.Weights, doubts = weights(s.WeightedClusters)
			normalise(l.Weights)
			l.Note = oddWeights(s.WeightedClusters)
		case *routev3.RouteAction_ClusterHeader:
			doubts = []string{"header " + s.ClusterHeader + " chooses the cluster"}
		default:
			doubts = []string{"a plugin chooses the cluster"}
		}
		l.Unprovable = strings.Join(doubts, "; ")
	default:
		l.Kind, l.Unprovable = None, "the route has no action that this package knows"
	}
}

// oddWeights says why weights are not what their author may think. Envoy goes by
// their sum; older versions, and the C core of gRPC, refuse another total.
func oddWeights(wc *routev3.WeightedCluster) string {
	var sum uint64
	for _, c := range wc.GetClusters() {
		sum += uint64(c.GetWeight().GetValue())
	}
	//lint:ignore SA1019 deprecated, and still refused by some
	total := wc.GetTotalWeight()
	switch {
	case sum == 0:
		return "the weights add up to 0: requests get a 503"
	case total != nil && uint64(total.GetValue()) != sum:
		return fmt.Sprintf("the weights add up to %d, and total_weight is %d", sum, total.GetValue())
	}
	return ""
}

// normalise divides weights by what divides all of them.
func normalise(w map[string]uint32) {
	var by uint32
	for _, n := range w {
		for by != 0 {
			n, by = by, n%by
		}
		by = n
	}
	for c := range w {
		w[c] /= by
	}
}

func redirectWords(r *routev3.RedirectAction) string {
	scheme, host, path := "{scheme}", "{host}", "{path}"
	switch {
	case r.GetSchemeRedirect() != "":
		scheme = r.GetSchemeRedirect()
	case r.GetHttpsRedirect():
		scheme = "https"
	}
	if r.GetHostRedirect() != "" {
		host = r.GetHostRedirect()
	}
	if p := r.GetPortRedirect(); p != 0 {
		host += fmt.Sprintf(":%d", p)
	}
	switch {
	case r.GetPathRedirect() != "":
		path = r.GetPathRedirect()
	case r.GetPrefixRewrite() != "":
		path = r.GetPrefixRewrite() + "{rest}"
	case r.GetPathRewrite() != "":
		path = r.GetPathRewrite()
	case r.GetRegexRewrite() != nil:
		path = fmt.Sprintf("{path with %q for %q}", r.GetRegexRewrite().GetSubstitution(), r.GetRegexRewrite().GetPattern().GetRegex())
	}
	if r.GetStripQuery() {
		path += " without query"
	}
	return scheme + "://" + host + path
}
