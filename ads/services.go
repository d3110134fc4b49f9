package ads

import (
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/schema"
)

// Register adds the discovery services, the aggregated one and one a type, and
// that of load reports.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	loadv3.RegisterLoadReportingServiceServer(g, &loadService{srv: s})
	for _, d := range services {
		methods := map[string]grpc.StreamDesc{}
		for _, m := range d.desc.Streams {
			methods[m.StreamName] = m
		}
		desc := grpc.ServiceDesc{ServiceName: d.desc.ServiceName, HandlerType: (*any)(nil), Metadata: d.desc.Metadata}
		for name, of := range map[string]*variant{d.stream: sotw, d.delta: delta} {
			if _, ok := methods[name]; !ok {
				continue // virtual hosts have no state-of-the-world variant (rule D12)
			}
			desc.Streams = append(desc.Streams, grpc.StreamDesc{
				StreamName: name, ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, g grpc.ServerStream) error { return s.serve(g, of, d.only) },
			})
		}
		g.RegisterService(&desc, s)
	}
}

// services are those of the protocol, with the names of their two streams.
var services = []struct {
	desc          *grpc.ServiceDesc
	stream, delta string
	only          schema.Type
}{
	{&discoveryv3.AggregatedDiscoveryService_ServiceDesc, "StreamAggregatedResources", "DeltaAggregatedResources", aggregated},
	{&clusterv3.ClusterDiscoveryService_ServiceDesc, "StreamClusters", "DeltaClusters", schema.Clusters},
	{&endpointv3.EndpointDiscoveryService_ServiceDesc, "StreamEndpoints", "DeltaEndpoints", schema.Endpoints},
	{&secretv3.SecretDiscoveryService_ServiceDesc, "StreamSecrets", "DeltaSecrets", schema.Secrets},
	{&extensionv3.ExtensionConfigDiscoveryService_ServiceDesc, "StreamExtensionConfigs", "DeltaExtensionConfigs", schema.Extensions},
	{&listenerv3.ListenerDiscoveryService_ServiceDesc, "StreamListeners", "DeltaListeners", schema.Listeners},
	{&routev3.ScopedRoutesDiscoveryService_ServiceDesc, "StreamScopedRoutes", "DeltaScopedRoutes", schema.ScopedRoutes},
	{&routev3.RouteDiscoveryService_ServiceDesc, "StreamRoutes", "DeltaRoutes", schema.Routes},
	{&routev3.VirtualHostDiscoveryService_ServiceDesc, "", "DeltaVirtualHosts", schema.VirtualHosts},
	{&runtimev3.RuntimeDiscoveryService_ServiceDesc, "StreamRuntime", "DeltaRuntime", schema.Runtimes},
}

// isV2 reports whether a type URL is of the withdrawn second version of the API.
func isV2(url string) bool {
	name := strings.TrimPrefix(url, "type.googleapis.com/")
	return strings.HasPrefix(name, "envoy.api.v2.") || strings.HasPrefix(name, "envoy.service.discovery.v2.")
}
