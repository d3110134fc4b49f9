package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
)

// fetchView asks a CSDS server (gRFC A40) for everything that its process holds.
func fetchView(ctx context.Context, conn *grpc.ClientConn) ([]Held, error) {
	resp, err := statuspb.NewClientStatusDiscoveryServiceClient(conn).
		FetchClientStatus(ctx, &statuspb.ClientStatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("cannot fetch client status: %w", err)
	}
	var held []Held
	for _, c := range resp.GetConfig() {
		for _, g := range c.GetGenericXdsConfigs() {
			held = append(held, Held{
				TypeURL: g.GetTypeUrl(),
				Name:    g.GetName(),
				Version: g.GetVersionInfo(),
				State:   State(g.GetClientStatus().String()),
				Error:   g.GetErrorState().GetDetails(),
				Refused: g.GetErrorState().GetVersionInfo(),
			})
		}
	}
	slices.SortFunc(held, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Name, b.Name))
	})
	return held, nil
}
