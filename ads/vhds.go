package ads

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-xds/sluice/schema"
)

// A virtual host is named "table/host" and asked for on demand: as
// "table/authority", with the authority of a request that no host of the table
// took. The answer names the host and, as its aliases, the names that asked for
// it (rule D12).

// hostNames finds the virtual hosts of a set by the names that clients ask with.
type hostNames struct {
	set   schema.Set
	exact map[string]*schema.Resource // by table/domain
	wild  map[string][]wildDomain     // by table, the strongest first
}

// wildDomain is a domain with a star at one end.
type wildDomain struct {
	prefix, suffix string
	host           *schema.Resource
}

func (w *wildDomain) takes(authority string) bool {
	return len(authority) > len(w.prefix)+len(w.suffix) && strings.HasPrefix(authority, w.prefix) && strings.HasSuffix(authority, w.suffix)
}

// rank orders the domains of a table as Envoy does: of suffixes the longest, then
// of prefixes the longest, and the lone star last.
func (w *wildDomain) rank() int {
	switch {
	case w.suffix != "":
		return len(w.suffix) + 1<<16
	default:
		return len(w.prefix)
	}
}

func newHostNames(set schema.Set) *hostNames {
	h := &hostNames{set: set, exact: map[string]*schema.Resource{}, wild: map[string][]wildDomain{}}
	for r := range set.All() {
		table := tableOf(r.Name)
		for _, domain := range domainsOf(r) {
			domain = strings.ToLower(domain)
			w := wildDomain{host: r}
			switch {
			case strings.HasPrefix(domain, "*"):
				w.suffix = domain[1:]
			case strings.HasSuffix(domain, "*"):
				w.prefix = domain[:len(domain)-1]
			default:
				h.exact[table+"/"+domain] = r
				continue
			}
			h.wild[table] = append(h.wild[table], w)
		}
	}
	for _, ws := range h.wild {
		slices.SortStableFunc(ws, func(a, b wildDomain) int { return b.rank() - a.rank() })
	}
	return h
}

// find is the virtual host that a name asks for, or nil.
func (h *hostNames) find(name string) *schema.Resource {
	if r := h.set.Get(name); r != nil {
		return r
	}
	table := tableOf(name)
	if table == name {
		return nil // a whole table: its hosts come on demand
	}
	authority := strings.ToLower(name[len(table)+1:])
	if r := h.exact[table+"/"+authority]; r != nil {
		return r
	}
	for i := range h.wild[table] {
		if w := &h.wild[table][i]; w.takes(authority) {
			return w.host
		}
	}
	return nil
}

// tableOf is the route table that a host's name begins with: tables may have
// slashes in their names, hosts not.
func tableOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return name
}

// Fields of google.protobuf.Any and of route.v3.VirtualHost.
const (
	anyValue    = 2
	hostDomains = 2
)

// domainsOf reads the domains of a virtual host from its body. One that cannot be
// read has none: it was checked when it was made.
func domainsOf(r *schema.Resource) (domains []string) {
	_ = eachField(r.Body, func(num protowire.Number, v []byte, _ uint64) error {
		if num != anyValue {
			return nil
		}
		return eachField(v, func(num protowire.Number, v []byte, _ uint64) error {
			if num == hostDomains && v != nil {
				domains = append(domains, string(v))
			}
			return nil
		})
	})
	return domains
}

// hostIndex remembers the names of the large sets that were asked last: those of
// targets, which sessions share. What one session holds is quicker made anew.
type hostIndex struct {
	mu   sync.Mutex
	last [4]*hostNames
	next int
}

const largeSet = 64

func (x *hostIndex) of(set schema.Set) *hostNames {
	if set.Len() < largeSet {
		return newHostNames(set)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range x.last {
		if h != nil && h.set.Equal(set) {
			return h
		}
	}
	h := newHostNames(set)
	x.last[x.next] = h
	x.next = (x.next + 1) % len(x.last)
	return h
}

// pick is the part of a set that names ask for.
func (x *hostIndex) pick(set schema.Set, names []string) schema.Set {
	h := x.of(set)
	var found []*schema.Resource
	for _, n := range names {
		if r := h.find(n); r != nil {
			found = append(found, r)
		}
	}
	return schema.SetOf(found...)
}

// onDemand is what a response about virtual hosts says beside them.
type onDemand struct {
	aliases map[string][]string // names that asked, by the host that answers
	unknown []string            // names that nothing answers
	stamp   uint64              // so that no two answers of nothing are alike
}

// onDemand says which names the hosts of a response answer, and which of the new
// names nothing does.
func (s *session) onDemand(want, set schema.Set) *onDemand {
	ts := &s.types[schema.VirtualHosts]
	h := s.srv.vhosts.of(want)
	d := &onDemand{aliases: map[string][]string{}, stamp: ts.stream.nonces + 1}
	for _, n := range ts.sub.Names {
		if r := h.find(n); r != nil && r.Name != n && set.Get(r.Name) != nil {
			d.aliases[r.Name] = append(d.aliases[r.Name], n)
		}
	}
	for _, n := range ts.missing {
		if h.find(n) == nil {
			d.unknown = append(d.unknown, n)
		}
	}
	slices.Sort(d.unknown)
	d.unknown = slices.Compact(d.unknown)
	return d
}

// of are the names that a host answers.
func (d *onDemand) of(r *schema.Resource) []string {
	if d == nil {
		return nil
	}
	return d.aliases[r.Name]
}

// nothing answers a name that no host takes: a Resource without a body, so that
// the request that waits for it is told. Its version is new each time: the same
// again without a body would be a heartbeat.
func (d *onDemand) nothing(name string) []byte {
	var r []byte
	r = appendString(r, resourceName, name)
	r = appendString(r, resourceAliases, name)
	r = appendString(r, resourceVersion, "none-"+formatNonce(d.stamp))
	return protowire.AppendBytes(protowire.AppendTag(nil, resourceList, protowire.BytesType), r)
}

// resendHosts marks the virtual hosts of tables that a client is given anew: an
// update of a table drops the hosts that it has (rule D12).
func (s *session) resendHosts(tables schema.Set) {
	ts, f := &s.types[schema.VirtualHosts], &s.facts.Types[schema.VirtualHosts]
	if ts.sub == nil {
		return
	}
	f.Resend = f.Resend.Union(s.desired(schema.VirtualHosts).Filter(func(r *schema.Resource) bool {
		return tables.Get(tableOf(r.Name)) != nil
	}))
}
