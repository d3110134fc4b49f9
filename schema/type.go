package schema

// Type is one kind of xDS resource. The order of the constants is the order in
// which types are made: what comes later refers to what comes before (rule O1).
type Type uint8

// The resource types of the v3 transport protocol.
const (
	Clusters Type = iota
	Endpoints
	Secrets
	Extensions
	Listeners
	ScopedRoutes
	Routes
	VirtualHosts
	Runtimes
	NumTypes = iota
)

const typePrefix = "type.googleapis.com/"

var types = [NumTypes]struct{ url, plural, noun, short string }{
	Clusters:     {"envoy.config.cluster.v3.Cluster", "clusters", "cluster", "CDS"},
	Endpoints:    {"envoy.config.endpoint.v3.ClusterLoadAssignment", "endpoints", "endpoints", "EDS"},
	Secrets:      {"envoy.extensions.transport_sockets.tls.v3.Secret", "secrets", "secret", "SDS"},
	Extensions:   {"envoy.config.core.v3.TypedExtensionConfig", "extensions", "extension", "ECDS"},
	Listeners:    {"envoy.config.listener.v3.Listener", "listeners", "listener", "LDS"},
	ScopedRoutes: {"envoy.config.route.v3.ScopedRouteConfiguration", "scoped-routes", "scoped route", "SRDS"},
	Routes:       {"envoy.config.route.v3.RouteConfiguration", "routes", "route table", "RDS"},
	VirtualHosts: {"envoy.config.route.v3.VirtualHost", "virtual-hosts", "virtual host", "VHDS"},
	Runtimes:     {"envoy.service.runtime.v3.Runtime", "runtimes", "runtime layer", "RTDS"},
}

var (
	typeURLs  [NumTypes]string
	typeByURL = func() map[string]Type {
		m := make(map[string]Type, NumTypes)
		for t := range types {
			typeURLs[t] = typePrefix + types[t].url
			m[typeURLs[t]] = Type(t)
		}
		return m
	}()
)

// TypeOf finds the type of a type URL, with its "type.googleapis.com/" prefix.
func TypeOf(url string) (Type, bool) {
	t, ok := typeByURL[url]
	return t, ok
}

// AllTypes lists the types in the order in which they are made.
func AllTypes() [NumTypes]Type {
	var all [NumTypes]Type
	for t := range all {
		all[t] = Type(t)
	}
	return all
}

// URL is the type URL, with its "type.googleapis.com/" prefix.
func (t Type) URL() string { return typeURLs[t] }

// Message is the full protobuf name of the resource's message.
func (t Type) Message() string { return types[t].url }

// String is the plural noun that people read: "clusters".
func (t Type) String() string { return types[t].plural }

// Noun is the singular noun that people read: "cluster".
func (t Type) Noun() string { return types[t].noun }

// Short is the field's abbreviation: "CDS".
func (t Type) Short() string { return types[t].short }

// MarshalText writes the plural noun, so that JSON speaks the words of people.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *Type) UnmarshalText(b []byte) error {
	for i := range types {
		if types[i].plural == string(b) {
			*t = Type(i)
			return nil
		}
	}
	return &UnknownTypeError{Name: string(b)}
}

// UnknownTypeError says that a name is no resource type.
type UnknownTypeError struct{ Name string }

func (e *UnknownTypeError) Error() string { return "unknown resource type " + e.Name }

// Live reports whether bodies of this type come from the live overlay instead
// of a path's snapshots, which hold only their keys (rule P4).
func (t Type) Live() bool { return t == Endpoints || t == Secrets }

// FullState reports whether a state-of-the-world response of this type is the
// whole truth, so that what is absent is deleted (rule S7).
func (t Type) FullState() bool { return t == Clusters || t == Listeners || t == ScopedRoutes }

// HasWildcard reports whether a request without names asks for everything
// (rule S5).
func (t Type) HasWildcard() bool { return t.FullState() }
