package ads

import (
	"fmt"
	"hash/maphash"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
)

// Fields of core.v3.Node.
const (
	nodeID       = 1
	nodeCluster  = 2
	nodeMetadata = 3
	nodeFeatures = 10
)

// maxNode and maxNodeID bound what a node says of itself, in bytes. An Envoy says
// some 30 KiB.
const (
	maxNode   = 1 << 20
	maxNodeID = 1 << 10
)

// readNode keeps what groups select by. An Envoy says some 30 KiB of itself,
// nearly all of it the same on every node: metadata are interned, and lists of
// extensions dropped unread.
func readNode(b []byte) (*schema.Node, features, error) {
	if len(b) > maxNode {
		return nil, 0, fmt.Errorf("the node says %d bytes of itself: the limit is %d", len(b), maxNode)
	}
	node := &schema.Node{}
	var rest []byte
	var can features
	err := eachField(b, func(num protowire.Number, v []byte, _ uint64) (err error) {
		switch num {
		case nodeID:
			if len(v) > maxNodeID {
				return fmt.Errorf("node.id has %d bytes: the limit is %d", len(v), maxNodeID)
			}
			node.ID = string(v)
		case nodeCluster:
			node.Cluster = string(v)
		case nodeMetadata:
			node.Metadata, err = metadata.get(v)
		case nodeFeatures:
			can |= featureOf(v)
		case 4, 6, 7, 8: // locality, user agent and its version
			if v != nil {
				rest = protowire.AppendBytes(protowire.AppendTag(rest, num, protowire.BytesType), v)
			}
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	var n corev3.Node
	if err := proto.Unmarshal(rest, &n); err != nil {
		return nil, 0, fmt.Errorf("cannot read the node: %w", err)
	}
	node.Zone, node.UserAgent = n.GetLocality().GetZone(), n.GetUserAgentName()
	version := n.GetUserAgentVersion()
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil {
		version = fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
	}
	if version != "" {
		node.UserAgent += "/" + version
	}
	return node, can, nil
}

// metadata remembers what nodes lately said of themselves: the metadata of a
// fleet are few, and are decoded once.
var metadata interned

type interned struct {
	mu sync.Mutex
	by map[digest]map[string]string
}

// internLimit bounds the metadata that are remembered.
const internLimit = 1024

// Fields of google.protobuf.Struct, of its map's entries and of a Value.
const (
	structFields = 1
	valueString  = 3
)

// get decodes the fields of a google.protobuf.Struct that are strings, unless an
// equal one is known, in whatever order it stood. Its map is shared.
func (m *interned) get(b []byte) (map[string]string, error) {
	var d digest
	err := eachField(b, func(_ protowire.Number, v []byte, _ uint64) error {
		d = d.plus(digest{maphash.Bytes(seeds[0], v), maphash.Bytes(seeds[1], v)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if fields, ok := m.by[d]; ok {
		return fields, nil
	}
	fields := map[string]string{}
	err = eachField(b, func(num protowire.Number, v []byte, _ uint64) error {
		if num != structFields {
			return nil
		}
		return readEntry(v, fields)
	})
	if err != nil {
		return nil, err
	}
	if m.by == nil || len(m.by) >= internLimit {
		m.by = map[digest]map[string]string{}
	}
	m.by[d] = fields
	return fields, nil
}

// readEntry adds one entry of a Struct, if its value is a string.
func readEntry(b []byte, fields map[string]string) error {
	var key string
	var text []byte
	err := eachField(b, func(num protowire.Number, v []byte, _ uint64) error {
		switch num {
		case entryKey:
			key = string(v)
		case entryValue:
			return eachField(v, func(num protowire.Number, v []byte, _ uint64) error {
				if num == valueString {
					text = v
				}
				return nil
			})
		}
		return nil
	})
	if text != nil {
		fields[key] = string(text)
	}
	return err
}
