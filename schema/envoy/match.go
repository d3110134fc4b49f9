package envoy

//lint:file-ignore SA1019 Envoy still reads the deprecated HeaderValueOption.append.

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-xds/sluice/schema"
)

// Kind says what happens to a request.
type Kind string

// The kinds of decision.
const (
	// None: no route matches, and the answer is Status, a 404.
	None    Kind = "none"
	Forward Kind = "forward"
	// Redirect: the answer is Status with the location Redirect.
	Redirect Kind = "redirect"
	// Respond: the answer is Status, from the proxy itself.
	Respond Kind = "respond"
	// Local: the request is for the process that holds the route table, as a
	// gRPC server's routes say.
	Local Kind = "local"
)

// Decision is where a route table sends a request.
type Decision struct {
	VirtualHost string // empty if no domain matches
	Route       string // its name, or its match in words
	Index       int    // of the route in its virtual host; -1 if none matches
	Kind        Kind
	Cluster     string
	// Split holds the weights as configured, if there are several clusters;
	// those of weight 0 are left out.
	Split    map[string]uint32
	Redirect string
	Status   uint32 // of Redirect, Respond and None
	// Path and Host are what the upstream is sent. Host is empty if it is the
	// chosen endpoint's own name.
	Path, Host string
	// AddHeaders are the request headers that the table adds or overwrites, by
	// their lower-case names, with the values that the upstream sees. What the
	// proxy fills in (%REQ(x)%) stands as it is. RemoveHeaders are sorted.
	AddHeaders    map[string]string
	RemoveHeaders []string
	// Timeout is the whole request's; 0 is none.
	Timeout time.Duration
	// Unprovable says why another answer is possible: the rest of the decision
	// is what happens if every doubtful condition holds.
	Unprovable string
}

// Match decides where rc sends a request, by the rules of Envoy's router: the
// most specific domain, then the first route whose conditions all hold. A
// request without a method, scheme or path is a GET of http and "/". Ports count
// as written, unless the table ignores them; what a listener does to a request
// before (stripping ports, normalising paths) is the caller's.
func Match(rc *routev3.RouteConfiguration, req schema.Request) Decision {
	return NewTable(rc).Match(req)
}

// Table is a compiled route table, for many requests. It does not change, and is
// safe for concurrent use.
type Table struct {
	src      *routev3.RouteConfiguration
	exact    map[string]*virtualHost
	suffixes []wildcard // longest first
	prefixes []wildcard
	rest     *virtualHost
}

type wildcard struct {
	fixed string // the domain without its star
	host  *virtualHost
}

type virtualHost struct {
	src    *routev3.VirtualHost
	routes []*route
}

type route struct {
	src        *routev3.Route
	index      int
	path       pathMatch
	conditions []condition
	action     *routeAction
}

// NewTable compiles rc, which must not change after. Of two hosts with one
// domain, which Envoy refuses, the first counts.
func NewTable(rc *routev3.RouteConfiguration) *Table {
	t := &Table{src: rc, exact: map[string]*virtualHost{}}
	for _, src := range rc.GetVirtualHosts() {
		h := &virtualHost{src: src}
		for i, r := range src.GetRoutes() {
			h.routes = append(h.routes, &route{
				src: r, index: i,
				path:       newPathMatch(r.GetMatch(), rc.GetIgnorePathParametersInPathMatching()),
				conditions: conditions(r.GetMatch()),
				action:     newAction(r),
			})
		}
		for _, d := range src.GetDomains() {
			t.add(lower(d), h)
		}
	}
	longest := func(a, b wildcard) int { return cmp.Compare(len(b.fixed), len(a.fixed)) }
	slices.SortStableFunc(t.suffixes, longest)
	slices.SortStableFunc(t.prefixes, longest)
	return t
}

func (t *Table) add(domain string, h *virtualHost) {
	switch {
	case domain == "*":
		if t.rest == nil {
			t.rest = h
		}
	case strings.HasPrefix(domain, "*"):
		t.suffixes = append(t.suffixes, wildcard{domain[1:], h})
	case strings.HasSuffix(domain, "*"):
		t.prefixes = append(t.prefixes, wildcard{domain[:len(domain)-1], h})
	case t.exact[domain] == nil:
		t.exact[domain] = h
	}
}

// host finds the virtual host: exact, then the longest suffix wildcard, then the
// longest prefix wildcard, then "*". A star stands for at least one character.
func (t *Table) host(v *view) *virtualHost {
	if len(t.exact)+len(t.suffixes)+len(t.prefixes) == 0 {
		return t.rest
	}
	name, ok := v.host, v.host != ""
	if h := t.src.GetVhostHeader(); h != "" {
		name, ok = v.get(lower(h))
	}
	if !ok {
		return nil
	}
	if i := portStart(name); i >= 0 && t.src.GetIgnorePortInHostMatching() {
		name = name[:i]
	}
	name = lower(name)
	if h := t.exact[name]; h != nil {
		return h
	}
	for _, w := range t.suffixes {
		if len(w.fixed) < len(name) && strings.HasSuffix(name, w.fixed) {
			return w.host
		}
	}
	for _, w := range t.prefixes {
		if len(w.fixed) < len(name) && strings.HasPrefix(name, w.fixed) {
			return w.host
		}
	}
	return t.rest
}

// Match decides where the table sends a request.
func (t *Table) Match(req schema.Request) Decision { return t.match(newView(req)) }

// MatchGRPC decides where a gRPC client sends a call that it matches itself. It
// is a POST of application/grpc, matched by its method and its own metadata
// alone; a client of gRPC rewrites nothing, changes no header and knows a timeout
// only as the longest life of a stream (gRFC A28, A31).
func (t *Table) MatchGRPC(req schema.Request) Decision { return t.match(newCall(req)) }

func (t *Table) match(v *view) Decision {
	d := Decision{Index: -1, Kind: None, Status: 404, Path: v.path, Host: v.host}
	h := t.host(v)
	if h == nil {
		return d
	}
	d.VirtualHost = h.src.GetName()
	if needsTLS(h.src.GetRequireTls(), v) {
		d.Kind, d.Status, d.Route = Redirect, 301, "require_tls"
		d.Redirect = "https://" + v.host + v.path
		return d
	}
	if h.src.GetMatcher() != nil {
		d.Unprovable = "a matcher tree chooses the route"
		return d
	}
	r, doubts := h.route(v)
	if len(t.src.GetRouteSpecifiers())+len(h.src.GetRouteSpecifiers())+len(r.source().GetRouteSpecifiers()) > 0 {
		doubts = append(doubts, "a route specifier may choose another route")
	}
	if r != nil {
		d.Route, d.Index = r.words(), r.index
		doubts = append(doubts, r.decide(t, h, v, &d)...)
	}
	d.Unprovable = strings.Join(doubts, "; ")
	return d
}

// needsTLS reports whether a virtual host redirects the request to https first.
func needsTLS(t routev3.VirtualHost_TlsRequirementType, v *view) bool {
	if v.headers["x-forwarded-proto"] == "https" {
		return false
	}
	return t == routev3.VirtualHost_ALL ||
		t == routev3.VirtualHost_EXTERNAL_ONLY && v.headers["x-envoy-internal"] != "true"
}

// route is the first that matches, with what is doubtful about it, and about the
// routes before it that this package cannot read.
func (h *virtualHost) route(v *view) (*route, []string) {
	var unread []string
	for _, r := range h.routes {
		if r.path.kind == PathUnknown {
			unread = append(unread, r.path.broken)
			continue
		}
		if !r.path.matches(v) {
			continue
		}
		if ok, doubts := holds(r.conditions, v); ok {
			return r, append(unread, doubts...)
		}
	}
	return nil, unread
}

func holds(cs []condition, v *view) (bool, []string) {
	var doubts []string
	for i := range cs {
		switch {
		case cs[i].doubt != "":
			doubts = append(doubts, cs[i].doubt)
		case !cs[i].test(v):
			return false, nil
		}
	}
	return true, doubts
}

func (r *route) source() *routev3.Route {
	if r == nil {
		return nil
	}
	return r.src
}

func (r *route) decide(t *Table, h *virtualHost, v *view, d *Decision) []string {
	d.Status = 0
	switch a := r.src.GetAction().(type) {
	case *routev3.Route_Redirect:
		d.Kind = Redirect
		return r.action.redirect(&r.path, v, d)
	case *routev3.Route_DirectResponse:
		d.Kind, d.Status = Respond, a.DirectResponse.GetStatus()
		return nil
	case *routev3.Route_Route:
		d.Kind = Forward
		doubts := choose(a.Route, v, d)
		if v.call {
			d.Timeout, _ = streamLimit(a.Route)
			return doubts
		}
		mutate(t.src, h.src, r.src, v, d)
		doubts = append(doubts, r.action.rewrite(&r.path, v, d)...)
		d.Timeout = timeout(a.Route, v)
		return doubts
	case *routev3.Route_NonForwardingAction:
		d.Kind = Local
		return nil
	}
	d.Kind, d.Status = None, 0
	return []string{"the route has no action that this package knows"}
}

// choose names the cluster or the split.
func choose(a *routev3.RouteAction, v *view, d *Decision) []string {
	switch s := a.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		d.Cluster = s.Cluster
		return nil
	case *routev3.RouteAction_ClusterHeader:
		d.Cluster, _ = v.get(lower(s.ClusterHeader))
		return []string{"header " + s.ClusterHeader + " chooses the cluster"}
	case *routev3.RouteAction_WeightedClusters:
		w, doubts := weights(s.WeightedClusters)
		if len(w) == 1 {
			for d.Cluster = range w {
			}
			return doubts
		}
		d.Split = w
		return doubts
	}
	return []string{"a plugin chooses the cluster"}
}

// weights sums the weights of each cluster and leaves out those of 0.
func weights(wc *routev3.WeightedCluster) (map[string]uint32, []string) {
	m := map[string]uint32{}
	var doubts []string
	for _, c := range wc.GetClusters() {
		switch w := c.GetWeight().GetValue(); {
		case w == 0:
		case c.GetName() == "":
			doubts = append(doubts, "header "+c.GetClusterHeader()+" chooses a cluster")
		default:
			m[c.GetName()] += w
		}
	}
	return m, doubts
}

const defaultTimeout = 15 * time.Second // of RouteAction.timeout

// timeout is the limit of the whole request. For gRPC the stream's limit counts
// instead, if there is one: the client's own deadline is under it.
func timeout(a *routev3.RouteAction, v *view) time.Duration {
	if d, ok := streamLimit(a); ok && v.grpc() {
		return d
	}
	if a.GetTimeout() != nil {
		return a.GetTimeout().AsDuration()
	}
	return defaultTimeout
}

// streamLimit is the longest life of a gRPC stream, if one is given; 0 is none.
func streamLimit(a *routev3.RouteAction) (time.Duration, bool) {
	m := a.GetMaxStreamDuration()
	for _, d := range []*durationpb.Duration{m.GetGrpcTimeoutHeaderMax(), m.GetMaxStreamDuration()} {
		if d != nil {
			return d.AsDuration(), true
		}
	}
	return 0, false
}

// mutate applies the header changes of a route's only weighted cluster, the
// route, its host and the table, in this order or, where the most specific is to
// win, the other way round. Those of one cluster among several are left out.
func mutate(rc *routev3.RouteConfiguration, h *routev3.VirtualHost, r *routev3.Route, v *view, d *Decision) {
	type level struct {
		remove []string
		add    []*corev3.HeaderValueOption
	}
	levels := []level{
		{r.GetRequestHeadersToRemove(), r.GetRequestHeadersToAdd()},
		{h.GetRequestHeadersToRemove(), h.GetRequestHeadersToAdd()},
		{rc.GetRequestHeadersToRemove(), rc.GetRequestHeadersToAdd()},
	}
	if wc := r.GetRoute().GetWeightedClusters().GetClusters(); len(wc) == 1 {
		levels = slices.Insert(levels, 0, level{wc[0].GetRequestHeadersToRemove(), wc[0].GetRequestHeadersToAdd()})
	}
	if rc.GetMostSpecificHeaderMutationsWins() {
		slices.Reverse(levels)
	}
	removed := map[string]bool{}
	for _, l := range levels {
		for _, name := range l.remove {
			name = lower(name)
			delete(v.headers, name)
			delete(d.AddHeaders, name)
			removed[name] = true
		}
		// All values of a level are made of the headers as they were before it.
		before := maps.Clone(v.headers)
		for _, o := range l.add {
			addHeader(o, before, v, d)
		}
	}
	for name := range d.AddHeaders {
		delete(removed, name)
	}
	if len(removed) > 0 {
		d.RemoveHeaders = slices.Sorted(maps.Keys(removed))
	}
}

func addHeader(o *corev3.HeaderValueOption, before map[string]string, v *view, d *Decision) {
	name, val := lower(o.GetHeader().GetKey()), o.GetHeader().GetValue()
	if val == "" {
		val = string(o.GetHeader().GetRawValue())
	}
	val = strings.ReplaceAll(val, "%%", "%")
	if val == "" && !o.GetKeepEmptyValue() {
		return
	}
	act := o.GetAppendAction()
	if o.GetAppend() != nil { // deprecated, but it counts where it is set
		act = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		if o.GetAppend().GetValue() {
			act = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
	}
	_, had := before[name]
	switch {
	case act == corev3.HeaderValueOption_ADD_IF_ABSENT && had,
		act == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS && !had:
		return
	case act == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		if old, ok := v.headers[name]; ok {
			val = old + "," + val
		}
	}
	v.headers[name] = val
	if d.AddHeaders == nil {
		d.AddHeaders = map[string]string{}
	}
	d.AddHeaders[name] = val
}
