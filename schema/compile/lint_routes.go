package compile

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

func (m *model) lintRoutes(name string, r *routes) {
	m.allowed(r.At)
	what := quoted("routes", name)
	m.nonEmpty(r.At, what, "listeners", "no request would meet them")
	m.nonEmpty(r.At, what, "hosts", "no request would meet them")
	m.oneOf(r.At, what, "rules", "tcp")
	for i, h := range r.Hosts {
		m.hostname(r, what, i, h)
	}
	for i := range r.Rules {
		m.lintRule(fmt.Sprintf("%s: rules[%d]", what, i), r, &r.Rules[i])
	}
	if r.TCP != nil {
		m.oneOf(r.TCP.At, what+".tcp", "service", "split")
		m.weights(what+".tcp", r.TCP.At, r.TCP.Split)
	}
}

// hostname checks the form of a host: a name, "*", or one with a star at
// either end.
func (m *model) hostname(r *routes, what string, i int, h string) {
	pos := r.At.elem("hosts", i)
	star := strings.Count(h, "*")
	switch {
	case h == "" || strings.ContainsAny(h, " /"):
		hint := ""
		if _, rest, ok := strings.Cut(h, "://"); ok || strings.Contains(h, "/") {
			if !ok {
				rest = h
			}
			rest, _, _ = strings.Cut(rest, "/")
			hint = fmt.Sprintf("leave scheme and path out: %q", rest)
		}
		m.error(pos, "host", hint, "%s: %q is no host name", what, h)
	case star > 1 || star == 1 && h[0] != '*' && h[len(h)-1] != '*':
		m.error(pos, "host", `write "*.example.com", "example.*" or "*"`, "%s: %q has a star elsewhere than at one end", what, h)
	}
}

func (m *model) lintRule(what string, r *routes, u *rule) {
	m.lintMatch(what+".match", &u.Match)
	m.oneOf(u.At, what, "service", "split", "redirect", "respond")
	m.weights(what, u.At, u.Split)
	if u.Retry != nil {
		m.lintRetry(what+".retry", u.Retry)
	}
	if u.Redirect != nil {
		m.lintRedirect(what, u)
	}
	if u.Rewrite != nil {
		m.lintRewrite(what+".rewrite", u)
	}
	if u.CORS != nil {
		m.nonEmpty(u.CORS.At, what+".cors", "origins", "no site could call")
		for i, method := range u.CORS.Methods {
			m.method(u.CORS.At.elem("methods", i), what+".cors", method)
		}
	}
	for i := range u.Hash {
		h := &u.Hash[i]
		m.oneOf(h.At, fmt.Sprintf("%s.hash[%d]", what, i), "header", "cookie", "query", "source_ip")
		if h.At.get("ttl") != nil && h.Cookie == "" {
			m.error(h.At.at("ttl"), "no-effect", "give the name of the cookie", "%s.hash[%d]: ttl is a cookie's", what, i)
		}
	}
	m.headerChanges(what+".request_headers", u.RequestHeaders)
	m.headerChanges(what+".response_headers", u.ResponseHeaders)
	if u.Redirect != nil || u.Respond != nil {
		for _, field := range forwardOnly {
			if u.At.get(field) != nil {
				m.report(r.Allow, schema.Diagnostic{
					Pos: u.At.at(field), Severity: schema.Warning, Code: "no-effect",
					Message: fmt.Sprintf("%s: %s has no effect: the request goes to no service", what, field),
				})
			}
		}
	}
}

// forwardOnly are the fields of a rule that need a service.
var forwardOnly = []string{"timeout", "idle_timeout", "retry", "mirror", "rewrite", "request_headers", "websocket", "hash"}

func (m *model) lintMatch(what string, u *ruleMatch) {
	m.oneOf(u.At, what, "path", "prefix", "template", "regex", "grpc")
	m.atMostOne(u.At, what, "method", "methods")
	m.nonEmpty(u.At, what, "methods", "no request would match")
	if u.Regex != "" {
		m.regex(u.At.at("regex"), what, u.Regex)
	}
	if u.Template != "" {
		if why := badTemplate(u.Template); why != "" {
			m.error(u.At.at("template"), "value", "{x} and * are one segment, ** is all that is left", "%s: %q is no template: %s", what, u.Template, why)
		}
	}
	for _, field := range []string{"path", "prefix"} {
		if p := map[string]string{"path": u.Path, "prefix": u.Prefix}[field]; strings.ContainsAny(p, "?#") {
			m.error(u.At.at(field), "value", `for a parameter, write beside it query: NAME: "VALUE"`, "%s: %s %q goes beyond the path, which ends before ? and #: no request would match", what, field, p)
		}
	}
	if u.IgnoreCase && u.Path == "" && u.Prefix == "" {
		m.error(u.At.at("ignore_case"), "no-effect", "in a regex, write (?i)", "%s: ignore_case is for path and prefix", what)
	}
	if g := u.GRPC; g != "" && (strings.Count(g, "/") != 1 || strings.HasPrefix(g, "/") || strings.HasSuffix(g, "/")) {
		m.error(u.At.at("grpc"), "value", `want "package.Service/Method" or "package.Service/*"`, "%s: %q is no gRPC method", what, g)
	}
	if u.Method != "" {
		m.method(u.At.at("method"), what, u.Method)
	}
	for i, method := range u.Methods {
		m.method(u.At.elem("methods", i), what, method)
	}
	for h, v := range sorted(u.Headers) {
		m.headerName(u.At.at("headers", h), what, h)
		if h == ":method" {
			m.method(u.At.at("headers", h), what, v)
		}
	}
	for h, v := range sorted(u.HeaderMatches) {
		m.headerName(u.At.at("header_matches", h), what, h)
		m.lintValue(fmt.Sprintf("%s.header_matches[%q]", what, h), v)
		if _, ok := u.Headers[h]; ok {
			m.error(u.At.at("header_matches", h), "one-of", "keep one of them", "%s: %q is in headers and in header_matches", what, h)
		}
	}
	for q, v := range sorted(u.QueryMatches) {
		m.lintValue(fmt.Sprintf("%s.query_matches[%q]", what, q), v)
		if v.Invert {
			m.error(v.At.at("invert"), "unsupported", "present: false matches requests without the parameter", "%s.query_matches[%q]: Envoy inverts no query parameter", what, q)
		}
	}
}

func (m *model) lintValue(what string, v valueMatch) {
	if !m.oneOf(v.At, what, "exact", "prefix", "suffix", "contains", "regex", "present") {
		return
	}
	for _, field := range []string{"prefix", "suffix", "contains", "regex"} {
		if n := v.At.get(field); n != nil && n.text == "" {
			m.error(n.pos, "empty", "use present: true for any value", "%s: %s is empty", what, field)
		}
	}
	if v.Regex != "" {
		m.regex(v.At.at("regex"), what, v.Regex)
	}
	if v.IgnoreCase && (v.Regex != "" || v.At.get("present") != nil) {
		m.error(v.At.at("ignore_case"), "no-effect", "in a regex, write (?i)", "%s: ignore_case is for text", what)
	}
}

// knownMethods are the methods of RFC 9110, RFC 5789 and RFC 4918, and what caches
// know beside them.
var knownMethods = []string{
	"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "PURGE",
}

// method refuses what no request has. Methods are compared with their case (RFC
// 9110, section 9.1), so "get" is another one than "GET", and nobody sends it.
func (m *model) method(pos schema.Pos, what, method string) {
	upper := strings.ToUpper(method)
	switch {
	case !headerToken.MatchString(method):
		m.error(pos, "value", "", "%s: %q is no HTTP method", what, method)
	case upper != method && slices.Contains(knownMethods, upper):
		m.error(pos, "value", fmt.Sprintf("write %q", upper), "%s: %q is no HTTP method, as their case counts", what, method)
	}
}

var headerToken = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// headerName refuses what is no name of a header, or is the planner's own.
func (m *model) headerName(pos schema.Pos, what, name string) {
	switch {
	case strings.EqualFold(name, envoy.WarmHeader):
		m.error(pos, "reserved-header", "", "%s: the header %q is reserved", what, name)
	case !headerToken.MatchString(strings.TrimPrefix(name, ":")):
		m.error(pos, "value", "", "%s: %q is no name of a header", what, name)
	}
}

func (m *model) headerChanges(what string, h *headerChanges) {
	if h == nil {
		return
	}
	for _, field := range []string{"set", "add"} {
		if l := h.At.get(field); l != nil {
			for _, f := range l.fields {
				m.changed(f.value.pos, what, f.name)
			}
		}
	}
	for i, name := range h.Remove {
		m.changed(h.At.elem("remove", i), what, name)
	}
	for name := range sorted(h.Set) {
		if _, ok := h.Add[name]; ok {
			m.error(h.At.at("add", name), "one-of", "keep one of them", "%s: %q is in set and in add", what, name)
		}
	}
}

// changed refuses headers that Envoy lets nobody change this way.
func (m *model) changed(pos schema.Pos, what, name string) {
	m.headerName(pos, what, name)
	if strings.HasPrefix(name, ":") || strings.EqualFold(name, "host") {
		m.error(pos, "value", "the path and the host are changed by rewrite", "%s: Envoy does not change %q here", what, name)
	}
}

// regex wants an expression that RE2 compiles: Go's has its syntax.
func (m *model) regex(pos schema.Pos, what, expr string) bool {
	_, err := regexp.Compile(expr)
	if err != nil {
		m.error(pos, "regex", "", "%s: %v", what, err)
	}
	return err == nil
}

func (m *model) substitution(what string, s *substitution) {
	if s == nil || !m.regex(s.At.at("pattern"), what, s.Pattern) {
		return
	}
	re, err := syntax.Parse(s.Pattern, syntax.Perl)
	if err != nil {
		return
	}
	for i := 0; i+1 < len(s.With); i++ {
		if s.With[i] != '\\' {
			continue
		}
		i++
		if c := s.With[i]; c >= '0' && c <= '9' {
			if n := int(c - '0'); n > re.MaxCap() {
				m.error(s.At.at("with"), "regex", "", "%s: there is no group \\%d: the pattern has %d", what, n, re.MaxCap())
			}
		} else if c != '\\' {
			m.error(s.At.at("with"), "regex", `write \\1 for the first group, \\\\ for a backslash`, "%s: %q has a backslash that means nothing", what, s.With)
		}
	}
}

func (m *model) lintRedirect(what string, u *rule) {
	r := u.Redirect
	if !r.HTTPS && r.Host == "" && r.Path == "" && r.Port == 0 && r.Prefix == "" && r.Regex == nil && !r.StripQuery {
		m.error(u.At.at("redirect"), "one-of", "give at least one of https, host, path", "%s: the redirect leads to where it came from", what)
	}
	m.atMostOne(r.At, what+".redirect", "path", "prefix", "regex")
	m.substitution(what+".redirect.regex", r.Regex)
	if r.Prefix != "" {
		m.prefixed(r.At.at("prefix"), what+".redirect", &u.Match)
	}
}

func (m *model) lintRewrite(what string, u *rule) {
	r := u.Rewrite
	m.atMostOne(r.At, what, "prefix", "regex", "template")
	m.atMostOne(r.At, what, "host", "host_header", "service_host")
	m.substitution(what+".regex", r.Regex)
	if r.Prefix != "" {
		m.prefixed(r.At.at("prefix"), what, &u.Match)
	}
	if r.Template == "" {
		return
	}
	if u.Match.Template == "" {
		m.error(r.At.at("template"), "value", "match by a template", "%s: a template takes its variables from the rule's, which has none", what)
		return
	}
	known := setOf(variables(u.Match.Template))
	for _, v := range variables(r.Template) {
		if !known[v] {
			m.error(r.At.at("template"), "value", meant(v, sortedKeys(known), ""), "%s: the rule's template has no variable %q", what, v)
		}
	}
}

func (m *model) prefixed(pos schema.Pos, what string, u *ruleMatch) {
	if u.Prefix == "" && u.Path == "" {
		m.error(pos, "value", "use regex", "%s: prefix replaces what the rule's prefix or path matched, and it has neither", what)
	}
}

func (m *model) lintRetry(what string, r *retry) {
	m.conditions(what, r)
	if len(r.StatusCodes) > 0 && !setOf(r.On)["retriable-status-codes"] {
		m.error(r.At.at("status_codes"), "no-effect", `add "retriable-status-codes" to on`, "%s: status_codes are not looked at", what)
	}
	if r.MaxBackoff > 0 && r.MaxBackoff < r.Backoff {
		m.error(r.At.at("max_backoff"), "range", "", "%s: max_backoff is less than backoff", what)
	}
}

func (m *model) weights(what string, at *node, split map[string]uint32) {
	if split == nil {
		return
	}
	var sum uint64
	for _, w := range split {
		sum += uint64(w)
	}
	switch {
	case sum == 0:
		m.error(at.at("split"), "weights-zero", "give at least one service a weight above 0", "%s: the weights of the split sum to zero", what)
	case sum > 1<<32-1:
		m.error(at.at("split"), "range", "weights are relative: use smaller ones", "%s: the weights of the split sum to more than %d", what, uint32(1<<32-1))
	}
}

// retryConditions are those that Envoy knows; true is for what gRPC knows too.
var retryConditions = map[string]bool{
	"5xx": false, "gateway-error": false, "reset": false, "reset-before-request": false, "connect-failure": false,
	"envoy-ratelimited": false, "retriable-4xx": false, "refused-stream": false, "retriable-status-codes": false,
	"retriable-headers": false, "http3-post-connect-failure": false,
	"cancelled": true, "deadline-exceeded": true, "internal": true, "resource-exhausted": true, "unavailable": true,
}

func (m *model) conditions(what string, r *retry) {
	m.nonEmpty(r.At, what, "on", "nothing would be retried")
	for i, on := range r.On {
		if _, ok := retryConditions[on]; !ok {
			m.error(r.At.elem("on", i), "value", meant(on, sortedKeys(retryConditions), "see Envoy's retry_on"), "%s: %q is no condition to retry on", what, on)
		}
	}
}
