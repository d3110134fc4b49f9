package envoy

import (
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

// hostsField is RouteConfiguration.virtual_hosts, hostNameField is VirtualHost.name.
const (
	hostsField    = 2
	hostNameField = 1
)

// ReplaceHost is a route table with a virtual host in the place of that of the same
// name, which it returns too. All else is copied as it is encoded: a table of 50,000
// routes is neither decoded nor encoded for one of them. The references are the old
// table's: whoever calls sees to it that the hosts have the same.
func ReplaceHost(table *schema.Resource, host *routev3.VirtualHost) (*schema.Resource, *routev3.VirtualHost, error) {
	var a anypb.Any
	if err := proto.Unmarshal(table.Body, &a); err != nil {
		return nil, nil, fmt.Errorf("cannot decode %s: %w", table.Key, err)
	}
	det := proto.MarshalOptions{Deterministic: true}
	for at := 0; at < len(a.Value); {
		num, kind, tag := protowire.ConsumeTag(a.Value[at:])
		if tag < 0 {
			break
		}
		size := protowire.ConsumeFieldValue(num, kind, a.Value[at+tag:])
		if size < 0 {
			break
		}
		end := at + tag + size
		if num == hostsField && kind == protowire.BytesType {
			if old, _ := protowire.ConsumeBytes(a.Value[at+tag:]); nameOfHost(old) == host.Name {
				var was routev3.VirtualHost
				if err := proto.Unmarshal(old, &was); err != nil {
					return nil, nil, fmt.Errorf("cannot decode virtual host %q of %s: %w", host.Name, table.Key, err)
				}
				encoded, err := det.Marshal(host)
				if err != nil {
					return nil, nil, fmt.Errorf("cannot encode virtual host %q of %s: %w", host.Name, table.Key, err)
				}
				value := make([]byte, 0, len(a.Value)-len(old)+len(encoded)+protowire.SizeVarint(uint64(len(encoded))))
				value = append(value, a.Value[:at+tag]...)
				value = protowire.AppendBytes(value, encoded)
				value = append(value, a.Value[end:]...)
				body, err := det.Marshal(&anypb.Any{TypeUrl: a.TypeUrl, Value: value})
				if err != nil {
					return nil, nil, fmt.Errorf("cannot encode %s: %w", table.Key, err)
				}
				return schema.NewResource(table.Key, table.Refs, body), &was, nil
			}
		}
		at = end
	}
	return nil, nil, fmt.Errorf("%s has no virtual host %q", table.Key, host.Name)
}

// nameOfHost reads the name of an encoded virtual host, which stands first.
func nameOfHost(b []byte) string {
	num, kind, tag := protowire.ConsumeTag(b)
	if tag < 0 || num != hostNameField || kind != protowire.BytesType {
		return ""
	}
	name, n := protowire.ConsumeBytes(b[tag:])
	if n < 0 {
		return ""
	}
	return string(name)
}
