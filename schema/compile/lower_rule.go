package compile

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/rewrite/uri_template/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	rewriteName  = "envoy.path.rewrite.uri_template.uri_template_rewriter"
	previousName = "envoy.retry_host_predicates.previous_hosts"
)

// lower makes a route; grpc is set for one that gRPC clients match themselves.
func (r *rule) lower(grpc bool) *routev3.Route {
	out := &routev3.Route{Name: r.Match.String(), Match: r.Match.lower(grpc)}
	switch {
	case r.Redirect != nil:
		out.Action = &routev3.Route_Redirect{Redirect: r.Redirect.lower()}
	case r.Respond != nil:
		d := &routev3.DirectResponseAction{Status: r.Respond.Status}
		if r.Respond.Body != "" {
			d.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: r.Respond.Body}}
		}
		out.Action = &routev3.Route_DirectResponse{DirectResponse: d}
	default:
		out.Action = &routev3.Route_Route{Route: r.forward(grpc)}
	}
	out.RequestHeadersToAdd, out.RequestHeadersToRemove = r.RequestHeaders.lower()
	out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = r.ResponseHeaders.lower()
	if r.CORS != nil {
		out.TypedPerFilterConfig = map[string]*anypb.Any{corsName: pack(r.CORS.lower())}
	}
	return out
}

func (r *rule) forward(grpc bool) *routev3.RouteAction {
	a := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: r.Service}}
	if r.Split != nil {
		split := &routev3.WeightedCluster{}
		total := uint32(0)
		for name, weight := range sorted(r.Split) {
			total += weight
			split.Clusters = append(split.Clusters, &routev3.WeightedCluster_ClusterWeight{
				Name: name, Weight: wrapperspb.UInt32(weight),
			})
		}
		if grpc {
			// The C core of gRPC takes a total that is absent for 100, and
			// refuses weights that do not add up to it.
			//lint:ignore SA1019 deprecated for Envoy, which is not told it
			split.TotalWeight = wrapperspb.UInt32(total)
		}
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: split}
	}
	switch {
	case r.At.get("timeout") == nil:
	case grpc:
		// gRPC has no timeout of a route, but a longest life of a stream (A31).
		a.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(r.Timeout)}
	default:
		a.Timeout = durationpb.New(r.Timeout)
	}
	if r.At.get("idle_timeout") != nil {
		a.IdleTimeout = durationpb.New(r.IdleTimeout)
	}
	if r.Retry != nil {
		a.RetryPolicy = r.Retry.lower()
	}
	if r.Mirror != nil {
		a.RequestMirrorPolicies = []*routev3.RouteAction_RequestMirrorPolicy{r.Mirror.lower()}
	}
	if r.Rewrite != nil {
		r.Rewrite.lower(a)
	}
	if r.Websocket {
		a.UpgradeConfigs = []*routev3.RouteAction_UpgradeConfig{{UpgradeType: "websocket"}}
	}
	for i := range r.Hash {
		a.HashPolicy = append(a.HashPolicy, r.Hash[i].lower())
	}
	return a
}

func (r *retry) lower() *routev3.RetryPolicy {
	p := &routev3.RetryPolicy{RetryOn: strings.Join(r.On, ","), RetriableStatusCodes: r.StatusCodes}
	if r.Attempts > 0 {
		p.NumRetries = wrapperspb.UInt32(r.Attempts)
	}
	p.PerTryTimeout, p.PerTryIdleTimeout = duration(r.PerTryTimeout), duration(r.PerTryIdleTimeout)
	if r.Backoff > 0 || r.MaxBackoff > 0 {
		base := r.Backoff
		if base == 0 {
			base = 25 * time.Millisecond // Envoy's own default, which it wants said beside a limit
		}
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(base), MaxInterval: duration(r.MaxBackoff)}
	}
	if r.OtherHost {
		p.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       previousName,
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: previousHosts},
		}}
		p.HostSelectionRetryMaxAttempts = 5
	}
	return p
}

var previousHosts = pack(&previousv3.PreviousHostsPredicate{})

// duration is nil for 0: for fields where 0 means that nothing is said.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func (m *mirror) lower() *routev3.RouteAction_RequestMirrorPolicy {
	p := &routev3.RouteAction_RequestMirrorPolicy{Cluster: m.Service}
	if m.Percent > 0 {
		p.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{
			Numerator: uint32(m.Percent*10_000 + 0.5), Denominator: typev3.FractionalPercent_MILLION,
		}}
	}
	return p
}

var redirectCodes = map[uint32]routev3.RedirectAction_RedirectResponseCode{
	301: routev3.RedirectAction_MOVED_PERMANENTLY,
	302: routev3.RedirectAction_FOUND,
	303: routev3.RedirectAction_SEE_OTHER,
	307: routev3.RedirectAction_TEMPORARY_REDIRECT,
	308: routev3.RedirectAction_PERMANENT_REDIRECT,
}

func (r *redirect) lower() *routev3.RedirectAction {
	a := &routev3.RedirectAction{
		HostRedirect: r.Host, PortRedirect: r.Port, StripQuery: r.StripQuery, ResponseCode: redirectCodes[r.Status],
	}
	if r.HTTPS {
		a.SchemeRewriteSpecifier = &routev3.RedirectAction_HttpsRedirect{HttpsRedirect: true}
	}
	switch {
	case r.Path != "":
		a.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: r.Path}
	case r.Prefix != "":
		a.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: r.Prefix}
	case r.Regex != nil:
		a.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: r.Regex.lower()}
	}
	return a
}

func (s *substitution) lower() *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: s.Pattern}, Substitution: s.With}
}

func (r *rewrite) lower(a *routev3.RouteAction) {
	a.PrefixRewrite = r.Prefix
	if r.Regex != nil {
		a.RegexRewrite = r.Regex.lower()
	}
	if r.Template != "" {
		a.PathRewritePolicy = &corev3.TypedExtensionConfig{
			Name: rewriteName, TypedConfig: pack(&templatev3.UriTemplateRewriteConfig{PathTemplateRewrite: r.Template}),
		}
	}
	switch {
	case r.Host != "":
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: r.Host}
	case r.HostHeader != "":
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteHeader{HostRewriteHeader: r.HostHeader}
	case r.ServiceHost:
		a.HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	}
}

func (c *cors) lower() *corsv3.CorsPolicy {
	p := &corsv3.CorsPolicy{
		AllowMethods: strings.Join(c.Methods, ","), AllowHeaders: strings.Join(c.Headers, ","), ExposeHeaders: strings.Join(c.Expose, ","),
	}
	for _, o := range c.Origins {
		if strings.Contains(o, "*") {
			p.AllowOriginStringMatch = append(p.AllowOriginStringMatch, stringRegex(originExpr(o)))
		} else {
			p.AllowOriginStringMatch = append(p.AllowOriginStringMatch, stringExact(o))
		}
	}
	if c.Credentials {
		p.AllowCredentials = wrapperspb.Bool(true)
	}
	if c.At.get("max_age") != nil {
		p.MaxAge = strconv.FormatInt(int64(c.MaxAge/time.Second), 10)
	}
	return p
}

// lower says what is added and removed. Envoy removes before it adds.
func (h *headerChanges) lower() (add []*corev3.HeaderValueOption, remove []string) {
	if h == nil {
		return nil, nil
	}
	option := func(name, value string, action corev3.HeaderValueOption_HeaderAppendAction) {
		add = append(add, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, Value: value},
			AppendAction: action, KeepEmptyValue: value == "",
		})
	}
	for name, value := range sorted(h.Set) {
		option(name, value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	}
	for name, value := range sorted(h.Add) {
		option(name, value, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	}
	return add, slices.Sorted(maps.Keys(setOf(h.Remove)))
}

func setOf(names []string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

func (h *hashOn) lower() *routev3.RouteAction_HashPolicy {
	p := &routev3.RouteAction_HashPolicy{Terminal: h.Terminal}
	switch {
	case h.Header != "":
		p.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: h.Header}}
	case h.Cookie != "":
		c := &routev3.RouteAction_HashPolicy_Cookie{Name: h.Cookie}
		if h.At.get("ttl") != nil {
			c.Ttl, c.Path = durationpb.New(h.TTL), "/"
		}
		p.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: c}
	case h.Query != "":
		p.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: h.Query},
		}
	default:
		p.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
		}
	}
	return p
}
