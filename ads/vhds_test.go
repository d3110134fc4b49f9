package ads

import (
	"fmt"
	"slices"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

const vhds = schema.VirtualHosts

// vhost makes a virtual host, "table/name".
func vhost(name, content string, domains ...string) *schema.Resource {
	return vhostTo(name, content, nil, domains...)
}

func vhostTo(name, content string, refs []schema.Ref, domains ...string) *schema.Resource {
	msg, err := anypb.New(&routev3.VirtualHost{Name: content, Domains: domains})
	if err != nil {
		panic(err)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err != nil {
		panic(err)
	}
	return schema.NewResource(schema.Key{Type: vhds, Name: name}, refs, body)
}

// expectHosts reads the next response, which is about virtual hosts: of each
// "name@content", or "name" alone if it has no body, then the names that it
// answers, then what is removed, "-name".
func (c *deltaClient) expectHosts(want ...string) {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("expected hosts %v, got %v", want, err)
	}
	var got []string
	for _, a := range r.Resources {
		said := a.Name
		if a.Resource != nil {
			var vh routev3.VirtualHost
			if err := a.Resource.UnmarshalTo(&vh); err != nil {
				c.t.Fatal(err)
			}
			said += "@" + vh.Name
		}
		if a.Version == "" {
			c.t.Errorf("%s has no version", a.Name)
		}
		got = append(got, fmt.Sprint(said, " ", a.Aliases))
	}
	for _, n := range r.RemovedResources {
		got = append(got, "-"+n)
	}
	if r.TypeUrl != vhds.URL() || !slices.Equal(got, want) {
		c.t.Fatalf("got %s %q, want virtual hosts %q", r.TypeUrl, got, want)
	}
	c.last[vhds] = r
}

// Hosts are asked for as requests name them, and answered under their own names.
func TestD12HostsOnDemand(t *testing.T) {
	t.Parallel()
	f := newFleet(t,
		vhost("t/shop", "1", "shop.example.com", "Shop.example.org"), vhost("t/any", "1", "*"),
		vhost("t/wide", "1", "*.example.com"), vhost("t/wider", "1", "*.com"), vhost("t/front", "1", "api.*"),
		vhost("other/t/x", "1", "x"), vhost("t/named", "1", "never"))
	c := f.deltaDial("n")
	c.sub(vhds, "t/shop.example.com")
	c.expectHosts("t/shop@1 [t/shop.example.com]")
	c.ack(vhds)
	c.sub(vhds, "t/a.example.com", "t/b.com", "t/api.x", "other/t/x", "t/named")
	c.expectHosts("other/t/x@1 []", "t/front@1 [t/api.x]", "t/named@1 []", "t/wide@1 [t/a.example.com]", "t/wider@1 [t/b.com]")
	c.ack(vhds)
	// Another name of a host that is held is answered all the same: a request
	// waits for it.
	c.sub(vhds, "t/SHOP.example.org")
	c.expectHosts("t/shop@1 [t/SHOP.example.org t/shop.example.com]")
	c.ack(vhds)
	c.sub(vhds, "t/elsewhere")
	c.expectHosts("t/any@1 [t/elsewhere]")
	c.ack(vhds)
	c.quiet()
	f.typed("n", vhds, func(r *schema.TypeRow) bool { return r.Held == 7 && !r.InFlight })
	status, err := f.operator().FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	hosts := 0
	for _, g := range status.Config[0].GenericXdsConfigs {
		if g.TypeUrl == vhds.URL() {
			hosts++
			if g.ConfigStatus != statusv3.ConfigStatus_SYNCED {
				t.Errorf("%s is %s", g.Name, g.ConfigStatus)
			}
		}
	}
	if hosts != 7 {
		t.Errorf("%d hosts in the status", hosts)
	}

	// What is no longer asked for under any name is no longer served.
	c.unsub(vhds, "t/SHOP.example.org", "t/elsewhere")
	c.quiet()
	f.set(schema.Envoy, vhost("t/shop", "2", "shop.example.com"), vhost("t/any", "2", "*"))
	c.expectHosts("t/shop@2 [t/shop.example.com]")
}

// A host that nobody knows is a Resource without a body, so that the request that
// waits for it fails at once; when it comes to be, it is sent.
func TestD12UnknownHost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, vhost("t/a", "1", "a"))
	c := f.deltaDial("n")
	c.sub(vhds, "t/a", "t/b", "t") // Envoy begins with the table's own name
	c.expectHosts("t/a@1 []", "t [t]", "t/b [t/b]")
	first := c.last[vhds].Resources[2].Version
	c.ack(vhds)
	c.quiet()
	c.sub(vhds, "t/b")
	c.expectHosts("t/b [t/b]")
	if again := c.last[vhds].Resources[0].Version; again == first {
		t.Errorf("twice version %s without a body: that is a heartbeat", again)
	}
	c.ack(vhds)
	f.set(schema.Envoy, vhost("t/a", "1", "a"), vhost("t/all", "1", "b", "c"))
	c.expectHosts("t/all@1 [t/b]")
	c.ack(vhds)
	f.set(schema.Envoy, vhost("t/a", "1", "a"))
	c.expectHosts("-t/all")
}

// A route table that changes drops the hosts that its client has: they go again,
// behind it.
func TestD12TableDropsItsHosts(t *testing.T) {
	t.Parallel()
	hosts := []*schema.Resource{vhost("r/a", "1", "a"), vhost("s/a", "1", "a")}
	for _, streams := range []string{"aggregated", "apart"} {
		t.Run(streams, func(t *testing.T) {
			f := newFleet(t, append(hosts, res(rds, "r", "1"), res(rds, "s", "1"))...)
			c := f.deltaDial(streams)
			tables := c
			if streams == "apart" {
				c, tables = f.deltaApart(streams, vhds), f.deltaApart(streams, rds)
			}
			tables.sub(rds, "r", "s")
			tables.expect(rds, "r@1", "s@1")
			tables.ack(rds)
			f.typed(streams, rds, func(r *schema.TypeRow) bool { return r.Held == 2 })
			c.sub(vhds, "r/a", "s/a")
			c.expectHosts("r/a@1 []", "s/a@1 []")
			c.ack(vhds)
			f.typed(streams, vhds, func(r *schema.TypeRow) bool { return r.Held == 2 })
			f.settled(streams, func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
			f.set(schema.Envoy, append(hosts, res(rds, "r", "2"), res(rds, "s", "1"))...)
			tables.expect(rds, "r@2")
			if streams == "aggregated" {
				c.expectHosts("r/a@1 []")
				tables.ack(rds)
				c.ack(vhds)
				return
			}
			// On a stream of their own they could overtake the table.
			f.settled(streams, func(s *schema.SessionRow) bool {
				flying := map[schema.Type]bool{}
				for _, r := range f.srv.View().Types(s.ID) {
					flying[r.Type] = r.InFlight
				}
				return flying[rds] && !flying[vhds]
			})
			tables.ack(rds)
			c.expectHosts("r/a@1 []")
		})
	}
}

// A cluster is not removed before the host that left it is acknowledged, under
// whatever name the client asked for that host.
func TestD12PruneWaitsForTheHost(t *testing.T) {
	t.Parallel()
	to := func(cluster string) []schema.Ref { return []schema.Ref{ref(cds, cluster, schema.Traffic)} }
	f := newFleet(t, res(cds, "a", "1"), vhostTo("t/h", "1", to("a"), "*"))
	c := f.deltaDial("n")
	c.sub(cds)
	c.expect(cds, "a@1")
	c.ack(cds)
	c.sub(vhds, "t/example.com")
	c.expectHosts("t/h@1 [t/example.com]")
	c.ack(vhds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })
	f.give(&schema.Target{Snapshot: f.snapshot(res(cds, "b", "1"), vhostTo("t/h", "2", to("b"), "*"))})
	c.expect(cds, "b@1")
	c.quiet()
	c.ack(cds)
	c.expectHosts("t/h@2 [t/example.com]")
	c.quiet()
	c.ack(vhds)
	c.expect(cds, "-a")
}
