package envoy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func packed(t *testing.T, msg proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(msg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSources(t *testing.T) {
	tls := packed(t, &tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "cert", SdsConfig: overADS()}},
	}})
	hcm := func(m *hcmv3.HttpConnectionManager) proto.Message {
		return &listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}},
		}}}
	}
	scoped := &hcmv3.ScopedRoutes{RdsConfigSource: overADS(), ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{
		ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: overADS()},
	}}
	for name, c := range map[string]struct {
		msg  proto.Message
		want []string
	}{
		"endpoints of the cluster's name, and a secret in an Any": {
			&clusterv3.Cluster{
				Name: "c", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS()},
				TransportSocket: &corev3.TransportSocket{ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: tls}},
			},
			[]string{"endpoints/c", "secrets/cert"},
		},
		"endpoints of another name": {
			&clusterv3.Cluster{Name: "c", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS(), ServiceName: "e"}},
			[]string{"endpoints/e"},
		},
		"a table and a filter": {
			hcm(&hcmv3.HttpConnectionManager{
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: "r"}},
				HttpFilters: []*hcmv3.HttpFilter{{Name: "f", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
					ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: overADS()},
				}}},
			}),
			[]string{"extensions/f", "routes/r"},
		},
		"scoped routes": {
			hcm(&hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: scoped}}),
			[]string{"?envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes.rds_config_source", "scoped-routes/"},
		},
		"virtual hosts":   {&routev3.RouteConfiguration{Vhds: &routev3.Vhds{ConfigSource: overADS()}}, []string{"?envoy.config.route.v3.Vhds.config_source"}},
		"no source":       {&routev3.RouteConfiguration{Name: "r"}, nil},
		"an empty filter": {&listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: &anypb.Any{}}}}}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list := func() (all []string) {
				err := Sources(c.msg, func(s Source) error {
					what := s.Key.String()
					if !s.Known {
						what = "?" + s.Field
					}
					if s.Ours() {
						all = append(all, what)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(all)
				return all
			}
			before := proto.Clone(c.msg)
			if got := list(); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if !proto.Equal(before, c.msg) {
				t.Error("to look changes it")
			}
			err := Sources(c.msg, func(s Source) error {
				s.ConfigSourceSpecifier = &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: "/x"}}
				return nil
			})
			if got := list(); err != nil || got != nil {
				t.Errorf("after all were changed there are %q, %v", got, err)
			}
		})
	}
}

func TestSourcesEndWithAnError(t *testing.T) {
	no := errors.New("no")
	msg := &clusterv3.Cluster{Name: "c", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS()}}
	if err := Sources(msg, func(Source) error { return no }); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	bad := &listenerv3.Filter{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/no.such"}}}
	if err := Sources(bad, func(Source) error { return nil }); err == nil || !strings.Contains(err.Error(), "cannot read a type.googleapis.com/no.such") {
		t.Errorf("got %v", err)
	}
}
