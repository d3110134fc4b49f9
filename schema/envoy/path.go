package envoy

import (
	"fmt"
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
)

// PathKind is the way in which a route matches a path.
type PathKind string

// The kinds of path match.
const (
	PathPrefix    PathKind = "prefix"
	PathExact     PathKind = "path"
	PathRegex     PathKind = "regex"
	PathSeparated PathKind = "path-separated prefix"
	PathTemplate  PathKind = "template"
	PathConnect   PathKind = "connect"
	// PathUnknown is a match that this package cannot read: an extension, or an
	// expression that does not compile.
	PathUnknown PathKind = "unknown"
)

// pathMatch is the compiled path specifier of a route.
type pathMatch struct {
	kind   PathKind
	value  string // as configured
	fold   bool
	re     *regexp.Regexp
	params bool   // path parameters are cut off before matching
	broken string // why the kind is unknown
}

func newPathMatch(m *routev3.RouteMatch, ignoreParams bool) pathMatch {
	p := pathMatch{params: ignoreParams}
	p.fold = m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()
	switch s := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		p.kind, p.value = PathPrefix, s.Prefix
	case *routev3.RouteMatch_Path:
		p.kind, p.value = PathExact, s.Path
	case *routev3.RouteMatch_PathSeparatedPrefix:
		p.kind, p.value = PathSeparated, s.PathSeparatedPrefix
	case *routev3.RouteMatch_ConnectMatcher_:
		p.kind = PathConnect
	case *routev3.RouteMatch_SafeRegex:
		p.kind, p.value = PathRegex, s.SafeRegex.GetRegex()
		p.compile(p.value)
	case *routev3.RouteMatch_PathMatchPolicy:
		p.template(s.PathMatchPolicy.GetTypedConfig().UnmarshalNew())
	default:
		p.kind, p.broken = PathUnknown, "the route has no path specifier"
	}
	return p
}

func (p *pathMatch) compile(expr string) {
	re, err := fullMatch(expr)
	if err != nil {
		p.kind, p.broken = PathUnknown, err.Error()
		return
	}
	p.re = re
}

func (p *pathMatch) template(msg any, err error) {
	t, ok := msg.(*matchv3.UriTemplateMatchConfig)
	if err != nil || !ok {
		p.kind, p.broken = PathUnknown, "a path match extension decides"
		return
	}
	p.kind, p.value = PathTemplate, t.GetPathTemplate()
	expr, err := templateExpr(p.value)
	if err != nil {
		p.kind, p.broken = PathUnknown, err.Error()
		return
	}
	p.compile(expr)
}

// matches holds a request's path against the route's, without query and fragment.
func (p *pathMatch) matches(v *view) bool {
	if p.kind == PathConnect {
		return v.connect
	}
	if v.path == "" { // CONNECT without a path: only a connect matcher can match
		return false
	}
	path := v.bare
	if p.params && p.kind != PathTemplate {
		path, _, _ = strings.Cut(v.path, ";")
		path = bare(path)
	}
	switch p.kind {
	case PathExact:
		return path == p.value || p.fold && equalFold(path, p.value)
	case PathPrefix:
		return p.hasPrefix(path)
	case PathSeparated:
		return p.hasPrefix(path) && (len(path) == len(p.value) || path[len(p.value)] == '/')
	case PathRegex, PathTemplate:
		return p.re.MatchString(path)
	}
	return false
}

func (p *pathMatch) hasPrefix(path string) bool {
	return len(path) >= len(p.value) &&
		(path[:len(p.value)] == p.value || p.fold && equalFold(path[:len(p.value)], p.value))
}

// matched is the part of the path that a prefix rewrite replaces.
func (p *pathMatch) matched(v *view) string {
	switch p.kind {
	case PathPrefix, PathExact, PathSeparated:
		return v.path[:min(len(p.value), len(v.path))]
	}
	return v.bare
}

// equalFold ignores the case of ASCII letters alone, as Envoy does.
func equalFold(a, b string) bool {
	return len(a) == len(b) && lower(a) == lower(b)
}

// lower lower-cases ASCII letters alone and keeps the length.
func lower(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// bare is a path without query and fragment.
func bare(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return path[:i]
	}
	return path
}

// fullMatch compiles an expression that must match the whole value.
func fullMatch(expr string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(expr); err != nil {
		return nil, fmt.Errorf("the regex does not compile: %w", err)
	}
	return regexp.Compile(`\A(?:` + expr + `)\z`)
}

const (
	segment  = `[a-zA-Z0-9\-._~%!$&'()+,;:@=]+`
	segments = `[a-zA-Z0-9\-._~%!$&'()+,;:@=/]*`
)

var (
	templateVar     = regexp.MustCompile(`^\{([a-zA-Z][a-zA-Z0-9_]{0,15})(?:=([^}]+))?\}`)
	templateLiteral = regexp.MustCompile(`^[a-zA-Z0-9\-._~%!$&'()+,;:@=]+`)
)

// templateExpr is the regular expression of a URI template: * is a segment, **
// the rest, {name} a named segment and {name=pattern} a named pattern.
func templateExpr(t string) (string, error) {
	var b strings.Builder
	rest := t
	if !strings.HasPrefix(t, "/") {
		return "", fmt.Errorf("the template %q does not begin with /", t)
	}
	for rest != "" {
		switch {
		case rest[0] == '/':
			b.WriteByte('/')
			rest = rest[1:]
		case strings.HasPrefix(rest, "**"):
			b.WriteString(segments)
			rest = rest[2:]
		case rest[0] == '*':
			b.WriteString(segment)
			rest = rest[1:]
		case rest[0] == '{':
			m := templateVar.FindStringSubmatch(rest)
			if m == nil {
				return "", fmt.Errorf("the template %q has a bad variable", t)
			}
			inner := segment
			if m[2] != "" {
				expr, err := templateExpr("/" + m[2])
				if err != nil || strings.Contains(m[2], "{") {
					return "", fmt.Errorf("the template %q has a bad variable", t)
				}
				inner = expr[1:]
			}
			fmt.Fprintf(&b, "(?P<%s>%s)", m[1], inner)
			rest = rest[len(m[0]):]
		default:
			m := templateLiteral.FindString(rest)
			if m == "" {
				return "", fmt.Errorf("the template %q has a bad character", t)
			}
			b.WriteString(regexp.QuoteMeta(m))
			rest = rest[len(m):]
		}
	}
	return b.String(), nil
}
