package envoy

import (
	"fmt"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-xds/sluice/schema"
)

// ClusterChange says what differs in two versions of a cluster.
type ClusterChange struct {
	// Members of an aggregate differ.
	Members bool
	// Connections differ: the TLS that they speak, or where endpoints are found.
	Connections bool
}

// ChangeOfCluster compares two versions of a cluster.
func ChangeOfCluster(old, r *schema.Resource) (ClusterChange, error) {
	a, b, err := two[*clusterv3.Cluster](old, r)
	if err != nil {
		return ClusterChange{}, err
	}
	return ClusterChange{
		Members: !slices.Equal(members(a), members(b)),
		Connections: !proto.Equal(a.GetTransportSocket(), b.GetTransportSocket()) ||
			len(a.GetTransportSocketMatches())+len(b.GetTransportSocketMatches()) > 0 ||
			a.GetType() != b.GetType() || a.GetEdsClusterConfig().GetServiceName() != b.GetEdsClusterConfig().GetServiceName(),
	}, nil
}

func members(c *clusterv3.Cluster) []string {
	var cfg aggregatev3.ClusterConfig
	if a := c.GetClusterType().GetTypedConfig(); a == nil || a.UnmarshalTo(&cfg) != nil {
		return nil
	}
	return cfg.GetClusters()
}

// ListenerChange says what differs in two versions of a listener.
type ListenerChange struct {
	// ChainsOnly: nothing but filter chains. Envoy then drains the chains that
	// differ, and else the whole listener.
	ChainsOnly bool
	// Addresses that it binds.
	Addresses bool
	// ReusePort: whether several sockets share the port, which Envoy refuses to
	// change.
	ReusePort bool
}

// ChangeOfListener compares two versions of a listener.
func ChangeOfListener(old, r *schema.Resource) (ListenerChange, error) {
	a, b, err := two[*listenerv3.Listener](old, r)
	if err != nil {
		return ListenerChange{}, err
	}
	c := ListenerChange{
		Addresses: !slices.Equal(addresses(a), addresses(b)),
		ReusePort: reusesPort(a) != reusesPort(b),
	}
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	for _, l := range []*listenerv3.Listener{a, b} {
		l.FilterChains, l.DefaultFilterChain, l.FilterChainMatcher = nil, nil, nil
	}
	c.ChainsOnly = a.GetAddress().GetSocketAddress().GetProtocol() == corev3.SocketAddress_TCP && proto.Equal(a, b)
	return c, nil
}

// reusesPort is the default unless it is said otherwise.
func reusesPort(l *listenerv3.Listener) bool {
	return l.GetEnableReusePort() == nil || l.GetEnableReusePort().GetValue()
}

// Addresses lists the ports that a listener binds: "tcp 0.0.0.0:80". Those that
// the system chooses, and listeners that bind none, are left out.
func Addresses(r *schema.Resource) ([]string, error) {
	msg, err := Unpack(r)
	if err != nil {
		return nil, err
	}
	l, ok := msg.(*listenerv3.Listener)
	if !ok {
		return nil, fmt.Errorf("%s holds a %s", r.Key, msg.ProtoReflect().Descriptor().FullName())
	}
	return addresses(l), nil
}

func addresses(l *listenerv3.Listener) []string {
	if l.GetBindToPort() != nil && !l.GetBindToPort().GetValue() {
		return nil
	}
	all := []*corev3.Address{l.GetAddress()}
	for _, a := range l.GetAdditionalAddresses() {
		all = append(all, a.GetAddress())
	}
	var out []string
	for _, a := range all {
		s := a.GetSocketAddress()
		switch {
		case s.GetPortValue() > 0:
			out = append(out, fmt.Sprintf("%s %s:%d", lower(s.GetProtocol().String()), s.GetAddress(), s.GetPortValue()))
		case a.GetPipe().GetPath() != "":
			out = append(out, "pipe "+a.GetPipe().GetPath())
		}
	}
	slices.Sort(out)
	return out
}

// IsAPIListener reports whether a listener is one that a gRPC client dials: it
// binds nothing, and has no connections of its own.
func IsAPIListener(r *schema.Resource) bool {
	msg, err := Unpack(r)
	l, ok := msg.(*listenerv3.Listener)
	return err == nil && ok && l.GetApiListener() != nil
}

// defaultFetch is ConfigSource.initial_fetch_timeout's default.
const defaultFetch = 15 * time.Second

// FetchTimeouts lists how long a node waits for what a resource names of this
// server's, longest first; 0 is for ever, and comes before all.
func FetchTimeouts(r *schema.Resource) ([]time.Duration, error) {
	msg, err := Unpack(r)
	if err != nil {
		return nil, err
	}
	var out []time.Duration
	c := newCollector(nil)
	v := visitor{message: func(_ *plan, m protoreflect.Message) {
		src, ok := m.Interface().(*corev3.ConfigSource)
		if !ok || !c.ours(src) {
			return
		}
		d := defaultFetch
		if src.GetInitialFetchTimeout() != nil {
			d = src.GetInitialFetchTimeout().AsDuration()
		}
		out = append(out, d)
	}}
	v.walk(msg.ProtoReflect())
	slices.SortFunc(out, func(a, b time.Duration) int {
		switch {
		case a == 0 || b == 0:
			return int(min(a, 1)) - int(min(b, 1))
		}
		return int(b - a)
	})
	return slices.Compact(out), nil
}

// two decodes two versions of a resource that must hold an M.
func two[M proto.Message](old, r *schema.Resource) (a, b M, err error) {
	for i, to := range []*M{&a, &b} {
		from := []*schema.Resource{old, r}[i]
		msg, err := Unpack(from)
		if err != nil {
			return a, b, err
		}
		m, ok := msg.(M)
		if !ok {
			return a, b, fmt.Errorf("%s holds a %s", from.Key, msg.ProtoReflect().Descriptor().FullName())
		}
		*to = m
	}
	return a, b, nil
}

// Nameless is the content of a resource without its name, and without what
// carries that name along: two that are equal are one that was renamed (rule P5).
func Nameless(r *schema.Resource) (string, error) {
	msg, err := Unpack(r)
	if err != nil {
		return "", err
	}
	switch m := msg.(type) {
	case *clusterv3.Cluster:
		for _, field := range []*string{&m.AltStatName, eds(m), local(m)} {
			if field != nil && *field == m.Name {
				*field = ""
			}
		}
	}
	m := msg.ProtoReflect()
	if fd := m.Descriptor().Fields().ByName("name"); fd != nil {
		m.Clear(fd)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	return string(b), err
}

func eds(c *clusterv3.Cluster) *string {
	if c.GetEdsClusterConfig() == nil {
		return nil
	}
	return &c.EdsClusterConfig.ServiceName
}

func local(c *clusterv3.Cluster) *string {
	if c.GetLoadAssignment() == nil {
		return nil
	}
	return &c.LoadAssignment.ClusterName
}
