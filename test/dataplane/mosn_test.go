package dataplane

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// freeAddr is an address that nothing listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// proxyListener is a port of a proxy, with its routes over ADS.
func proxyListener(t *testing.T, addr string) named {
	t.Helper()
	hcm := &hcmpb.HttpConnectionManager{
		StatPrefix:  "web",
		HttpFilters: routerFilters,
		RouteSpecifier: &hcmpb.HttpConnectionManager_Rds{Rds: &hcmpb.Rds{
			ConfigSource: overADS, RouteConfigName: routeName,
		}},
	}
	return named{"web", &listenerpb.Listener{
		Name:             "web",
		Address:          address(t, addr),
		TrafficDirection: corepb.TrafficDirection_OUTBOUND,
		FilterChains: []*listenerpb.FilterChain{{
			Filters: []*listenerpb.Filter{{
				Name:       "envoy.filters.network.http_connection_manager",
				ConfigType: &listenerpb.Filter_TypedConfig{TypedConfig: pack(hcm)},
			}},
		}},
	}}
}

// TestMOSN: requests go where the server says, first to one cluster and then to
// another, and nothing is left of the process.
func TestMOSN(t *testing.T) {
	skipMissing(t, MOSN{})
	r := &rig{ads: startADS(t)}
	for label, s := range map[string]**Server{"v1": &r.v1, "v2": &r.v2} {
		srv, err := StartHTTP(label)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Stop)
		*s = srv
	}
	addr := freeAddr(t)
	r.set(proxyListener(t, addr), routes("v1"), cluster("v1"), endpoints(t, "v1", r.v1.Addr()))
	n, err := MOSN{}.Start(t.Context(), r.bootstrap("edge"), "http://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, n, "v1")
	// A route to a cluster whose endpoints are still to come is a 502.
	r.set(cluster("v2"), endpoints(t, "v2", r.v2.Addr()))
	if err := r.waitACK(ctx, 1, eds, "v2"); err != nil {
		t.Fatal(err)
	}
	r.set(routes("v2"))
	if err := r.waitACK(ctx, 1, rds, routeName); err != nil {
		t.Fatal(err)
	}
	expect(t, n, "v2")
	if got := r.nacks(); len(got) > 0 {
		t.Errorf("NACKs: %q", got)
	}

	n.Stop()
	if p := n.(*proxied); p.cmd.ProcessState == nil {
		t.Error("the process is not gone")
	} else if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
	if _, err := n.Send(t.Context(), Request{}); err == nil {
		t.Error("a stopped node answers")
	}
}
