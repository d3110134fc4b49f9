package envoy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
)

// Fields of google.protobuf.Any, RouteConfiguration and VirtualHost, by number.
const (
	anyType, anyValue = 1, 2

	tableHosts = 2

	hostName, hostDomains, hostRoutes = 1, 2, 3
)

// Host is a virtual host as it stands in an encoded table. A table can hold tens
// of thousands of routes, of which a change touches a few: hosts are compared by
// their bytes, and only what differs is decoded.
type Host struct {
	raw     []byte // the VirtualHost
	frame   []byte // the table's other fields
	name    []byte
	domains []string
	warm    bool // it can have warm routes
}

// hostOf reads what tells hosts apart, once. What is no encoding has no domains.
func hostOf(raw, frame []byte) Host {
	h := Host{raw: raw, frame: frame, warm: bytes.Contains(raw, []byte(WarmName))}
	_ = eachField(raw, func(num protowire.Number, _, content []byte) {
		switch num {
		case hostName:
			h.name = content
		case hostDomains:
			h.domains = append(h.domains, string(content))
		}
	})
	return h
}

// HostsOf lists the virtual hosts of all tables in r, in their order.
func HostsOf(r *schema.Resource) ([]Host, error) {
	switch r.Type {
	case schema.Routes:
		value, err := anyBytes(r)
		if err != nil {
			return nil, err
		}
		return hostsIn(r, value)
	case schema.VirtualHosts:
		value, err := anyBytes(r)
		return []Host{hostOf(value, nil)}, err
	}
	tables, err := Tables(r)
	if err != nil {
		return nil, err
	}
	var out []Host
	for _, rc := range tables {
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(rc)
		if err != nil {
			return nil, fmt.Errorf("cannot encode a table of %s: %w", r.Key, err)
		}
		hosts, err := hostsIn(r, value)
		if err != nil {
			return nil, err
		}
		out = append(out, hosts...)
	}
	return out, nil
}

// anyBytes is the message in a resource, encoded.
func anyBytes(r *schema.Resource) (value []byte, err error) {
	err = eachField(r.Body, func(num protowire.Number, _, content []byte) {
		if num == anyValue {
			value = content
		}
	})
	if err != nil || len(r.Body) == 0 {
		return nil, fmt.Errorf("cannot decode %s: it has no body, or a broken one", r.Key)
	}
	return value, nil
}

// eachField calls f for each field of an encoded message: the whole of it, and
// the content of one that has a length.
func eachField(msg []byte, f func(num protowire.Number, whole, content []byte)) error {
	for len(msg) > 0 {
		num, typ, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		whole := msg[:tag+size]
		var content []byte
		if typ == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(msg[tag:])
		}
		f(num, whole, content)
		msg = msg[tag+size:]
	}
	return nil
}

func hostsIn(r *schema.Resource, table []byte) ([]Host, error) {
	frame := frameOf(table)
	var out []Host
	err := eachField(table, func(num protowire.Number, _, content []byte) {
		if num == tableHosts {
			out = append(out, hostOf(content, frame))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cannot decode %s: %w", r.Key, err)
	}
	return out, nil
}

// frameOf is an encoded table without its hosts, as far as it can be read.
func frameOf(table []byte) (frame []byte) {
	_ = eachField(table, func(num protowire.Number, whole, _ []byte) {
		if num != tableHosts {
			frame = append(frame, whole...)
		}
	})
	return frame
}

// Equal reports whether two hosts say the same, in tables that say the same.
func (h Host) Equal(o Host) bool { return bytes.Equal(h.raw, o.raw) && bytes.Equal(h.frame, o.frame) }

// Name is the virtual host's name.
func (h Host) Name() string { return string(h.name) }

// Domains are the host's, as configured.
func (h Host) Domains() []string { return h.domains }

// Wildcards are those of its domains that have a star.
func (h Host) Wildcards() (out []string) {
	for _, d := range h.domains {
		if strings.Contains(d, "*") {
			out = append(out, d)
		}
	}
	return out
}

// message decodes the host.
func (h Host) message() (*routev3.VirtualHost, error) {
	vh := &routev3.VirtualHost{}
	if err := proto.Unmarshal(h.raw, vh); err != nil {
		return nil, fmt.Errorf("cannot decode virtual host %s: %w", h.Name(), err)
	}
	return vh, nil
}

// Clusters are those that the host names as traffic, sorted, warm routes left
// out. What the table as a whole mirrors to is not among them.
func (h Host) Clusters() ([]string, error) {
	vh, err := h.message()
	if err != nil {
		return nil, err
	}
	refs, err := References(vh)
	if err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", vh.GetName(), err)
	}
	var names []string
	for _, ref := range refs {
		if ref.Type == schema.Clusters && ref.Edge == schema.Traffic {
			names = append(names, ref.Name)
		}
	}
	return names, nil
}

// MayBeWarm reports whether the host can have warm routes.
func (h Host) MayBeWarm() bool { return h.warm }

// WarmClusters are those that the host's warm route names.
func (h Host) WarmClusters() []string {
	if !h.MayBeWarm() {
		return nil
	}
	vh, err := h.message()
	if err != nil {
		return nil // Clusters says so
	}
	var names []string
	for _, r := range vh.GetRoutes() {
		if !isWarm(r) {
			continue
		}
		for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
			names = append(names, c.GetName())
		}
	}
	return names
}

// Lines lists the host's routes, in the order in which they are tried, warm
// routes left out (rules P6, P11). A host that requires TLS begins with a line
// that says so.
func (h Host) Lines() ([]RouteLine, error) {
	vh, err := h.message()
	if err != nil {
		return nil, err
	}
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(h.frame, rc); err != nil {
		return nil, fmt.Errorf("cannot decode the table of virtual host %s: %w", vh.GetName(), err)
	}
	return hostLines(rc, vh), nil
}

// Unlike finds the hosts of two lists that the other has not, byte by byte.
func Unlike(a, b []Host) (ofA, ofB []bool) {
	ofA, ofB = make([]bool, len(a)), make([]bool, len(b))
	i, j := 0, 0
	var restA, restB []int // of which no partner was met in passing
	for i < len(a) && j < len(b) {
		c := bytes.Compare(a[i].name, b[j].name)
		switch {
		case c == 0:
			ofA[i] = !a[i].Equal(b[j])
			ofB[j] = ofA[i]
			i, j = i+1, j+1
		case c < 0:
			restA = append(restA, i)
			i++
		default:
			restB = append(restB, j)
			j++
		}
	}
	for ; i < len(a); i++ {
		restA = append(restA, i)
	}
	for ; j < len(b); j++ {
		restB = append(restB, j)
	}
	partners := make(map[string]int, len(restB)) // a table that is not sorted by name
	for _, j := range restB {
		ofB[j] = true
		if _, ok := partners[b[j].Name()]; !ok {
			partners[b[j].Name()] = j
		}
	}
	for _, i := range restA {
		j, ok := partners[a[i].Name()]
		if ofA[i] = !ok || !a[i].Equal(b[j]); !ofA[i] {
			ofB[j] = false
		}
	}
	return ofA, ofB
}

// Doubts says what in a resource refers to others in a way that only a running
// proxy can tell, as Unprovable does. Of a route table it decodes the virtual
// hosts that can hold such a thing.
func Doubts(r *schema.Resource) ([]string, error) {
	if r.Type != schema.Routes {
		msg, err := Unpack(r)
		if err != nil {
			return nil, err
		}
		return Unprovable(msg), nil
	}
	hosts, err := HostsOf(r)
	if err != nil {
		return nil, err
	}
	value, err := anyBytes(r)
	if err != nil {
		return nil, err
	}
	frame := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(frameOf(value), frame); err != nil {
		return nil, fmt.Errorf("cannot decode %s: %w", r.Key, err)
	}
	out := Unprovable(frame)
	hostPlan := planOf((*routev3.VirtualHost)(nil).ProtoReflect().Descriptor())
	for i, h := range hosts {
		if !hostPlan.suspects(h.raw) {
			continue
		}
		vh, err := h.message()
		if err != nil {
			return nil, err
		}
		for _, why := range Unprovable(vh) {
			out = append(out, fmt.Sprintf("virtual_hosts[%d].%s", i, why))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// suspects reports whether an encoded message can hold a doubt: one of the
// table's doubtful fields, or an Any, which is not looked into. What is no
// encoding is suspect too.
func (p *plan) suspects(raw []byte) bool {
	if p == nil {
		return false
	}
	if p.note != "" {
		return true
	}
	found := false
	err := eachField(raw, func(num protowire.Number, _, content []byte) {
		if found {
			return
		}
		for i := range p.steps {
			s := &p.steps[i]
			if s.field.Number() != num {
				continue
			}
			switch {
			case s.any, s.field.IsMap(), s.means != nil && s.means.reason != "":
				found = true
			case s.into != nil:
				found = s.into.suspects(content)
			}
			return
		}
	})
	return found || err != nil
}
