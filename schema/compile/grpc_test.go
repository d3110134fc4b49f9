package compile_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/fstest"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// compiled is a package of one file.
func compiled(t *testing.T, text string) (*schema.Fleet, error) {
	t.Helper()
	return compile.Fleet(context.Background(), fstest.MapFS{"a.cue": {Data: []byte("package a\n" + text)}}, inProcess)
}

// codes are those of an error's diagnostics.
func codes(t *testing.T, err error) []string {
	t.Helper()
	var ds schema.Diagnostics
	if err != nil && !errors.As(err, &ds) {
		t.Fatal(err)
	}
	var out []string
	for _, d := range ds {
		out = append(out, d.Code)
	}
	return out
}

// unpacked is a resource's message.
func unpacked[T proto.Message](t *testing.T, r *schema.Resource, into T) T {
	t.Helper()
	if r == nil {
		t.Fatalf("there is no %T", into)
	}
	var a anypb.Any
	if err := proto.Unmarshal(r.Body, &a); err != nil {
		t.Fatal(err)
	}
	if err := a.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
	return into
}

const mesh = `
groups: {
	clients: {client: "grpc", match: id: "c"}
	servers: {client: "grpc", match: id: "s"}
}
listeners: {
	cart: {groups: ["clients"], target: "cart.mesh"}
	serve: {groups: ["servers"], serve: "0.0.0.0:50051"}
}
routes: cart: {listeners: ["cart"], hosts: ["cart.mesh"], rules: [{match: prefix: "/", service: "cart"}]}
services: cart: {protocol: "grpc", endpoints: [
	{address: "10.0.0.1:80", priority: 1}, {address: "10.0.0.2:80"}, {address: "10.0.0.3:80", zone: "z", weight: 3},
]}
`

// manager is the HTTP connection manager, and the name of its last filter.
func manager(t *testing.T, a *anypb.Any) (*hcmv3.HttpConnectionManager, string) {
	t.Helper()
	var m hcmv3.HttpConnectionManager
	if err := a.UnmarshalTo(&m); err != nil {
		t.Fatal(err)
	}
	if len(m.HttpFilters) == 0 {
		t.Fatal("no HTTP filters")
	}
	return &m, m.HttpFilters[len(m.HttpFilters)-1].GetTypedConfig().GetTypeUrl()
}

const routerURL = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"

// What a gRPC client dials is an API listener with a connection manager, its
// routes over ADS or inline, and the router last.
func TestG06ClientListener(t *testing.T) {
	f, err := compiled(t, mesh)
	if err != nil {
		t.Fatal(err)
	}
	l := unpacked(t, f.Group("clients").Snapshot.Get(schema.Key{Type: schema.Listeners, Name: "cart.mesh"}), &listenerv3.Listener{})
	m, last := manager(t, l.GetApiListener().GetApiListener())
	if last != routerURL {
		t.Errorf("the last filter is %s", last)
	}
	if m.GetRds().GetConfigSource().GetAds() == nil && m.GetRouteConfig() == nil {
		t.Errorf("its routes come from %v", m.RouteSpecifier)
	}
	if _, err := compiled(t, mesh+`listeners: cart: bind: "0.0.0.0:80"`); err == nil {
		t.Error("a gRPC client with a port is accepted")
	}
}

// A gRPC server's is named by the template of its bootstrap, has the address that
// it listens at, and routes that forward nothing (gRFC A36).
func TestG06ServerListener(t *testing.T) {
	f, err := compiled(t, mesh)
	if err != nil {
		t.Fatal(err)
	}
	set := f.Group("servers").Snapshot.Of(schema.Listeners)
	if set.Len() != 1 {
		t.Fatalf("%d listeners", set.Len())
	}
	for r := range set.All() {
		l := unpacked(t, r, &listenerv3.Listener{})
		at := l.GetAddress().GetSocketAddress()
		if l.Name != "grpc/server?xds.resource.listening_address=0.0.0.0:50051" || at.GetAddress() != "0.0.0.0" || at.GetPortValue() != 50051 {
			t.Errorf("listener %q at %v", l.Name, at)
		}
		m, last := manager(t, l.FilterChains[0].Filters[0].GetTypedConfig())
		if last != routerURL {
			t.Errorf("the last filter is %s", last)
		}
		for _, h := range m.GetRouteConfig().GetVirtualHosts() {
			for _, r := range h.Routes {
				if r.GetNonForwardingAction() == nil {
					t.Errorf("a server forwards: %v", r)
				}
			}
		}
	}
}

// gRPC clients refuse clusters of some types: a group of them is told before the
// merge, and a group of Envoys is not.
func TestG07ClusterTypes(t *testing.T) {
	for _, typ := range []string{"STATIC", "STRICT_DNS", "ORIGINAL_DST", "LOGICAL_DNS", "EDS"} {
		rest := `load_assignment: {cluster_name: "raw", endpoints: [{lb_endpoints: [{endpoint: address: socket_address: {address: "a.b", port_value: 1}}]}]}`
		switch typ {
		case "EDS":
			rest = `eds_cluster_config: eds_config: {ads: {}, resource_api_version: "V3"}`
		case "ORIGINAL_DST":
			rest = `lb_policy: "CLUSTER_PROVIDED"`
		}
		_, err := compiled(t, `
groups: mesh: {client: "grpc", match: id: "m"}
listeners: l: {groups: ["mesh"], target: "web.mesh"}
routes: r: {listeners: ["l"], hosts: ["web.mesh"], rules: [{match: prefix: "/", service: "raw"}]}
resources: clusters: raw: {type: "`+typ+`", `+rest+`}
`)
		known := typ == "EDS" || typ == "LOGICAL_DNS"
		if refused := slices.Contains(codes(t, err), "grpc-cluster"); refused == known {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// Endpoints are as gRPC clients take them: priorities without gaps, a locality
// with a weight, none twice.
func TestG08Endpoints(t *testing.T) {
	f, err := compiled(t, mesh)
	if err != nil {
		t.Fatal(err)
	}
	seen, priorities := map[string]bool{}, map[uint32]bool{}
	for r := range f.Live.Of(schema.Endpoints).All() {
		for _, l := range unpacked(t, r, &endpointv3.ClusterLoadAssignment{}).Endpoints {
			priorities[l.Priority] = true
			if l.Locality == nil || l.LoadBalancingWeight.GetValue() == 0 {
				t.Errorf("a locality that gRPC passes over: %v", l)
			}
			key := l.Locality.String() + string(rune('0'+l.Priority))
			if seen[key] {
				t.Errorf("twice the locality %s", key)
			}
			seen[key] = true
		}
	}
	if len(seen) != 3 || !priorities[0] || !priorities[1] {
		t.Errorf("localities %v, priorities %v", seen, priorities)
	}
	for text, code := range map[string]string{
		`{address: "10.0.0.1:80"}, {address: "10.0.0.2:80", priority: 2}`: "priority-gap",
		`{address: "10.0.0.1:80"}, {address: "10.0.0.1:80"}`:              "duplicate-endpoint",
		`{address: "10.0.0.1:80", weight: 0}`:                             "value",
	} {
		_, err := compiled(t, `services: web: endpoints: [`+text+`]`)
		if got := codes(t, err); !slices.Contains(got, code) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A fetch that never times out is warned of: a node would wait for ever.
func TestO12EndlessFetchIsWarnedOf(t *testing.T) {
	source := func(timeout string) bool {
		f, err := compiled(t, `
groups: edge: {client: "envoy", match: id: "e", external: ["raw"]}
resources: clusters: raw: {
	groups: ["edge"], type: "EDS"
	eds_cluster_config: eds_config: {ads: {}, resource_api_version: "V3"`+timeout+`}
}
`)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(codes(t, f.Warnings), "initial-fetch-timeout")
	}
	if !source(`, initial_fetch_timeout: "0s"`) || source("") || source(`, initial_fetch_timeout: "5s"`) {
		t.Error("warned of the wrong one")
	}
}
