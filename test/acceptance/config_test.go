package acceptance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// target is what the clients dial.
const target = "xds:///echo.mesh"

// config is one commit's worth of a fleet: clients that dial echo.mesh, and the
// services that its one route is split over.
type config struct {
	split    map[string]int    // service to weight
	services map[string]string // name to address
	servers  map[string]string // xDS servers: listener to address
	odd      bool              // a third group, "odd", with the clients' listener
	lb       string            // of the services; round_robin if empty
}

// to sends everything to one service.
func to(service, addr string) config {
	return config{split: map[string]int{service: 100}, services: map[string]string{service: addr}}
}

// file is where a config is written.
const file = "mesh.cue"

func (c config) files() map[string]string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	each := func(m map[string]string, format string) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			line(format, name, m[name])
		}
	}
	line("package mesh\n\nimport \"github.com/sluice-xds/sluice/schema\"\n")
	line("groups: {")
	rollout, groups := `drain: "100ms"`, `"frontends"`
	if len(c.servers) > 0 {
		line("\tbackends: schema.#Group & {client: \"grpc\", match: id: \"server-*\", rollout: {%s}}", rollout)
		rollout += `, after: ["backends"]`
	}
	line("\tfrontends: schema.#Group & {client: \"grpc\", match: id: \"frontend-*\", rollout: {%s}}", rollout)
	if c.odd {
		groups += `, "odd"`
		line("\todd: schema.#Group & {client: \"grpc\", match: id: \"odd-*\", rollout: drain: \"100ms\"}")
	}
	line("}\n\nlisteners: {")
	line("\techo: schema.#Listener & {groups: [%s], target: \"echo.mesh\"}", groups)
	each(c.servers, "\t%q: schema.#Listener & {groups: [\"backends\"], serve: %q}")
	line("}\n\nroutes: echo: schema.#Routes & {")
	line("\tlisteners: [\"echo\"]\n\thosts: [\"echo.mesh\"]")
	var split []string
	for _, name := range slices.Sorted(maps.Keys(c.split)) {
		split = append(split, fmt.Sprintf("%q: %d", name, c.split[name]))
	}
	line("\trules: [{match: prefix: \"/\", split: {%s}}]", strings.Join(split, ", "))
	line("}\n\nservices: {")
	each(c.services, "\t%q: schema.#Service & {protocol: \"grpc\", endpoints: [{address: %q, zone: \"zone-a\"}], lb: \""+cmp.Or(c.lb, "round_robin")+"\"}")
	line("}")
	return map[string]string{file: b.String()}
}

// lineOf is the number of the first line of a file that holds text.
func lineOf(files map[string]string, text string) int {
	before, _, ok := strings.Cut(files[file], text)
	if !ok {
		panic(fmt.Sprintf("no %q in %s", text, file)) // the test is wrong
	}
	return strings.Count(before, "\n") + 1
}
