package envoy

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

const typePrefix = "type.googleapis.com/"

// Resource encodes msg as the resource of that name: a deterministic Any, its
// content version, its references and, for endpoints, whether some request could
// be sent to them (rule P14). Own lists the clusters by which nodes know this
// server: see References. It is an error if msg is no xDS resource, or if it
// carries another name; only a virtual host may, which VHDS names "table/host".
func Resource(msg proto.Message, name string, own ...string) (*schema.Resource, error) {
	t, ok := TypeOfMessage(msg)
	if !ok {
		return nil, fmt.Errorf("%s is not an xDS resource", msg.ProtoReflect().Descriptor().FullName())
	}
	if name == "" {
		return nil, fmt.Errorf("%s has no name", t.Noun())
	}
	if inner := NameOf(msg); inner != name && t != schema.VirtualHosts {
		return nil, fmt.Errorf("%s %q is named %q inside", t.Noun(), name, inner)
	}
	refs, err := References(msg, own...)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", t.Noun(), name, err)
	}
	body, err := encode(t, msg)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s %q: %w", t.Noun(), name, err)
	}
	r := schema.NewResource(schema.Key{Type: t, Name: name}, refs, body)
	if a, ok := msg.(*endpointv3.ClusterLoadAssignment); ok {
		r.Usable = usable(a)
	}
	return r, nil
}

func encode(t schema.Type, msg proto.Message) ([]byte, error) {
	det := proto.MarshalOptions{Deterministic: true}
	value, err := det.Marshal(msg)
	if err != nil {
		return nil, err
	}
	return det.Marshal(&anypb.Any{TypeUrl: t.URL(), Value: value})
}

// Unpack decodes the message of a resource that has a body.
func Unpack(r *schema.Resource) (proto.Message, error) {
	var a anypb.Any
	if err := proto.Unmarshal(r.Body, &a); err != nil {
		return nil, fmt.Errorf("cannot decode %s: %w", r.Key, err)
	}
	if a.TypeUrl == "" {
		return nil, fmt.Errorf("cannot decode %s: it has no body", r.Key)
	}
	msg, err := a.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("cannot decode %s: %w", r.Key, err)
	}
	return msg, nil
}

// TypeOfMessage is the resource type whose message msg is.
func TypeOfMessage(msg proto.Message) (schema.Type, bool) {
	return schema.TypeOf(typePrefix + string(msg.ProtoReflect().Descriptor().FullName()))
}

// New makes an empty message of a resource type.
func New(t schema.Type) proto.Message {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(t.Message()))
	if err != nil {
		panic("unlinked resource type " + t.Message()) // link.go holds all of them
	}
	return mt.New().Interface()
}

// NameOf is the name that a resource's message carries: that of its cluster for
// endpoints. It is empty for what is no resource.
func NameOf(msg proto.Message) string {
	switch m := msg.(type) {
	case *endpointv3.ClusterLoadAssignment:
		return m.GetClusterName()
	case interface{ GetName() string }:
		return m.GetName()
	}
	return ""
}

// usable reports whether some host could be sent a request. A locality without a
// weight takes part only if none has one: with locality weights on, Envoy and
// gRPC send it nothing.
func usable(a *endpointv3.ClusterLoadAssignment) bool {
	weighted := false
	for _, l := range a.GetEndpoints() {
		weighted = weighted || l.GetLoadBalancingWeight() != nil
	}
	for _, l := range a.GetEndpoints() {
		if weighted && l.GetLoadBalancingWeight().GetValue() == 0 {
			continue
		}
		for _, h := range l.GetLbEndpoints() {
			if usableHost(h) {
				return true
			}
		}
	}
	return false
}

func usableHost(h *endpointv3.LbEndpoint) bool {
	switch h.GetHealthStatus() {
	case corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_TIMEOUT:
		return false
	}
	return h.GetHostIdentifier() != nil &&
		(h.GetLoadBalancingWeight() == nil || h.GetLoadBalancingWeight().GetValue() > 0)
}
