package envoy

import (
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-xds/sluice/schema"
)

// Managers lists the HTTP connection managers in a listener, in their order.
func Managers(r *schema.Resource) ([]*hcmv3.HttpConnectionManager, error) {
	msg, err := Unpack(r)
	if err != nil {
		return nil, err
	}
	var out []*hcmv3.HttpConnectionManager
	v := visitor{message: func(_ *plan, m protoreflect.Message) {
		if h, ok := m.Interface().(*hcmv3.HttpConnectionManager); ok {
			out = append(out, h)
		}
	}}
	v.walk(msg.ProtoReflect())
	return out, nil
}
