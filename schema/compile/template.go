package compile

import (
	"regexp"
	"strings"
)

var (
	templateVariable = regexp.MustCompile(`^\{([a-zA-Z][a-zA-Z0-9_]{0,15})(=[^{}]+)?\}`)
	templateText     = regexp.MustCompile(`^[a-zA-Z0-9\-._~%!$&'()+,;:@=]+`)
)

// badTemplate says what is wrong with a path template, by Envoy's rules: at most
// five variables, each name once, ** last.
func badTemplate(t string) string {
	seen := map[string]bool{}
	for rest := t; rest != ""; {
		switch {
		case rest[0] == '/':
			rest = rest[1:]
		case strings.HasPrefix(rest, "**"):
			if len(rest) > 2 {
				return "** is not at the end"
			}
			rest = ""
		case rest[0] == '*':
			rest = rest[1:]
		case rest[0] == '{':
			m := templateVariable.FindStringSubmatch(rest)
			if m == nil {
				return "a variable is not {name} or {name=pattern}"
			}
			if seen[m[1]] {
				return "there are two variables " + m[1]
			}
			if seen[m[1]] = true; len(seen) > 5 {
				return "there are more than 5 variables"
			}
			rest = rest[len(m[0]):]
		default:
			m := templateText.FindString(rest)
			if m == "" {
				return "it holds " + rest[:1]
			}
			rest = rest[len(m):]
		}
	}
	return ""
}

var inBraces = regexp.MustCompile(`\{([^{}=]*)`)

// variables are the names in a template.
func variables(t string) []string {
	var names []string
	for _, m := range inBraces.FindAllStringSubmatch(t, -1) {
		names = append(names, m[1])
	}
	return names
}
