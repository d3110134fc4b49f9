package compile

import (
	"fmt"
	"net"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// lowering turns a model into resources. A key may have several bodies: a
// cluster differs by the kind of client, and listeners of two groups may share
// the address that they are named by.
type lowering struct {
	*model
	fleet *schema.Fleet
	// clusters are those of services, by the kind of client.
	clusters [2]map[string]*schema.Resource
	// wires are the names of services' clusters, and stable the services of those.
	wires, stable map[string]string
	renames       bool // some service has rename: "safe"
	// listeners are by the author's name, not by the wire's.
	listeners map[string]*schema.Resource
	// shared are all others, by key.
	shared map[schema.Key]*schema.Resource
	// authored are the author's own resources, and those that they patched.
	authored map[schema.Key]authored
}

// lower makes the fleet. What is wrong goes to the model's found. Of a model
// that is known to be in error it reads the author's own resources alone, so
// that what is wrong with them is said along with the rest.
func (m *model) lower(sound bool) *lowering {
	lo := &lowering{
		model:     m,
		fleet:     &schema.Fleet{Provenance: schema.Provenance{}},
		wires:     map[string]string{},
		stable:    map[string]string{},
		renames:   m.anySafe(),
		listeners: map[string]*schema.Resource{},
		shared:    map[schema.Key]*schema.Resource{},

		authored: map[schema.Key]authored{},
	}
	for c := range lo.clusters {
		lo.clusters[c] = map[string]*schema.Resource{}
	}
	if sound {
		for name, s := range sorted(m.services) {
			lo.service(name, s)
		}
		for name, s := range sorted(m.secrets) {
			lo.secret(name, s)
		}
		for name, l := range sorted(m.listeners) {
			lo.listener(name, l)
		}
	}
	for t := range m.resources {
		for name, r := range sorted(m.resources[t]) {
			lo.raw(schema.Key{Type: schema.Type(t), Name: name}, r)
		}
	}
	if !sound {
		return nil
	}
	lo.assemble()
	lo.allowances()
	for name, t := range sorted(m.tests) {
		lo.fleet.Tests = append(lo.fleet.Tests, t.lower(name))
	}
	return lo
}

// resource encodes a message that this package made. It obeys Envoy's rules by
// construction where the schema and the checks do; where they do not, the rule
// that it breaks is said at the entry's line.
func (lo *lowering) resource(msg proto.Message, name string, at schema.Pos) *schema.Resource {
	for _, v := range envoy.Validate(msg) {
		lo.error(at, "envoy", "", "%s: Envoy would refuse it: %s", quoted(nounOf(msg), name), v)
	}
	if err := lo.follow(msg); err != nil {
		lo.error(at, "envoy", "", "%v", err)
		return nil
	}
	r, err := envoy.Resource(msg, name)
	if err != nil {
		lo.error(at, "envoy", "", "%v", err)
		return nil
	}
	return r
}

func nounOf(msg proto.Message) string {
	if t, ok := envoy.TypeOfMessage(msg); ok {
		return t.Noun()
	}
	return "message"
}

func (lo *lowering) share(r *schema.Resource, origins ...schema.Origin) {
	if r == nil {
		return
	}
	if old := lo.fleet.Provenance[r.Key]; lo.shared[r.Key] != nil && len(old) > 0 {
		lo.error(origins[0].Pos, "duplicate-name", "first at "+old[0].Pos.String(),
			"there are two of %s %q", r.Type.Noun(), r.Name)
		return
	}
	lo.shared[r.Key] = r
	lo.origin(r.Key, origins...)
}

func (lo *lowering) origin(k schema.Key, origins ...schema.Origin) {
	lo.fleet.Provenance[k] = append(lo.fleet.Provenance[k], origins...)
}

// find looks a resource up as a kind of client sees it.
func (lo *lowering) find(k schema.Key, c schema.Client) *schema.Resource {
	if k.Type == schema.Clusters {
		name, known := lo.stable[k.Name]
		if !known && !lo.safe(k.Name) {
			name = k.Name
		}
		if r := lo.clusterOf(name, c); r != nil {
			return r
		}
	}
	return lo.shared[k]
}

var deterministic = proto.MarshalOptions{Deterministic: true}

// pack puts a message of this package's own making into an Any.
func pack(msg proto.Message) *anypb.Any {
	a := new(anypb.Any)
	if err := anypb.MarshalFrom(a, msg, deterministic); err != nil {
		panic(fmt.Sprintf("compile: cannot encode %T: %v", msg, err)) // valid by construction
	}
	return a
}

// ads says that a resource is asked for on the stream that named it.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// address translates host:port, which was checked before.
func address(hostport string) *corev3.Address {
	host, port := splitAddress(hostport)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// splitAddress parts host:port; the port is 0 if there is none that could be.
func splitAddress(hostport string) (string, uint32) {
	host, p, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport, 0
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return host, 0
	}
	return host, uint32(port)
}
