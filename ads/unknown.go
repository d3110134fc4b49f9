package ads

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unserved answers calls to methods that no service has. A client of the
// withdrawn second version of the API is told what to change.
func unserved(_ any, g grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(g)
	service := strings.TrimPrefix(method, "/")
	if i := strings.LastIndexByte(service, '/'); i >= 0 {
		service = service[:i]
	}
	if isV2(service) || strings.HasPrefix(service, "envoy.service.") && strings.Contains(service, ".v2.") {
		return status.Errorf(codes.Unimplemented, "%s is of the v2 API, which is not served: set resource_api_version and transport_api_version to V3", service)
	}
	return status.Errorf(codes.Unimplemented, "%s is not served here: this is an xDS server of the v3 API", method)
}
