package ads

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// large makes n EDS clusters that together do not fit a stream's write quota,
// and their endpoints.
func large(n int, version string) (rs []*schema.Resource, clusters, endpoints []string) {
	for i := range n {
		name := fmt.Sprintf("c%03d", i)
		content := version + strings.Repeat("x", 2*window/n)
		rs = append(rs, eds(name, content), res(edsT, name, "1"))
		clusters = append(clusters, name+"@"+content)
		endpoints = append(endpoints, name+"@1")
	}
	return rs, clusters, endpoints
}

func namesOf(bodies []string) []string {
	var out []string
	for _, b := range bodies {
		name, _, _ := strings.Cut(b, "@")
		out = append(out, name)
	}
	return out
}

// A client withholds the ACK of its clusters until their endpoints came, also
// when the clusters alone fill the stream's window.
func TestO02EndpointsBehindManyClusters(t *testing.T) {
	rs, clusters, endpoints := large(100, "1")
	f := newFleet(t, rs...)
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, clusters...)
	c.ask(edsT, namesOf(endpoints)...)
	c.expect(edsT, endpoints...)
	c.ask(edsT, namesOf(endpoints)...)
	c.ask(cds)
	c.quiet()

	// And when all of them change at once, and nobody asks (rule O5).
	rs, clusters, _ = large(100, "2")
	f.set(schema.Envoy, rs...)
	c.expect(cds, clusters...)
	c.expect(edsT, endpoints...)
}
