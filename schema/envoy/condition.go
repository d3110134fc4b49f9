package envoy

//lint:file-ignore SA1019 Envoy still reads the deprecated header matchers, and so do we.

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// condition is one of a route's demands beside the path. Either test decides, or
// doubt says what only a running proxy can know.
type condition struct {
	words string
	test  func(*view) bool
	doubt string
}

// conditions compiles all demands of a match but for the path, in Envoy's order.
func conditions(m *routev3.RouteMatch) []condition {
	var cs []condition
	if f := m.GetRuntimeFraction(); f != nil {
		cs = append(cs, fraction(f.GetDefaultValue()))
	}
	if m.GetGrpc() != nil {
		cs = append(cs, condition{words: "gRPC", test: (*view).grpc})
	}
	for _, h := range m.GetHeaders() {
		cs = append(cs, header(h))
	}
	for _, q := range m.GetQueryParameters() {
		cs = append(cs, query(q))
	}
	for _, c := range m.GetCookies() {
		cs = append(cs, cookie(c))
	}
	if m.GetTlsContext() != nil {
		cs = append(cs, unknowable("the client's certificate"))
	}
	if len(m.GetDynamicMetadata()) > 0 {
		cs = append(cs, unknowable("dynamic metadata"))
	}
	if len(m.GetFilterState()) > 0 {
		cs = append(cs, unknowable("filter state"))
	}
	return cs
}

func unknowable(what string) condition {
	return condition{words: what, doubt: what + " decides whether the route matches"}
}

// fraction is a runtime fraction: all and nothing are certain, the rest is not.
func fraction(f *typev3.FractionalPercent) condition {
	of := map[typev3.FractionalPercent_DenominatorType]uint64{
		typev3.FractionalPercent_HUNDRED: 100, typev3.FractionalPercent_TEN_THOUSAND: 10_000,
		typev3.FractionalPercent_MILLION: 1_000_000,
	}[f.GetDenominator()]
	n := uint64(f.GetNumerator())
	words := strconv.FormatFloat(100*float64(n)/float64(max(of, 1)), 'g', -1, 64) + "% of requests"
	switch {
	case n == 0:
		return condition{words: words, test: func(*view) bool { return false }}
	case n >= of:
		return condition{words: "100% of requests", test: func(*view) bool { return true }}
	}
	return condition{words: words, doubt: "the route takes " + words + ", by chance"}
}

// text is a compiled StringMatcher.
type text struct {
	words string
	match func(string) bool // nil for what cannot be known
}

func textOf(s *matcherv3.StringMatcher) text {
	fold := func(s string) string { return s }
	suffix := ""
	if s.GetIgnoreCase() {
		fold, suffix = lower, " (any case)"
	}
	say := func(verb, arg string, f func(v, arg string) bool) text {
		want := fold(arg)
		return text{fmt.Sprintf("%s %q%s", verb, arg, suffix), func(v string) bool { return f(fold(v), want) }}
	}
	switch p := s.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return say("=", p.Exact, func(v, a string) bool { return v == a })
	case *matcherv3.StringMatcher_Prefix:
		return say("begins with", p.Prefix, strings.HasPrefix)
	case *matcherv3.StringMatcher_Suffix:
		return say("ends with", p.Suffix, strings.HasSuffix)
	case *matcherv3.StringMatcher_Contains:
		return say("contains", p.Contains, strings.Contains)
	case *matcherv3.StringMatcher_SafeRegex:
		return regex(p.SafeRegex.GetRegex())
	}
	return text{words: "matches an extension"}
}

func regex(expr string) text {
	re, err := fullMatch(expr)
	words := fmt.Sprintf("matches %q", expr)
	if err != nil {
		return text{words: words}
	}
	return text{words, re.MatchString}
}

// header is a header matcher. A missing header matches nothing, inverted or not,
// but for presence itself and where it is to be treated as empty. Several values
// of one header are one value with commas.
func header(m *routev3.HeaderMatcher) condition {
	name, want := lower(m.GetName()), true
	var t text
	present := false
	switch s := m.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_StringMatch:
		t = textOf(s.StringMatch)
	case *routev3.HeaderMatcher_ExactMatch:
		t = text{fmt.Sprintf("= %q", s.ExactMatch), func(v string) bool { return s.ExactMatch == "" || v == s.ExactMatch }}
	case *routev3.HeaderMatcher_SafeRegexMatch:
		t = regex(s.SafeRegexMatch.GetRegex())
	case *routev3.HeaderMatcher_PrefixMatch:
		t = text{fmt.Sprintf("begins with %q", s.PrefixMatch), func(v string) bool { return strings.HasPrefix(v, s.PrefixMatch) }}
	case *routev3.HeaderMatcher_SuffixMatch:
		t = text{fmt.Sprintf("ends with %q", s.SuffixMatch), func(v string) bool { return strings.HasSuffix(v, s.SuffixMatch) }}
	case *routev3.HeaderMatcher_ContainsMatch:
		t = text{fmt.Sprintf("contains %q", s.ContainsMatch), func(v string) bool { return strings.Contains(v, s.ContainsMatch) }}
	case *routev3.HeaderMatcher_RangeMatch:
		t = within(s.RangeMatch)
	case *routev3.HeaderMatcher_PresentMatch:
		present, want = true, s.PresentMatch
	default:
		present = true
	}
	invert, empty := m.GetInvertMatch(), m.GetTreatMissingHeaderAsEmpty()
	if present {
		return condition{words: presence(want != invert, "header "+m.GetName()), test: func(v *view) bool {
			_, ok := v.get(name)
			return ((ok || empty) == want) != invert
		}}
	}
	c := condition{words: fmt.Sprintf("header %s %s", m.GetName(), t.words)}
	if invert {
		c.words = "not " + c.words
	}
	if t.match == nil {
		c.doubt = "the proxy alone reads: " + c.words
		return c
	}
	c.test = func(v *view) bool {
		val, ok := v.get(name)
		return (ok || empty) && t.match(val) != invert
	}
	return c
}

func presence(want bool, what string) string {
	if want {
		return what + " present"
	}
	return what + " absent"
}

var decimal = regexp.MustCompile(`^\s*[-+]?[0-9]+\s*$`)

func within(r *typev3.Int64Range) text {
	return text{fmt.Sprintf("in [%d, %d)", r.GetStart(), r.GetEnd()), func(v string) bool {
		if !decimal.MatchString(v) {
			return false
		}
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		return err == nil && n >= r.GetStart() && n < r.GetEnd()
	}}
}

// query is a query parameter matcher. Only a parameter's first value counts, and
// it is not decoded.
func query(m *routev3.QueryParameterMatcher) condition {
	what := "query " + m.GetName()
	switch s := m.GetQueryParameterMatchSpecifier().(type) {
	case *routev3.QueryParameterMatcher_StringMatch:
		t := textOf(s.StringMatch)
		if t.match == nil {
			return condition{words: what + " " + t.words, doubt: "the proxy alone reads: " + what + " " + t.words}
		}
		return condition{words: what + " " + t.words, test: func(v *view) bool {
			val, ok := v.query(m.GetName())
			return ok && t.match(val)
		}}
	case *routev3.QueryParameterMatcher_PresentMatch:
		return condition{words: presence(s.PresentMatch, what), test: func(v *view) bool {
			_, ok := v.query(m.GetName())
			return ok == s.PresentMatch
		}}
	}
	return condition{words: presence(true, what), test: func(v *view) bool {
		_, ok := v.query(m.GetName())
		return ok
	}}
}

// cookie is a cookie matcher: a missing cookie matches if inverted.
func cookie(m *routev3.CookieMatcher) condition {
	t := textOf(m.GetStringMatch())
	c := condition{words: "cookie " + m.GetName() + " " + t.words}
	if m.GetInvertMatch() {
		c.words = "not " + c.words
	}
	if t.match == nil {
		c.doubt = "the proxy alone reads: " + c.words
		return c
	}
	c.test = func(v *view) bool {
		val, ok := v.cookie(m.GetName())
		return (ok && t.match(val)) != m.GetInvertMatch()
	}
	return c
}
