package fleet

import (
	"fmt"
	"slices"
)

// What is in use, and what it needs: the part of the judge that looks across types.

// order judges a response by what the client has acknowledged until now: what it
// brings may be used at once, and what it removes may be in use.
func (j *judge) order(r *response) {
	if (r.k == listeners || r.k == routes) && !j.excused() {
		for _, h := range r.items {
			if j.of[r.k].held[h.name] == h {
				continue
			}
			for _, from := range j.uses(r.k, h.content) {
				if why := j.lacking(from); why != "" {
					j.breach(Order, fmt.Sprintf("%s nonce %s: %s goes to %s, and %s", r.k, r.nonce, h.name, from, why))
				}
			}
		}
	}
	gone := map[string]bool{}
	for _, n := range r.removed {
		gone[n] = true
	}
	if r.k.whole() && !j.delta {
		for n := range j.of[r.k].held {
			gone[n] = true
		}
		for _, h := range r.items {
			delete(gone, h.name)
		}
	}
	if len(gone) == 0 || j.excused() {
		return
	}
	for what, user := range j.inUse(r.k) {
		if gone[what] {
			j.breach(Order, fmt.Sprintf("%s nonce %s removes %s, which %s still uses", r.k, r.nonce, what, user))
		}
	}
}

// excused reports whether a lack may be the client's own doing: a process that has
// just begun is answered whatever it asks for, also if it refused what comes before.
func (j *judge) excused() bool { return !j.complete && j.refusals }

// uses lists the clusters to which a listener or a table in use sends requests.
func (j *judge) uses(k kind, c *content) []string {
	if k == routes {
		for _, l := range j.of[listeners].held {
			if slices.Contains(l.tables, c.name) {
				return c.clusters
			}
		}
		return nil
	}
	to := slices.Clone(c.clusters)
	for _, t := range c.tables {
		if table, ok := j.of[routes].held[t]; ok {
			to = append(to, table.clusters...)
		}
	}
	return to
}

// lacking says why requests to a cluster would fail, if they would.
func (j *judge) lacking(name string) string {
	c, ok := j.of[clusters].held[name]
	if !ok {
		return "that cluster is not held"
	}
	if c.eds != "" {
		if _, ok := j.of[endpoints].held[c.eds]; !ok {
			return "its endpoints are not held"
		}
	}
	for _, child := range c.clusters {
		if child != name {
			if why := j.lacking(child); why != "" {
				return fmt.Sprintf("of its %s: %s", child, why)
			}
		}
	}
	return ""
}

// inUse maps what of a kind carries requests to what uses it, with what is
// received and may be applied at any moment.
func (j *judge) inUse(k kind) map[string]string {
	out := map[string]string{}
	use := func(by string, names ...string) {
		for _, n := range names {
			if _, ok := out[n]; !ok {
				out[n] = by
			}
		}
	}
	to := map[string]string{}
	for _, l := range j.may(listeners) {
		if k == routes {
			use(l.name, l.tables...)
		}
		for _, c := range l.clusters {
			to[c] = l.name
		}
		for _, t := range j.may(routes) {
			if slices.Contains(l.tables, t.name) {
				for _, c := range t.clusters {
					to[c] = t.name
				}
			}
		}
	}
	if k != clusters && k != endpoints {
		return out
	}
	for name, by := range to {
		j.reach(name, map[string]bool{}, func(c *content) {
			if k == clusters {
				use(by, c.name)
			} else if c.eds != "" {
				use(by, c.eds)
			}
		})
	}
	return out
}

// may is all of a kind that the client holds or may hold in a moment.
func (j *judge) may(k kind) []*content {
	var all []*content
	for _, h := range j.of[k].held {
		all = append(all, h.content)
	}
	if r := j.of[k].unanswered; r != nil {
		for _, h := range r.items {
			all = append(all, h.content)
		}
	}
	return all
}

// reach visits a cluster and the clusters that it is made of.
func (j *judge) reach(name string, seen map[string]bool, visit func(*content)) {
	if seen[name] {
		return
	}
	seen[name] = true
	if h, ok := j.of[clusters].held[name]; ok {
		visit(h.content)
		for _, child := range h.clusters {
			j.reach(child, seen, visit)
		}
	}
}
