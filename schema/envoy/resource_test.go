package envoy

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-xds/sluice/schema"
)

func TestResourceRoundTrip(t *testing.T) {
	for _, tt := range refTests {
		msg := parse(t, tt.typ, tt.json)
		r, err := Resource(msg, NameOf(msg))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := refsText(r.Refs); got != tt.want || r.Type != tt.typ || r.Name != NameOf(msg) {
			t.Errorf("%s: %s refers to %s, want %s", tt.name, r.Key, got, tt.want)
		}
		back, err := Unpack(r)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(msg, back, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		again, err := Resource(back, r.Name)
		if err != nil || again.Version != r.Version {
			t.Errorf("%s: version %s after %s, %v", tt.name, again.Version, r.Version, err)
		}
	}
}

// Maps have no order of their own: encoded twice, they give one version.
func TestResourceIsDeterministic(t *testing.T) {
	json := `{"name":"r","typed_per_filter_config":{`
	for i := range 20 {
		if i > 0 {
			json += ","
		}
		json += `"f` + strings.Repeat("x", i) + `":` + typed("envoy.extensions.filters.http.cors.v3.CorsPolicy", "")
	}
	json += "}}"
	var versions []schema.Version
	for range 10 {
		r, err := Resource(parse(t, schema.Routes, json), "r")
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, r.Version)
		if r.Version != versions[0] {
			t.Fatalf("versions %v", versions)
		}
	}
}

func TestResourceRefuses(t *testing.T) {
	for _, tt := range []struct {
		msg        proto.Message
		name, want string
	}{
		{&durationpb.Duration{}, "d", "google.protobuf.Duration is not an xDS resource"},
		{&clusterv3.Cluster{Name: "a"}, "b", `cluster "b" is named "a" inside`},
		{&clusterv3.Cluster{}, "", "cluster has no name"},
	} {
		if _, err := Resource(tt.msg, tt.name); err == nil || err.Error() != tt.want {
			t.Errorf("Resource(%T, %q): %v, want %s", tt.msg, tt.name, err, tt.want)
		}
	}
	r, err := Resource(&routev3.VirtualHost{Name: "v", Domains: []string{"*"}}, "table/v")
	if err != nil || r.Name != "table/v" {
		t.Errorf("a virtual host under its name of VHDS: %v, %v", r, err)
	}
	if _, err := Unpack(schema.NewLive(schema.Key{Type: schema.Endpoints, Name: "e"})); err == nil {
		t.Error("a resource without a body was unpacked")
	}
}

func TestUsable(t *testing.T) {
	const addr = `"endpoint":{"address":{"socket_address":{"address":"1.1.1.1","port_value":1}}}`
	host := func(rest string) string { return `{` + addr + rest + `}` }
	for _, tt := range []struct {
		name, localities string
		want             bool
	}{
		{"nothing", ``, false},
		{"an empty locality", `{}`, false},
		{"a host", `{"lb_endpoints":[` + host("") + `]}`, true},
		{"weight 0", `{"lb_endpoints":[` + host(`,"load_balancing_weight":0`) + `]}`, false},
		{"one of two with weight", `{"lb_endpoints":[` + host(`,"load_balancing_weight":0`) + `,` + host(`,"load_balancing_weight":2`) + `]}`, true},
		{"unhealthy", `{"lb_endpoints":[` + host(`,"health_status":"UNHEALTHY"`) + `]}`, false},
		{"draining", `{"lb_endpoints":[` + host(`,"health_status":"DRAINING"`) + `]}`, false},
		{"timeout", `{"lb_endpoints":[` + host(`,"health_status":"TIMEOUT"`) + `]}`, false},
		{"degraded", `{"lb_endpoints":[` + host(`,"health_status":"DEGRADED"`) + `]}`, true},
		{"a locality of weight 0", `{"load_balancing_weight":0,"lb_endpoints":[` + host("") + `]}`, false},
		{"a locality with weight", `{"load_balancing_weight":1,"lb_endpoints":[` + host("") + `]}`, true},
		{"hosts only where no weight is", `{"load_balancing_weight":1},{"lb_endpoints":[` + host("") + `]}`, false},
		{"a lower priority", `{"priority":0},{"priority":1,"lb_endpoints":[` + host("") + `]}`, true},
		{"a host without an address", `{"lb_endpoints":[{}]}`, false},
	} {
		r, err := Resource(parse(t, schema.Endpoints, `{"cluster_name":"c","endpoints":[`+tt.localities+`]}`), "c")
		if err != nil {
			t.Fatal(err)
		}
		if r.Usable != tt.want {
			t.Errorf("%s: Usable is %v", tt.name, r.Usable)
		}
	}
}
