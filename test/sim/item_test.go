package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// item is a resource as a client reads it.
type item struct {
	*schema.Resource
	refuser string
	// bare is the version without warm routes.
	bare schema.Version

	eds     string   // of a cluster
	members []string // of an aggregate
	rds     string   // of a listener
	tcp     string
	table   *envoy.Table // of a route table
	hosts   []virtualHost
	answers sync.Map // request → []string
}

// read remembers items by what was on the wire: most of it comes again.
var read sync.Map // string → *item

func itemOf(a *anypb.Any) (*item, error) {
	key := a.GetTypeUrl() + "\x00" + string(a.GetValue())
	if it, ok := read.Load(key); ok {
		return it.(*item), nil
	}
	msg, err := a.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	r, err := envoy.Resource(msg, envoy.NameOf(msg))
	if err != nil {
		return nil, err
	}
	it, err := newItem(r, msg)
	if err != nil {
		return nil, err
	}
	read.Store(key, it)
	return it, nil
}

func newItem(r *schema.Resource, msg proto.Message) (*item, error) {
	it := &item{Resource: r, bare: r.Version}
	switch m := msg.(type) {
	case *clusterv3.Cluster:
		it.refuser = strings.TrimPrefix(m.AltStatName, refused)
	case *listenerv3.Listener:
		it.refuser = strings.TrimPrefix(m.StatPrefix, refused)
	case *routev3.RouteConfiguration:
		it.table = envoy.NewTable(m)
		for _, h := range m.VirtualHosts {
			it.hosts = append(it.hosts, hostOf(h))
		}
		plain, err := envoy.Warm(r, nil)
		if err != nil {
			return nil, err
		}
		it.bare = plain.Version
	}
	for _, ref := range r.Refs {
		switch {
		case ref.Type == schema.Endpoints:
			it.eds = ref.Name
		case ref.Type == schema.Routes:
			it.rds = ref.Name
		case r.Type == schema.Clusters:
			it.members = append(it.members, ref.Name)
		case r.Type == schema.Listeners:
			it.tcp = ref.Name
		}
	}
	return it, nil
}

// itemFor reads a resource that a commit made.
func itemFor(r *schema.Resource) *item {
	var a anypb.Any
	if err := proto.Unmarshal(r.Body, &a); err != nil {
		panic(err)
	}
	it, err := itemOf(&a)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", r.Key, err))
	}
	return it
}

// leads says where an item leads, for the log.
func (it *item) leads() string {
	switch {
	case it.table != nil:
		return fmt.Sprintf("(%v)", it.hosts)
	case it.rds+it.tcp != "":
		return "(" + it.rds + it.tcp + ")"
	case it.eds != "" && it.eds != it.Name:
		return "(" + it.eds + ")"
	}
	return ""
}

// request is one of the requests that are always under way: to a listener of a
// proxy, or by a channel of a gRPC client, which dialled it.
type request struct{ listener, host, path string }

func (r request) String() string { return r.listener + ": " + r.host + r.path }

// to lists the clusters that a table sends a request to.
func (it *item) to(r request) []string {
	if c, ok := it.answers.Load(r); ok {
		return c.([]string)
	}
	d := it.table.Match(schema.Request{Method: "GET", Host: r.host, Path: r.path})
	var to []string
	switch {
	case d.Kind != envoy.Forward:
	case len(d.Split) > 0:
		to = keys(d.Split)
	default:
		to = []string{d.Cluster}
	}
	it.answers.Store(r, to)
	return to
}

// virtualHost is what one says of clusters.
type virtualHost struct{ domains, sends, warm []string }

func hostOf(h *routev3.VirtualHost) virtualHost {
	out := virtualHost{domains: h.Domains}
	for _, rt := range h.Routes {
		var names []string
		for _, c := range rt.GetRoute().GetWeightedClusters().GetClusters() {
			names = append(names, c.Name)
		}
		if c := rt.GetRoute().GetCluster(); c != "" {
			names = append(names, c)
		}
		if rt.Name == envoy.WarmName {
			out.warm = append(out.warm, names...)
		} else {
			out.sends = append(out.sends, names...)
		}
	}
	return out
}

// named lists the clusters that the virtual host of a domain names, warm ones
// too.
func (it *item) named(domain string) []string {
	for _, d := range [...]string{domain, "*"} {
		for _, h := range it.hosts {
			if slices.Contains(h.domains, d) {
				return slices.Concat(h.sends, h.warm)
			}
		}
	}
	return nil
}

// answered lists the requests that a configuration has an answer for.
func answered(s schema.Snapshot) map[request]bool {
	out := map[request]bool{}
	for l := range s.Of(schema.Listeners).All() {
		it := itemFor(l)
		if it.tcp != "" {
			out[request{listener: l.Name}] = true
			continue
		}
		table := itemFor(s.Of(schema.Routes).Get(it.rds))
		for _, host := range domains[1:] {
			for _, path := range paths {
				if r := (request{l.Name, host, path}); len(table.to(r)) > 0 {
					out[r] = true
				}
			}
		}
	}
	return out
}
