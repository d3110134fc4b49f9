//go:build e2e

package realclients

import (
	"fmt"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// gRPCTarget is what gRPC clients dial.
const gRPCTarget = "xds:///echo.mesh"

// service is one service of a configuration. It may have no address.
type service struct{ name, addr string }

// config is one commit: one group of one kind of client, and everything to the
// first of some services, or split over all of them, 1 : 2 : 3 and so on. The
// weights are large because MOSN is wrong by one in their sum.
type config struct {
	client   schema.Client
	bind     string // address of the proxy's listener, for Envoy's kind
	serve    string // address of a gRPC server's listener; "" for no such group
	services []service
	split    bool
}

func (c config) files() map[string]string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("package mesh\n\nimport \"github.com/sluice-xds/sluice/schema\"\n")
	line("groups: nodes: schema.#Group & {client: %q, match: id: \"node-*\", rollout: drain: \"100ms\"}", c.client)
	host, protocol := "echo.mesh", "grpc"
	if c.client == schema.Envoy {
		line("listeners: echo: schema.#Listener & {groups: [\"nodes\"], bind: %q}", c.bind)
		host, protocol = "*", "http"
	} else {
		line("listeners: echo: schema.#Listener & {groups: [\"nodes\"], target: %q}", strings.TrimPrefix(gRPCTarget, "xds:///"))
	}
	if c.serve != "" {
		line("groups: servers: schema.#Group & {client: \"grpc\", match: id: \"server-*\"}")
		line("listeners: server: schema.#Listener & {groups: [\"servers\"], serve: %q}", c.serve)
	}
	to := fmt.Sprintf("service: %q", c.services[0].name)
	if c.split {
		var parts []string
		for i, s := range c.services {
			parts = append(parts, fmt.Sprintf("%q: %d", s.name, 1000*(i+1)))
		}
		to = fmt.Sprintf("split: {%s}", strings.Join(parts, ", "))
	}
	line("routes: echo: schema.#Routes & {listeners: [\"echo\"], hosts: [%q], rules: [{match: prefix: \"/\", %s}]}", host, to)
	line("services: {")
	for _, s := range c.services {
		endpoint := ""
		if s.addr != "" {
			endpoint = fmt.Sprintf("{address: %q, zone: \"zone-a\"}", s.addr)
		}
		line("\t%q: schema.#Service & {protocol: %q, endpoints: [%s]}", s.name, protocol, endpoint)
	}
	line("}")
	return map[string]string{"mesh.cue": b.String()}
}
