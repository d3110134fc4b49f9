package planner

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema/envoy"
)

// domains finds virtual hosts as clients do. The zero value has none.
type domains struct {
	all   []string       // in the order of the table, without repeats
	hosts map[string]int // by domain
	wild  []string       // those with a star, in the order in which they are tried
}

// add lists a virtual host's domains. Of equal domains the first counts. Sort
// follows the last add.
func (d *domains) add(host int, names []string) {
	for _, n := range names {
		n = strings.ToLower(n)
		if _, ok := d.hosts[n]; ok {
			continue
		}
		if d.hosts == nil {
			d.hosts = map[string]int{}
		}
		d.hosts[n] = host
		d.all = append(d.all, n)
		if strings.Contains(n, "*") {
			d.wild = append(d.wild, n)
		}
	}
}

// sort puts domains with a star in Envoy's order: the longest suffix, then the
// longest prefix, then the star alone.
func (d *domains) sort() {
	kind := func(n string) int {
		switch {
		case n == "*":
			return 2
		case strings.HasSuffix(n, "*"):
			return 1
		}
		return 0
	}
	slices.SortStableFunc(d.wild, func(a, b string) int { return cmp.Or(kind(a)-kind(b), len(b)-len(a)) })
}

// find is the virtual host that takes all requests of a domain, or -1.
func (d *domains) find(name string) int {
	if host, ok := d.hosts[name]; ok {
		return host
	}
	for _, w := range d.wild {
		suffix, isSuffix := strings.CutPrefix(w, "*")
		prefix, isPrefix := strings.CutSuffix(w, "*")
		if isSuffix && strings.HasSuffix(strings.TrimPrefix(name, "*"), suffix) && !strings.HasSuffix(name, "*") ||
			isPrefix && strings.HasPrefix(strings.TrimSuffix(name, "*"), prefix) && !strings.HasPrefix(name, "*") || w == "*" {
			return d.hosts[w]
		}
	}
	return -1
}

// hostPair are the virtual hosts of two tables that some domains go to: an index
// is -1 where none takes them.
type hostPair struct{ a, b int }

// differing are the domains of two lists of hosts, as far as some request may go
// to hosts that are not equal, byte by byte: what equal hosts name without a star
// goes to them in both. Hosts that list accepts count as not equal.
func differing(a, b []envoy.Host, list func(envoy.Host) bool) (ofA, ofB domains) {
	fill := func(d *domains, hosts []envoy.Host, unlike []bool) {
		for i, h := range hosts {
			if unlike[i] || list(h) {
				d.add(i, h.Domains())
			} else {
				d.add(i, h.Wildcards())
			}
		}
		d.sort()
	}
	unlikeA, unlikeB := envoy.Unlike(a, b)
	fill(&ofA, a, unlikeA)
	fill(&ofB, b, unlikeB)
	return ofA, ofB
}

// pairs lists the pairs of virtual hosts that the domains of two tables go to,
// and those domains, a's first.
func pairs(a, b *domains) ([]hostPair, map[hostPair][]string) {
	var order []hostPair
	names := map[hostPair][]string{}
	visit := func(name string) {
		p := hostPair{a.find(name), b.find(name)}
		if names[p] == nil {
			order = append(order, p)
		}
		names[p] = append(names[p], name)
	}
	for _, name := range a.all {
		visit(name)
	}
	for _, name := range b.all {
		if _, ok := a.hosts[name]; !ok {
			visit(name)
		}
	}
	return order, names
}
