package compile

import (
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const matchName = "envoy.path.match.uri_template.uri_template_matcher"

// path reads the match as one of an exact path, a prefix, a template or a regex.
func (m *ruleMatch) path() (exact, prefix, template, regex string) {
	if service, ok := strings.CutSuffix(m.GRPC, "/*"); ok {
		return "", "/" + service + "/", "", ""
	}
	if m.GRPC != "" {
		return "/" + m.GRPC, "", "", ""
	}
	return m.Path, m.Prefix, m.Template, m.Regex
}

// lower makes the match; grpc is set for one of gRPC clients, which do not all
// know the string matchers of headers.
func (m *ruleMatch) lower(grpc bool) *routev3.RouteMatch {
	out := &routev3.RouteMatch{}
	switch exact, prefix, template, regex := m.path(); {
	case exact != "":
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: exact}
	case prefix != "":
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: prefix}
	case template != "":
		out.PathSpecifier = &routev3.RouteMatch_PathMatchPolicy{PathMatchPolicy: &corev3.TypedExtensionConfig{
			Name: matchName, TypedConfig: pack(&templatev3.UriTemplateMatchConfig{PathTemplate: template}),
		}}
	default:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}}
	}
	if m.IgnoreCase {
		out.CaseSensitive = wrapperspb.Bool(false)
	}
	if method := m.methods(); len(method) == 1 {
		out.Headers = append(out.Headers, headerIs(":method", stringExact(method[0])))
	} else if len(method) > 1 {
		out.Headers = append(out.Headers, headerIs(":method", stringRegex(strings.Join(method, "|"))))
	}
	for name, value := range sorted(m.Headers) {
		out.Headers = append(out.Headers, headerIs(name, stringExact(value)))
	}
	for name, v := range sorted(m.HeaderMatches) {
		out.Headers = append(out.Headers, v.header(name))
	}
	if grpc {
		for _, h := range out.Headers {
			plainMatch(h)
		}
	}
	for name, value := range sorted(m.Query) {
		out.QueryParameters = append(out.QueryParameters, queryIs(name, stringExact(value)))
	}
	for name, v := range sorted(m.QueryMatches) {
		if v.At.get("present") != nil {
			out.QueryParameters = append(out.QueryParameters, &routev3.QueryParameterMatcher{
				Name: name, QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: v.Present},
			})
		} else {
			out.QueryParameters = append(out.QueryParameters, queryIs(name, v.text()))
		}
	}
	return out
}

// methods are those that the rule takes, sorted; none means all.
func (m *ruleMatch) methods() []string {
	if m.Method != "" {
		return []string{m.Method}
	}
	return slices.Compact(slices.Sorted(slices.Values(m.Methods)))
}

func headerIs(name string, text *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: text}}
}

func queryIs(name string, text *matcherv3.StringMatcher) *routev3.QueryParameterMatcher {
	return &routev3.QueryParameterMatcher{
		Name: name, QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{StringMatch: text},
	}
}

func stringExact(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func stringRegex(expr string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: expr}}}
}

// originExpr is the expression of a CORS origin in which a star is any part of a
// host name, or all there is.
func originExpr(origin string) string {
	if origin == "*" {
		return ".*"
	}
	return strings.ReplaceAll(regexp.QuoteMeta(origin), `\*`, `[a-zA-Z0-9.-]+`)
}

func (v valueMatch) header(name string) *routev3.HeaderMatcher {
	h := &routev3.HeaderMatcher{Name: name, InvertMatch: v.Invert}
	if v.At.get("present") != nil {
		h.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: v.Present}
	} else {
		h.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: v.text()}
	}
	return h
}

func (v valueMatch) text() *matcherv3.StringMatcher {
	s := &matcherv3.StringMatcher{IgnoreCase: v.IgnoreCase}
	switch {
	case v.Prefix != "":
		s.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: v.Prefix}
	case v.Suffix != "":
		s.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: v.Suffix}
	case v.Contains != "":
		s.MatchPattern = &matcherv3.StringMatcher_Contains{Contains: v.Contains}
	case v.Regex != "":
		return stringRegex(v.Regex)
	default:
		s.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: v.Exact}
	}
	return s
}

// String is what the rule matches, in a few words. It names the route, so that
// the name is stable: it comes from what the route means and not from its place.
func (m *ruleMatch) String() string {
	exact, prefix, template, regex := m.path()
	s := exact + template
	switch {
	case prefix != "":
		s = prefix + "*"
	case regex != "":
		s = "~" + regex
	}
	if m.IgnoreCase {
		s += " (any case)"
	}
	if methods := m.methods(); len(methods) > 0 {
		s = strings.Join(methods, "|") + " " + s
	}
	for name, value := range sorted(m.Headers) {
		s += " " + name + "=" + value
	}
	for name, v := range sorted(m.HeaderMatches) {
		s += " " + v.words(name)
	}
	for name, value := range sorted(m.Query) {
		s += " ?" + name + "=" + value
	}
	for name, v := range sorted(m.QueryMatches) {
		s += " " + v.words("?"+name)
	}
	return s
}

func (v valueMatch) words(name string) string {
	var s string
	switch {
	case v.At.get("present") != nil:
		if v.Present != v.Invert {
			return name
		}
		return "no " + name
	case v.Prefix != "":
		s = "=" + v.Prefix + "*"
	case v.Suffix != "":
		s = "=*" + v.Suffix
	case v.Contains != "":
		s = "=*" + v.Contains + "*"
	case v.Regex != "":
		s = "~" + v.Regex
	default:
		s = "=" + v.Exact
	}
	if v.Invert {
		s = "!" + s
	}
	if v.IgnoreCase {
		s += " (any case)"
	}
	return name + s
}

// same reports whether two matches are the same demand.
func (v valueMatch) same(o valueMatch) bool {
	return v.words("x") == o.words("x")
}
