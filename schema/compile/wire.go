package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// A service with rename: "safe" is never changed in place: its cluster has a name
// of its own for each content, so that a change is made beside it, and traffic
// moved (rule P4). All entries, patches and tests say the stable name; when a
// message is encoded, what refers to the cluster follows.

// safe reports whether a service is renamed at each change: as its author said, or
// because it fails over to one that is, whose name is part of its content.
func (m *model) safe(name string) bool {
	s := m.services[name]
	return s != nil && (s.Rename == "safe" || slices.ContainsFunc(s.Failover, m.safe))
}

// anySafe reports whether some service is renamed.
func (m *model) anySafe() bool {
	for _, s := range m.services {
		if s.Rename == "safe" {
			return true
		}
	}
	return false
}

// wireOf is the name of a service's cluster on the wire. It is the same for all
// kinds of client, since route tables are.
func (lo *lowering) wireOf(name string) string {
	if wire, ok := lo.wires[name]; ok {
		return wire
	}
	wire := name
	if lo.safe(name) {
		wire = schema.WireName(name, lo.contentOf(name))
	}
	lo.wires[name], lo.stable[wire] = wire, name
	return wire
}

// contentOf hashes all that a service's clusters are made of.
func (lo *lowering) contentOf(name string) schema.Version {
	h := sha256.New()
	s := lo.services[name]
	for _, client := range [...]schema.Client{schema.Envoy, schema.GRPC} {
		// What cannot be encoded is reported where it is made.
		b, _ := deterministic.Marshal(s.cluster(name, client))
		h.Write(b)
	}
	for _, member := range s.Failover {
		h.Write([]byte(lo.wireOf(member)))
	}
	if p := lo.patches[schema.Clusters][name]; p != nil {
		h.Write(p.At.without("allow").json())
	}
	return schema.Version(hex.EncodeToString(h.Sum(nil)))
}

// follow gives a message the wire names of the clusters that it refers to.
func (lo *lowering) follow(msg proto.Message) error {
	if !lo.renames {
		return nil
	}
	return envoy.RenameClusters(msg, lo.wireOf)
}
