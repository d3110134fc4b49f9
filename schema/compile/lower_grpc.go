package compile

//lint:file-ignore SA1019 deprecated for Envoy, which is not told it.

import (
	"regexp"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// plainMatch says a match of a header's value in the fields that every gRPC client
// knows: the C core refused string matchers until gRFC A63. What these cannot say
// becomes a regular expression.
func plainMatch(h *routev3.HeaderMatcher) {
	text := h.GetStringMatch()
	if text == nil {
		return // presence
	}
	expr := ""
	fold := text.GetIgnoreCase()
	switch p := text.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_SafeRegex:
		expr = p.SafeRegex.GetRegex()
	case *matcherv3.StringMatcher_Prefix:
		if !fold {
			h.HeaderMatchSpecifier = &routev3.HeaderMatcher_PrefixMatch{PrefixMatch: p.Prefix}
			return
		}
		expr = regexp.QuoteMeta(p.Prefix) + ".*"
	case *matcherv3.StringMatcher_Suffix:
		if !fold {
			h.HeaderMatchSpecifier = &routev3.HeaderMatcher_SuffixMatch{SuffixMatch: p.Suffix}
			return
		}
		expr = ".*" + regexp.QuoteMeta(p.Suffix)
	case *matcherv3.StringMatcher_Contains:
		expr = ".*" + regexp.QuoteMeta(p.Contains) + ".*" // contains_match is one of those that some refuse
	case *matcherv3.StringMatcher_Exact:
		if !fold && p.Exact != "" {
			h.HeaderMatchSpecifier = &routev3.HeaderMatcher_ExactMatch{ExactMatch: p.Exact}
			return
		}
		expr = "^" + regexp.QuoteMeta(p.Exact) + "$" // an exact match of nothing matches everything
	}
	if fold {
		expr = "(?i)" + expr
	}
	h.HeaderMatchSpecifier = &routev3.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: &matcherv3.RegexMatcher{Regex: expr}}
}
