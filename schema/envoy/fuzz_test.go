package envoy

import (
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

// naiveHost is the rule of the documentation, said as plainly as can be.
func naiveHost(domains []string, host string) int {
	host = strings.ToLower(host)
	best, rank := -1, 0
	for i, d := range domains {
		d = strings.ToLower(d)
		r := 0
		switch {
		case d == "*":
			r = 1
		case strings.HasPrefix(d, "*"):
			if strings.HasSuffix(host, d[1:]) && len(host) > len(d)-1 {
				r = 1_000_000 + len(d)
			}
		case strings.HasSuffix(d, "*"):
			if strings.HasPrefix(host, d[:len(d)-1]) && len(host) > len(d)-1 {
				r = 1000 + len(d)
			}
		case d == host:
			r = 1_000_000_000
		}
		if r > rank {
			best, rank = i, r
		}
	}
	return best
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// FuzzMatch holds the matcher against a second, slower one for domains and
// paths, and against itself: it never panics, answers alike from a fresh table
// and finds what it says it found.
func FuzzMatch(f *testing.F) {
	f.Add("a.com,*.com,a.*,*", "/x,/", "a.com:80", "/x/y?q=1#f", "GET", "x-a", "v", "/[a-z]+", uint8(0))
	f.Add("*-b.com,*.b.com", "", "x-b.com", "/a;p=1", "POST", ":path", "/a", "(/)(.*)", uint8(7))
	f.Add("[::1],*", "/{a}/**", "[::1]:443", "//", "CONNECT", "host", "", "(", uint8(255))
	f.Add("*", "/A", "h", "/a/b", "", "cookie", "k=v", "", uint8(18))
	f.Fuzz(func(t *testing.T, domains, prefixes, host, path, method, header, value, regex string, flags uint8) {
		if !ascii(domains + host + prefixes + path) {
			t.Skip("hosts and paths are ASCII on the wire")
		}
		rc := fuzzTable(domains, prefixes, header, value, regex, flags)
		req := schema.Request{Method: method, Host: host, Path: path, Headers: map[string]string{header: value}}
		d := NewTable(rc).Match(req)
		if diff := cmp.Diff(d, Match(rc, req)); diff != "" {
			t.Fatal(diff)
		}
		all := strings.Split(domains, ",")
		want := naiveHost(all, host)
		if i := portStart(host); rc.IgnorePortInHostMatching && i >= 0 {
			want = naiveHost(all, host[:i])
		}
		onlyStar := !slices.ContainsFunc(all, func(d string) bool { return d != "*" })
		got := slices.IndexFunc(rc.VirtualHosts, func(h *routev3.VirtualHost) bool { return h.Name == d.VirtualHost })
		if got < 0 && want >= 0 && (host != "" || onlyStar) || got >= 0 && !strings.EqualFold(all[got], all[max(want, 0)]) {
			t.Fatalf("host %q of %q: found %d, want %d", host, domains, got, want)
		}
		if got < 0 || d.Kind == Redirect {
			return
		}
		wantRoute := naiveRoute(rc.VirtualHosts[got], path, method)
		if rc.IgnorePathParametersInPathMatching || d.Unprovable != "" || header != "" {
			return
		}
		if wantRoute != d.Index {
			t.Fatalf("path %q of %q: route %d, want %d", path, prefixes, d.Index, wantRoute)
		}
	})
}

// naiveRoute is the first prefix route of a host, its regex route left out.
func naiveRoute(h *routev3.VirtualHost, path, method string) int {
	if path == "" {
		if path = "/"; method == "CONNECT" {
			return -1
		}
	}
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	for i, r := range h.Routes {
		p, fold := r.GetMatch().GetPrefix(), r.GetMatch().GetCaseSensitive() != nil
		if strings.HasPrefix(path, p) || fold && strings.HasPrefix(strings.ToLower(path), strings.ToLower(p)) {
			return i
		}
	}
	return -1
}

// fuzzTable has one host for each domain, each with a route for each prefix.
// Without a header the conditions are left out, so that naiveRoute can follow.
func fuzzTable(domains, prefixes, header, value, regex string, flags uint8) *routev3.RouteConfiguration {
	on := func(bit uint8) bool { return flags&bit != 0 }
	rc := &routev3.RouteConfiguration{IgnorePortInHostMatching: on(1), IgnorePathParametersInPathMatching: on(2)}
	for i, dom := range strings.Split(domains, ",") {
		h := &routev3.VirtualHost{Name: string(rune('A' + i)), Domains: []string{dom}}
		for _, p := range strings.Split(prefixes, ",") {
			m := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: p}}
			if header != "" {
				if on(4) {
					m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}}
				}
				if on(8) {
					m.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: p}
				}
				m.Headers = []*routev3.HeaderMatcher{{
					Name: header, InvertMatch: on(16), TreatMissingHeaderAsEmpty: on(32),
					HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
						MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: value}, IgnoreCase: on(64),
					}},
				}}
			}
			r := &routev3.Route{Match: m, Action: &routev3.Route_Route{Route: &routev3.RouteAction{
				ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: p},
				RegexRewrite:     &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: regex}, Substitution: value},
			}}}
			if on(128) {
				r.Action = &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{
					PathRewriteSpecifier: &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: value}, StripQuery: true,
				}}
			}
			h.Routes = append(h.Routes, r)
		}
		rc.VirtualHosts = append(rc.VirtualHosts, h)
	}
	return rc
}
