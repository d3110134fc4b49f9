package planner

import (
	"maps"
	"slices"
	"strings"
	"weak"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// What a path asks of one resource, or of a pair of them, depends on nothing
// else: it is remembered with the resource, for the next class of sessions and
// the next commit. Only resources that a commit changes are looked into again.

// question is what was asked of a resource: as to which other, and how.
type question struct {
	about   string
	with    weak.Pointer[schema.Resource] // the other stays free to go
	details string
}

// derived answers a question of r, once.
func derived[T any](r *schema.Resource, q question, answer func() T) T {
	return r.Derive(q, func() any { return answer() }).(T)
}

// either is an answer or the reason why there is none.
type either[T any] struct {
	value T
	err   error
}

// asked answers a question of r that can fail.
func asked[T any](r *schema.Resource, q question, answer func(*schema.Resource) (T, error)) (T, error) {
	e := derived(r, q, func() either[T] {
		v, err := answer(r)
		return either[T]{v, err}
	})
	return e.value, e.err
}

// addressesOf are those that a listener binds. A nil one binds none.
func addressesOf(l *schema.Resource) ([]string, error) {
	if l == nil {
		return nil, nil
	}
	return asked(l, question{about: "addresses"}, envoy.Addresses)
}

// filtersOf are the names of a listener's HTTP filters. A nil one has none.
func filtersOf(l *schema.Resource) ([]string, error) {
	if l == nil {
		return nil, nil
	}
	return asked(l, question{about: "filters"}, envoy.FiltersOf)
}

// doubtsOf is what in a resource only a running proxy can follow.
func doubtsOf(r *schema.Resource) ([]string, error) {
	return asked(r, question{about: "doubts"}, envoy.Doubts)
}

// preparedFor is old with what r says of filters (see envoy.Prepare), or nil if
// that cannot be.
func preparedFor(old, r *schema.Resource, filters []string) *schema.Resource {
	q := question{"prepared", weak.Make(r), strings.Join(filters, "\n")}
	return derived(old, q, func() *schema.Resource {
		made, ok, err := envoy.Prepare(old, r, filters)
		if err != nil || !ok {
			return nil
		}
		return made
	})
}

// warmedWith is a table that names clusters (see envoy.Warm), or nil if that
// cannot be. Sessions in different states are given one and the same.
func warmedWith(r *schema.Resource, clusters names) *schema.Resource {
	var details strings.Builder
	for _, host := range slices.Sorted(maps.Keys(clusters)) {
		details.WriteString("\n" + host)
		for _, c := range slices.Compact(slices.Sorted(slices.Values(clusters[host]))) {
			details.WriteString("\t" + c)
		}
	}
	return derived(r, question{about: "warmed", details: details.String()}, func() *schema.Resource {
		warmed, err := envoy.Warm(r, clusters)
		if err != nil {
			return nil
		}
		return warmed
	})
}

// equalButWarm reports whether tables differ in warm routes at most.
func equalButWarm(a, b *schema.Resource) bool {
	return derived(b, question{about: "equal but warm", with: weak.Make(a)}, func() bool { return envoy.EqualButWarm(a, b) })
}

// hostsOf are the virtual hosts of the tables in a resource. A nil one has none.
func hostsOf(r *schema.Resource) ([]envoy.Host, error) {
	if r == nil {
		return nil, nil
	}
	return asked(r, question{about: "hosts"}, envoy.HostsOf)
}

// hostClusters are clusters of one virtual host.
type hostClusters struct {
	host     string
	clusters []string
}

// warmHosts lists the virtual hosts of a table that can have warm routes, and the
// clusters that those name.
func warmHosts(r *schema.Resource) []hostClusters {
	return derived(r, question{about: "warm hosts"}, func() []hostClusters {
		hosts, _ := hostsOf(r) // what cannot be read, Prove reports
		var out []hostClusters
		for _, h := range hosts {
			if h.MayBeWarm() {
				out = append(out, hostClusters{h.Name(), h.WarmClusters()})
			}
		}
		return out
	})
}

// missing lists, by virtual host of table in, the clusters that table from names
// for some of the same domains and in does not send to or, if warm will do, name.
func missing(from, in *schema.Resource, warm bool) []hostClusters {
	q := question{about: "missing", with: weak.Make(from)}
	if warm {
		q.about = "missing or cold"
	}
	return derived(in, q, func() []hostClusters { return missingOf(from, in, warm) })
}

func missingOf(from, in *schema.Resource, warm bool) []hostClusters {
	ours, _ := hostsOf(in) // what cannot be read, Prove reports
	theirs, _ := hostsOf(from)
	ourDomains, theirDomains := differing(ours, theirs, envoy.Host.MayBeWarm)
	order, _ := pairs(&ourDomains, &theirDomains)
	ourClusters, theirClusters := map[int][]string{}, map[int][]string{}
	var out []hostClusters
	for _, p := range order {
		if p.a < 0 || p.b < 0 || ours[p.a].Equal(theirs[p.b]) && !ours[p.a].MayBeWarm() {
			continue
		}
		named := clustersAt(theirClusters, theirs, p.b)
		if from.Name == in.Name { // what one table named it names on
			named = slices.Concat(named, theirs[p.b].WarmClusters())
		}
		has := clustersAt(ourClusters, ours, p.a)
		if warm {
			has = slices.Concat(has, ours[p.a].WarmClusters())
		}
		lacks := hostClusters{host: ours[p.a].Name()}
		for _, c := range named {
			if !slices.Contains(has, c) {
				lacks.clusters = append(lacks.clusters, c)
			}
		}
		if lacks.clusters != nil {
			out = append(out, lacks)
		}
	}
	return out
}

// clustersAt are those that a host of a table sends to, read once.
func clustersAt(read map[int][]string, hosts []envoy.Host, i int) []string {
	if _, ok := read[i]; !ok {
		read[i] = clustersOf(hosts[i])
	}
	return read[i]
}

// clustersOf are those that a host sends to. One that cannot be read sends to
// none: Prove reports it.
func clustersOf(h envoy.Host) []string {
	names, _ := h.Clusters()
	return names
}
