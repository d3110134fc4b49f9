package ads

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/schema"
)

// isolating makes rs the target of a group that asks for isolation.
func (f *fleet) isolating(rs ...*schema.Resource) {
	f.give(&schema.Target{Isolate: true, Snapshot: f.snapshot(rs...)})
}

func isBad(name string) bool { return strings.HasPrefix(name, "bad") }

// found waits until the ledger says that names are bad by themselves.
func (f *fleet) found(node string, names ...string) {
	f.t.Helper()
	f.settled(node, func(s *schema.SessionRow) bool {
		return s.Step.Verdict == schema.Halt && s.Nack != nil && s.Nack.Isolated && slices.Equal(s.Nack.Names, names)
	})
}

// answersClusters refuses the next response of clusters if the new version of one
// is in it, and reports whether there was such a response.
func (c *client) answersClusters(culprit string) bool {
	c.t.Helper()
	name := fmt.Sprintf("ping-%d", c.pings) // behind whatever is sent by now
	c.pings++
	c.ask(schema.Runtimes, name)
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	if r.TypeUrl == schema.Runtimes.URL() {
		c.last[schema.Runtimes] = r
		c.ask(schema.Runtimes, name)
		return false
	}
	c.last[cds] = r
	c.expect(schema.Runtimes, name+"@1")
	c.ask(schema.Runtimes, name)
	got := map[string]string{}
	for _, a := range r.Resources {
		name, version, _ := strings.Cut(string(a.Value), "@")
		got[name] = version
	}
	if got["old"] != "1" || got["k0"] == "" {
		c.t.Fatalf("a part takes away what the client held: %v", got)
	}
	if got[culprit] == "2" {
		c.nack(cds, "one of them is bad")
	} else {
		c.ask(cds)
	}
	return true
}

// A state-of-the-world client that refuses clusters gets them in halves. No part
// leaves out what it held, and few are sent.
func TestD09IsolationHalves(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 5, 8} {
		for bad := range n {
			t.Run(fmt.Sprint(bad, " of ", n), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				f.isolating(res(cds, "k0", "1"), res(cds, "old", "1"))
				c := f.dial("n")
				c.ask(cds)
				c.expect(cds, "k0@1", "old@1")
				c.ask(cds)
				c.quiet()
				// One of the new ones stands in the place of an old one.
				rs, culprit := []*schema.Resource{res(cds, "old", "1")}, "k0"
				for i := range n {
					name := fmt.Sprint("k", i)
					if i == bad {
						culprit = name
					}
					rs = append(rs, res(cds, name, "2"))
				}
				f.isolating(rs...)
				trials := -1 // the first response is none
				for ; c.answersClusters(culprit); trials++ {
				}
				if most := bits.Len(uint(n - 1)); trials > most || trials < 1 {
					t.Errorf("%d parts of %d, at most %d do", trials, n, most)
				}
				f.found("n", culprit)
				c.quiet() // and nothing is tried after that
			})
		}
	}
}

// A client of the incremental variant gets one resource a response: every bad one
// is found, and one that refers to a bad one is not sent without it.
func TestD09IsolationOneByOne(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.isolating(res(cds, "a", "1"))
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1")
	c.ack(cds)
	c.quiet()
	f.isolating(res(cds, "a", "2"), res(cds, "bad1", "1"), res(cds, "bad2", "1"),
		res(cds, "above-bad", "1", ref(cds, "bad1", schema.Traffic)), res(cds, "above-z", "1", ref(cds, "z", schema.Traffic)), res(cds, "z", "1"))
	c.expect(cds, "a@2", "above-bad@1", "above-z@1", "bad1@1", "bad2@1", "z@1")
	c.nack(cds, "two of them are bad")
	for _, want := range []string{"a@2", "bad1@1", "z@1", "above-z@1", "bad2@1"} {
		c.expect(cds, want)
		if isBad(want) {
			c.nack(cds, want+" is bad")
		} else {
			c.ack(cds)
		}
	}
	f.found("n", "bad1", "bad2")
	c.quiet()
	// What was accepted alone is held; the rest is sent once it is another.
	f.isolating(res(cds, "a", "2"), res(cds, "bad1", "2"), res(cds, "above-z", "1"), res(cds, "z", "1"))
	c.expect(cds, "bad1@2")
	c.ack(cds)
	c.expect(cds, "-above-bad", "-bad2") // as any cluster goes: at the end of the path
	c.ack(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack == nil })
}

// One node of a group is tried, and none of a group that did not ask for it, nor
// with a single resource, of which there is nothing to find out.
func TestD09IsolationOnOneNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.isolating(res(rds, "r", "1"), res(rds, "s", "1"))
	connect := func(node string) *client {
		c := f.dial(node)
		c.ask(rds, "r", "s")
		c.expect(rds, "r@1", "s@1")
		c.ask(rds, "r", "s")
		c.quiet()
		return c
	}
	one, other := connect("one"), connect("other")
	f.isolating(res(rds, "r", "2"), res(rds, "s", "2"))
	one.expect(rds, "r@2", "s@2")
	other.expect(rds, "r@2", "s@2")
	one.nack(rds, "no", "r", "s")
	one.expect(rds, "r@2")
	other.nack(rds, "no", "r", "s")
	other.quiet()
	one.ask(rds, "r", "s")
	f.found("one", "s")
	one.quiet()

	f.set(schema.Envoy, res(rds, "r", "3"), res(rds, "s", "3"))
	one.expect(rds, "r@3", "s@3")
	one.nack(rds, "no", "r", "s")
	one.quiet()

	f.isolating(res(rds, "r", "4"), res(rds, "s", "1"))
	one.expect(rds, "r@4", "s@1")
	one.ask(rds, "r", "s")
	f.settled("one", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	f.isolating(res(rds, "r", "5"), res(rds, "s", "1"))
	one.expect(rds, "r@5")
	one.nack(rds, "no", "r", "s")
	one.quiet()
}

// A new target in the middle ends it, whatever is in flight.
func TestD09IsolationEndsWithItsTarget(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.isolating(res(cds, "a", "1"))
	c := f.dial("n")
	c.ask(cds)
	c.expect(cds, "a@1")
	c.ask(cds)
	c.quiet()
	f.isolating(res(cds, "a", "2"), res(cds, "b", "2"), res(cds, "c", "2"))
	c.expect(cds, "a@2", "b@2", "c@2")
	c.nack(cds, "no")
	c.expect(cds, "a@2") // the first part
	f.isolating(res(cds, "a", "3"))
	c.quiet()
	c.ask(cds)
	c.expect(cds, "a@3", "b@2", "c@2") // which may have been applied
	c.ask(cds)
	c.expect(cds, "a@3")
	c.ask(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done && s.Nack == nil })
	// An answer of a client that watches the type no more ends it too.
	f.isolating(res(cds, "a", "4"), res(cds, "b", "4"))
	c.expect(cds, "a@4", "b@4")
	c.nack(cds, "no")
	r := c.expect(cds, "a@4")
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: cds.URL(), ResponseNonce: r.Nonce})
	c.quiet()
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Halt && !s.Nack.Isolated })
}
