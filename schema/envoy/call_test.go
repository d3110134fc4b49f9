package envoy

import (
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/sluice-xds/sluice/schema"
)

// TestMatchGRPC: what a gRPC client passes over changes nothing for it, and
// everything for a proxy.
func TestMatchGRPC(t *testing.T) {
	rc := parse(t, schema.Routes, `{"name": "t", "virtual_hosts": [{"name": "h", "domains": ["*"], "routes": [
		{"match": {"prefix": "/", "headers": [{"name": ":method", "string_match": {"exact": "POST"}}, {"name": "x", "string_match": {"exact": "method"}}]}, "route": {"cluster": "pseudo"}},
		{"match": {"prefix": "/", "headers": [{"name": "x-bin", "present_match": true}]}, "route": {"cluster": "binary"}},
		{"match": {"prefix": "/", "headers": [{"name": "content-type", "string_match": {"exact": "application/grpc"}}]},
		 "route": {"cluster": "grpc", "timeout": "7s", "prefix_rewrite": "/other/", "max_stream_duration": {"max_stream_duration": "3s"}},
		 "request_headers_to_add": [{"header": {"key": "x", "value": "y"}}]},
		{"match": {"prefix": "/"}, "route": {"cluster": "rest"}}
	]}]}`).(*routev3.RouteConfiguration)
	table := NewTable(rc)
	for _, c := range []struct {
		name         string
		headers      map[string]string
		proxy, calls string
	}{
		{"a call", map[string]string{"content-type": "application/grpc"}, "grpc", "grpc"},
		{"a pseudo header", map[string]string{"x": "method"}, "pseudo", "grpc"},
		{"a binary header", map[string]string{"x-bin": "AA"}, "binary", "grpc"},
		{"no content type", nil, "rest", "grpc"},
	} {
		r := schema.Request{Method: "POST", Host: "h", Path: "/S/M", Headers: c.headers}
		if d := table.Match(r); d.Cluster != c.proxy {
			t.Errorf("%s: a proxy sends it to %q, want %q", c.name, d.Cluster, c.proxy)
		}
		if d := table.MatchGRPC(r); d.Cluster != c.calls {
			t.Errorf("%s: a client sends it to %q, want %q", c.name, d.Cluster, c.calls)
		}
	}
	d := table.MatchGRPC(schema.Request{Host: "h", Path: "/S/M"})
	if d.Path != "/S/M" || d.Timeout != 3*time.Second || d.AddHeaders != nil {
		t.Errorf("a client rewrites: %+v", d)
	}
	if d := table.Match(schema.Request{Method: "GET", Host: "h", Path: "/S/M", Headers: map[string]string{"content-type": "application/grpc"}}); d.Path != "/other/S/M" || d.AddHeaders["x"] != "y" {
		t.Errorf("a proxy does not: %+v", d)
	}
}
