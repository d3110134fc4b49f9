package reconcile

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// wholes leaves out of a resource's lines those that are of a part of an author's
// thing: the first is of the whole resource, whatever it is.
func wholes(all []schema.Origin) []schema.Origin {
	var out []schema.Origin
	for i, o := range all {
		if i == 0 && o.Name != "" || o.Name != "" && o.Field == "" {
			out = append(out, o)
		}
	}
	return out
}

// Blame lists the lines that a refusal is about: those of the resources that its
// words name, or else of all that were new to the client. base is what the client
// had before, and may be nil.
func (r *Release) Blame(n *schema.Nack, base *Release) []schema.Origin {
	var out []schema.Origin
	for _, k := range blamed(n) {
		out = append(out, r.lines(k, n.Words, base)...)
	}
	return out
}

// fewLines is how many lines are blamed at most for a table of which nobody can
// say which part is wrong; of more, it is that of the whole.
const fewLines = 3

// lines are those of one resource: for a route table those of the routes in it
// that the words name, or else that are not as they were.
func (r *Release) lines(k schema.Key, words string, base *Release) []schema.Origin {
	all := r.Origins[k]
	if len(all) == 0 || k.Type != schema.Routes {
		return all[:min(len(all), 1)]
	}
	routes := slices.DeleteFunc(slices.Clone(all[1:]), func(o schema.Origin) bool { return o.Kind != "route" })
	only := func(takes func(o schema.Origin) bool) []schema.Origin {
		return slices.DeleteFunc(slices.Clone(routes), func(o schema.Origin) bool { return !takes(o) })
	}
	if named := only(func(o schema.Origin) bool { return schema.Mentions(words, o.Name) }); len(named) > 0 {
		return named
	}
	if base != nil {
		changed := changedHosts(base.Group.Snapshot.Get(k), r.Group.Snapshot.Get(k))
		if found := only(func(o schema.Origin) bool { return changed[o.Name] }); len(found) > 0 && len(found) <= fewLines {
			return found
		}
	}
	if len(routes) == 0 || len(routes) > fewLines {
		return all[:1]
	}
	return routes
}

// changedHosts names the routes whose virtual hosts differ between two tables: a
// virtual host has the names of the routes that it is made of, joined by a plus.
func changedHosts(a, b *schema.Resource) map[string]bool {
	was, is, out := hostsOf(a), hostsOf(b), map[string]bool{}
	for name, vh := range is {
		if old := was[name]; old == nil || !proto.Equal(old, vh) {
			for _, route := range strings.Split(name, "+") {
				out[route] = true
			}
		}
	}
	return out
}

func hostsOf(r *schema.Resource) map[string]*routev3.VirtualHost {
	out := map[string]*routev3.VirtualHost{}
	if r == nil {
		return out
	}
	msg, err := envoy.Unpack(r)
	if err != nil {
		return out // it was made here, so it can be read; and if not, the line of the whole will do
	}
	for _, vh := range msg.(*routev3.RouteConfiguration).GetVirtualHosts() {
		out[vh.GetName()] = vh
	}
	return out
}

// blamed guesses which resources a refusal is about: those that its words name,
// or else all that were new to the client. Clients say it in words alone; what was
// isolated is no guess.
func blamed(n *schema.Nack) []schema.Key {
	var named, all []schema.Key
	for _, name := range n.Names {
		k := schema.Key{Type: n.Type, Name: name}
		all = append(all, k)
		if schema.Mentions(n.Words, name) {
			named = append(named, k)
		}
	}
	if len(named) > 0 && !n.Isolated {
		return named
	}
	return all
}
