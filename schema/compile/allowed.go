package compile

import (
	"maps"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// hazardous are those of an entry's allowances that are for hazards of a plan.
func hazardous(allow map[string]string) map[string]string {
	out := maps.Clone(allow)
	maps.DeleteFunc(out, func(code, _ string) bool {
		_, known := schema.HazardOf(code)
		return !known
	})
	return out
}

// allowances notes which hazards the authors of entries allow, by the resources
// that the entries are made into.
func (lo *lowering) allowances() {
	allow := func(from map[string]string, keys ...schema.Key) {
		for code, reason := range hazardous(from) {
			for _, k := range keys {
				if lo.fleet.Allow == nil {
					lo.fleet.Allow = map[schema.Key]map[string]string{}
				}
				if lo.fleet.Allow[k] == nil {
					lo.fleet.Allow[k] = map[string]string{}
				}
				lo.fleet.Allow[k][code] = reason
			}
		}
	}
	for name, s := range lo.services {
		allow(s.Allow, schema.Key{Type: schema.Clusters, Name: lo.wireOf(name)}, schema.Key{Type: schema.Endpoints, Name: name})
	}
	for name, l := range lo.model.listeners {
		allow(l.Allow, schema.Key{Type: schema.Listeners, Name: l.wireName(name)}, schema.Key{Type: schema.Routes, Name: name})
	}
	for _, r := range lo.routes {
		for _, l := range r.Listeners {
			allow(r.Allow, schema.Key{Type: schema.Routes, Name: l})
		}
	}
	for t := range lo.resources {
		for name, r := range lo.resources[t] {
			allow(r.Allow, schema.Key{Type: schema.Type(t), Name: name})
		}
	}
}

// hazardCodes are the codes of hazards.
func hazardCodes() []string {
	var codes []string
	for _, h := range schema.Hazards() {
		codes = append(codes, h.Code)
	}
	return slices.Sorted(slices.Values(codes))
}
