package compile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// unreachable finds rules that can never answer, because one before takes all
// that they match. It knows the certain cases: no regex is taken apart. Within
// one entry that is an error; across entries, where a shared host was given two
// owners on purpose, a warning.
func (m *model) unreachable() {
	said := map[*rule]bool{}
	for l := range sorted(m.todo.listeners) {
		for _, h := range m.hostsOf(l) {
			m.unreachableIn(h, said)
		}
	}
}

func (m *model) unreachableIn(h host, said map[*rule]bool) {
	type placed struct {
		*rule
		entry string
		index int
	}
	var before []placed
	for _, name := range h.names {
		for i := range m.routes[name].Rules {
			u := placed{&m.routes[name].Rules[i], name, i}
			for _, b := range before {
				if said[u.rule] || !b.Match.covers(&u.Match) {
					continue
				}
				said[u.rule] = true
				d := schema.Diagnostic{
					Pos: u.At.pos, Code: "unreachable-route",
					Message: fmt.Sprintf("routes %q: rules[%d] (%s) is never reached: rules[%d] of %q (%s) takes all that it matches",
						name, i, u.Match.String(), b.index, b.entry, b.Match.String()),
					Hint: "put the narrower rule first; the wider is at " + b.At.pos.String(),
				}
				if b.entry != name {
					d.Severity, d.Code = schema.Warning, "shadowed-route"
				}
				m.report(m.routes[name].Allow, d)
			}
			before = append(before, u)
		}
	}
}

// covers reports whether all that o matches is certain to match m too.
func (m *ruleMatch) covers(o *ruleMatch) bool {
	if !m.coversMethods(o) || !coversValues(m.Headers, o.Headers) || !coversValues(m.Query, o.Query) ||
		!coversMatches(m.HeaderMatches, o.HeaderMatches, o.Headers) || !coversMatches(m.QueryMatches, o.QueryMatches, o.Query) ||
		o.IgnoreCase && !m.IgnoreCase {
		return false
	}
	exact, prefix, template, regex := m.path()
	oExact, oPrefix, oTemplate, oRegex := o.path()
	if m.IgnoreCase {
		exact, prefix, oExact, oPrefix = strings.ToLower(exact), strings.ToLower(prefix), strings.ToLower(oExact), strings.ToLower(oPrefix)
	}
	switch {
	case exact != "":
		return exact == oExact
	case prefix != "":
		return prefix == "/" || strings.HasPrefix(oExact, prefix) || strings.HasPrefix(oPrefix, prefix) ||
			strings.HasPrefix(literal(oTemplate), prefix)
	case template != "":
		return template == oTemplate
	}
	return regex != "" && (regex == oRegex || oExact != "" && !o.IgnoreCase && wholly(regex, oExact))
}

// wholly reports whether an expression matches all of a path.
func wholly(expr, path string) bool {
	re, err := regexp.Compile(`\A(?:` + expr + `)\z`)
	return err == nil && re.MatchString(path)
}

// literal is what all paths of a template begin with.
func literal(template string) string {
	if i := strings.IndexAny(template, "*{"); i >= 0 {
		return template[:i]
	}
	return template
}

func (m *ruleMatch) coversMethods(o *ruleMatch) bool {
	all, some := m.methods(), o.methods()
	if len(all) == 0 {
		return true
	}
	for _, method := range some {
		if !slices.Contains(all, method) {
			return false
		}
	}
	return len(some) > 0
}

func coversValues(m, o map[string]string) bool {
	for name, value := range m {
		if got, ok := o[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// coversMatches knows equal demands, and that an exact value is present.
func coversMatches(m, o map[string]valueMatch, exact map[string]string) bool {
	for name, v := range m {
		if got, ok := o[name]; ok && v.same(got) {
			continue
		}
		if _, ok := exact[name]; ok && v.At.get("present") != nil && v.Present != v.Invert {
			continue
		}
		return false
	}
	return true
}
