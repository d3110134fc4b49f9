package acceptance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sluice-xds/sluice/schema"
)

// refuser is an ADS client that asks for what a gRPC client would, and refuses
// what it is told to.
type refuser struct {
	conn   *grpc.ClientConn
	stream discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	done   chan error

	// Owned by the receiving goroutine.
	names    map[schema.Type][]string
	versions map[schema.Type]string // accepted last
	nonces   map[schema.Type]string // received last

	mu      sync.Mutex
	refuse  func(schema.Type, *discoverypb.DiscoveryResponse) string // words, or nothing
	refused int                                                      // responses
}

func startRefuser(ctx context.Context, t *testing.T, server, id, listener string) *refuser {
	t.Helper()
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	c := &refuser{
		conn: conn, stream: stream, done: make(chan error, 1), names: map[schema.Type][]string{}, versions: map[schema.Type]string{},
		nonces: map[schema.Type]string{},
	}
	first := &discoverypb.DiscoveryRequest{
		Node:    &corepb.Node{Id: id, Cluster: "odd", UserAgentName: "refuser"},
		TypeUrl: schema.Listeners.URL(), ResourceNames: []string{listener},
	}
	c.names[schema.Listeners] = first.ResourceNames
	if err := stream.Send(first); err != nil {
		t.Fatal(err)
	}
	go func() { c.done <- c.receive() }()
	t.Cleanup(func() {
		cancel()
		<-c.done
		_ = conn.Close()
	})
	return c
}

// refuseWith has the client refuse, from now on, every response that words has
// words for.
func (c *refuser) refuseWith(words func(schema.Type, *discoverypb.DiscoveryResponse) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse, c.refused = words, 0
}

// refusals is the number of responses that were refused since refuseWith.
func (c *refuser) refusals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func (c *refuser) receive() error {
	for {
		res, err := c.stream.Recv()
		if err != nil {
			return err
		}
		if err := c.take(res); err != nil {
			return err
		}
	}
}

// take answers a response, and asks for what it names.
func (c *refuser) take(res *discoverypb.DiscoveryResponse) error {
	typ, ok := schema.TypeOf(res.TypeUrl)
	if !ok {
		return fmt.Errorf("response of unknown type %s", res.TypeUrl)
	}
	c.mu.Lock()
	words := ""
	if c.refuse != nil {
		words = c.refuse(typ, res)
	}
	if words != "" {
		c.refused++
	}
	c.mu.Unlock()
	c.nonces[typ] = res.Nonce
	req := &discoverypb.DiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce, ResourceNames: c.names[typ]}
	if words != "" {
		req.VersionInfo = c.versions[typ]
		req.ErrorDetail = status.New(codes.InvalidArgument, words).Proto()
		return c.stream.Send(req)
	}
	c.versions[typ] = res.VersionInfo
	req.VersionInfo = res.VersionInfo
	if err := c.stream.Send(req); err != nil {
		return err
	}
	child, names, err := named(typ, res)
	if err != nil || child == typ || slices.Equal(names, c.names[child]) {
		return err
	}
	c.names[child] = names
	return c.stream.Send(&discoverypb.DiscoveryRequest{
		TypeUrl: child.URL(), ResourceNames: names, VersionInfo: c.versions[child], ResponseNonce: c.nonces[child],
	})
}

// named lists the resources that those of a response refer to.
func named(typ schema.Type, res *discoverypb.DiscoveryResponse) (schema.Type, []string, error) {
	child := map[schema.Type]schema.Type{
		schema.Listeners: schema.Routes, schema.Routes: schema.Clusters, schema.Clusters: schema.Endpoints,
	}
	names := map[string]bool{}
	for _, body := range res.Resources {
		switch typ {
		case schema.Listeners:
			var l listenerpb.Listener
			var hcm hcmpb.HttpConnectionManager
			if err := body.UnmarshalTo(&l); err != nil {
				return typ, nil, err
			}
			if err := l.GetApiListener().GetApiListener().UnmarshalTo(&hcm); err != nil {
				return typ, nil, err
			}
			names[hcm.GetRds().GetRouteConfigName()] = true
		case schema.Routes:
			var table routepb.RouteConfiguration
			if err := body.UnmarshalTo(&table); err != nil {
				return typ, nil, err
			}
			for _, host := range table.VirtualHosts {
				for _, route := range host.Routes {
					if one := route.GetRoute().GetCluster(); one != "" {
						names[one] = true
					}
					for _, w := range route.GetRoute().GetWeightedClusters().GetClusters() {
						names[w.Name] = true
					}
				}
			}
		case schema.Clusters:
			var c clusterpb.Cluster
			if err := body.UnmarshalTo(&c); err != nil {
				return typ, nil, err
			}
			names[c.Name] = true
		default:
			return typ, nil, nil
		}
	}
	return child[typ], slices.Sorted(maps.Keys(names)), nil
}
