package envoy

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rewritev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/rewrite/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// routeAction holds what a route's rewrites and redirect compile to.
type routeAction struct {
	src      *routev3.Route
	prefix   string
	path     *substitution
	host     *substitution
	template string // of path_rewrite_policy
	format   string // of path_rewrite
	doubts   []string
}

// substitution is a RegexMatchAndSubstitute.
type substitution struct {
	re *regexp.Regexp
	to string
}

func newAction(r *routev3.Route) *routeAction {
	a := &routeAction{src: r}
	if red := r.GetRedirect(); red != nil {
		a.prefix, a.format = red.GetPrefixRewrite(), red.GetPathRewrite()
		a.path = a.substitution(red.GetRegexRewrite())
		return a
	}
	ra := r.GetRoute()
	a.prefix, a.format = ra.GetPrefixRewrite(), ra.GetPathRewrite()
	a.path = a.substitution(ra.GetRegexRewrite())
	a.host = a.substitution(ra.GetHostRewritePathRegex())
	if p := ra.GetPathRewritePolicy(); p != nil {
		msg, err := p.GetTypedConfig().UnmarshalNew()
		if t, ok := msg.(*rewritev3.UriTemplateRewriteConfig); ok && err == nil {
			a.template = t.GetPathTemplateRewrite()
		} else {
			a.doubts = append(a.doubts, "an extension rewrites the path")
		}
	}
	return a
}

var backReference = regexp.MustCompile(`\$|\\[0-9\\]`)

func (a *routeAction) substitution(m *matcherv3.RegexMatchAndSubstitute) *substitution {
	if m == nil {
		return nil
	}
	re, err := regexp.Compile(m.GetPattern().GetRegex())
	if err != nil {
		a.doubts = append(a.doubts, "a regex of a rewrite does not compile")
		return nil
	}
	// RE2 writes \1 where Go writes ${1}.
	to := backReference.ReplaceAllStringFunc(m.GetSubstitution(), func(s string) string {
		switch s {
		case "$":
			return "$$"
		case `\\`:
			return `\`
		}
		return "${" + s[1:] + "}"
	})
	return &substitution{re, to}
}

// on rewrites the path and keeps the query. An empty result changes nothing.
func (s *substitution) on(path string) string { return s.re.ReplaceAllString(path, s.to) }

// newPath is the path after the rewrites that redirects and forwards share.
func (a *routeAction) newPath(p *pathMatch, v *view) (string, []string) {
	doubts := a.doubts
	query := v.path[len(v.bare):]
	replace := func(s string) (string, []string) {
		if s == "" {
			return v.path, doubts
		}
		return s + query, doubts
	}
	switch {
	case a.format != "":
		if formatted(a.format) {
			return v.path, append(doubts[:len(doubts):len(doubts)], "the proxy fills in the path "+a.format)
		}
		return replace(strings.ReplaceAll(a.format, "%%", "%"))
	case a.template != "":
		return replace(expand(a.template, p, v.bare))
	case a.prefix != "":
		m := p.matched(v)
		return a.prefix + v.path[len(m):], doubts
	case a.path != nil:
		return replace(a.path.on(v.bare))
	}
	return v.path, doubts
}

// formatted reports whether a proxy has to fill in a value: %REQ(x)%.
func formatted(s string) bool {
	return strings.Contains(strings.ReplaceAll(s, "%%", ""), "%")
}

// expand fills the variables of a template's match into a rewrite. It is empty
// if the route does not match by a template.
func expand(template string, p *pathMatch, path string) string {
	if p.kind != PathTemplate {
		return ""
	}
	m := p.re.FindStringSubmatch(path)
	if m == nil {
		return ""
	}
	var b strings.Builder
	for rest := template; rest != ""; {
		lit, more, ok := strings.Cut(rest, "{")
		b.WriteString(lit)
		if !ok {
			break
		}
		name, after, _ := strings.Cut(more, "}")
		if i := p.re.SubexpIndex(name); i >= 0 {
			b.WriteString(m[i])
		}
		rest = after
	}
	return b.String()
}

// rewrite sets the path and the host that the upstream is sent. Headers are
// changed before, so that the host may be taken from one.
func (a *routeAction) rewrite(p *pathMatch, v *view, d *Decision) []string {
	path, doubts := a.newPath(p, v)
	switch h := a.src.GetRoute().GetHostRewriteSpecifier().(type) {
	case *routev3.RouteAction_HostRewriteLiteral:
		d.Host = cmp.Or(h.HostRewriteLiteral, d.Host)
	case *routev3.RouteAction_AutoHostRewrite:
		if h.AutoHostRewrite.GetValue() {
			d.Host = ""
		}
	case *routev3.RouteAction_HostRewriteHeader:
		val, _ := v.get(lower(h.HostRewriteHeader))
		d.Host = cmp.Or(val, d.Host)
	case *routev3.RouteAction_HostRewritePathRegex:
		if a.host != nil {
			d.Host = cmp.Or(a.host.on(v.bare), d.Host)
		}
	case *routev3.RouteAction_HostRewrite:
		if formatted(h.HostRewrite) {
			doubts = append(doubts[:len(doubts):len(doubts)], "the proxy fills in the host "+h.HostRewrite)
		} else {
			d.Host = cmp.Or(strings.ReplaceAll(h.HostRewrite, "%%", "%"), d.Host)
		}
	}
	d.Path = path
	return doubts
}

var redirectStatus = map[routev3.RedirectAction_RedirectResponseCode]uint32{
	routev3.RedirectAction_MOVED_PERMANENTLY:  301,
	routev3.RedirectAction_FOUND:              302,
	routev3.RedirectAction_SEE_OTHER:          303,
	routev3.RedirectAction_TEMPORARY_REDIRECT: 307,
	routev3.RedirectAction_PERMANENT_REDIRECT: 308,
}

// redirect builds the location.
func (a *routeAction) redirect(p *pathMatch, v *view, d *Decision) []string {
	r := a.src.GetRedirect()
	d.Status = redirectStatus[r.GetResponseCode()]
	path, doubts := a.newPath(p, v)
	scheme := v.scheme
	switch {
	case r.GetSchemeRedirect() != "":
		scheme = r.GetSchemeRedirect()
	case r.GetHttpsRedirect():
		scheme = "https"
	}
	port := ""
	if r.GetPortRedirect() != 0 {
		port = ":" + strconv.FormatUint(uint64(r.GetPortRedirect()), 10)
	}
	host := r.GetHostRedirect()
	if host == "" {
		host = redirectHost(v, scheme, port)
	}
	target := r.GetPathRedirect()
	if target != "" {
		path = target
		if i := strings.IndexByte(v.path, '?'); i >= 0 && !strings.Contains(target, "?") {
			path += v.path[i:]
		}
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	// A query that the redirect itself names is not stripped.
	if r.GetStripQuery() && !strings.Contains(target, "?") {
		path, _, _ = strings.Cut(path, "?")
	}
	d.Redirect = scheme + "://" + host + port + path
	return doubts
}

// redirectHost is the request's host for a location. Its port goes if there is
// another, or if it is the default of a scheme that changes.
func redirectHost(v *view, scheme, port string) string {
	i := portStart(v.host)
	if i < 0 {
		return v.host
	}
	proto := v.headers["x-forwarded-proto"]
	old := v.host[i:]
	if port != "" || scheme != proto && (proto == "https" && old == ":443" || proto == "http" && old == ":80") {
		return v.host[:i]
	}
	return v.host
}
