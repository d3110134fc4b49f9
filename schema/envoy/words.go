package envoy

import (
	"fmt"
	"strings"
)

// words is the route's name or, if it has none, its match.
func (r *route) words() string {
	if n := r.src.GetName(); n != "" {
		return n
	}
	return r.match()
}

// match is the route's whole match as people read it: prefix "/a", header
// :method = "GET".
func (r *route) match() string {
	w := r.path.words()
	if c := r.demands(); c != "" {
		w += ", " + c
	}
	return w
}

// demands are the conditions beside the path.
func (r *route) demands() string {
	parts := make([]string, len(r.conditions))
	for i, c := range r.conditions {
		parts[i] = c.words
	}
	return strings.Join(parts, ", ")
}

func (p *pathMatch) words() string {
	w := string(p.kind)
	if p.kind != PathConnect && p.kind != PathUnknown {
		w = fmt.Sprintf("%s %q", p.kind, p.value)
	}
	if p.fold && p.kind != PathRegex {
		w += " (any case)"
	}
	return w
}
