package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/examples"
	"github.com/sluice-xds/sluice/schema"
)

// mesh is examples/grpc-mesh on loopback.
type mesh struct {
	v1, v2 []string  // addresses
	shares []float64 // of v2, by phase
}

// groupsOnly is the part of the example that says which nodes there are.
func groupsOnly() (map[string]string, error) {
	b, err := examples.FS.ReadFile("grpc-mesh/mesh.cue")
	if err != nil {
		return nil, err
	}
	text, _, ok := strings.Cut(string(b), "\nlisteners:")
	if !ok {
		return nil, errors.New("examples/grpc-mesh has no listeners")
	}
	return map[string]string{"mesh.cue": text + "\n"}, nil
}

// files is the example with the addresses of this process, weights for v1 and v2
// (-1: the service is gone), and without its retries: the demo counts every
// failure.
func (m *mesh) files(v1, v2 int) (map[string]string, error) {
	b, err := examples.FS.ReadFile("grpc-mesh/mesh.cue")
	if err != nil {
		return nil, err
	}
	text := string(b)
	edit := func(old, new string) {
		if strings.Count(text, old) != 1 {
			err = fmt.Errorf("examples/grpc-mesh does not have %q once", old)
			return
		}
		text = strings.Replace(text, old, new, 1)
	}
	var serve strings.Builder
	listen := func(label string, addrs []string) {
		for i, addr := range addrs {
			fmt.Fprintf(&serve, "\"cart-%s-%d\": schema.#Listener & {groups: [\"backends\"], serve: %q}\n\t", label, i+1, addr)
		}
	}
	if v1 >= 0 {
		listen("v1", m.v1)
	}
	listen("v2", m.v2)
	edit(`"cart-server": schema.#Listener & {groups: ["backends"], serve: "0.0.0.0:50051"}`, serve.String())
	edit(`backends: schema.#Group & {client: "grpc", match: id: "cart-*"}`, `backends: schema.#Group & {client: "grpc", match: id: "cart-*", rollout: drain: "1s"}`)
	edit(`rollout: after: ["backends"]`, `rollout: {after: ["backends"], drain: "1s"}`)
	edit(`retry: {on: ["unavailable"], attempts: 2}`, "")
	edit(`timeout: "500ms"`, "")
	edit(`{address: "10.1.0.10:50051", zone: _zone}`, endpoints(m.v1))
	edit(`{address: "10.1.1.10:50051", zone: _zone}`, endpoints(m.v2))
	split := map[string]int{}
	if v1 > 0 {
		split["cart"] = v1
	}
	if v2 > 0 {
		split["cart-v2"] = v2
	}
	var parts []string
	for name, w := range split {
		parts = append(parts, strconv.Quote(name)+": "+strconv.Itoa(w))
	}
	slices.Sort(parts)
	edit(`{cart: 90, "cart-v2": 10}`, "{"+strings.Join(parts, ", ")+"}")
	if err != nil {
		return nil, err
	}
	if v1 < 0 {
		text = dropLine(text, "\tcart: schema.#Service")
	}
	if v2 == 0 {
		text = dropLine(text, "\t\"cart-v2\": schema.#Service")
		text = dropLine(text, "\t\t{match: {grpc: \"shop.Cart/Checkout\"")
		text, _, _ = strings.Cut(text, "tests:")
	}
	return map[string]string{"mesh.cue": text}, nil
}

func endpoints(addrs []string) string {
	var parts []string
	for _, a := range addrs {
		parts = append(parts, fmt.Sprintf("{address: %q, zone: _zone}", a))
	}
	return strings.Join(parts, ", ")
}

func dropLine(text, prefix string) string {
	var keep []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}

// wrongOrder is a plan of how not to do it: what the target lacks is removed
// first, and the route moves 200 ms later.
func wrongOrder(from schema.State, to *schema.Target) *schema.Path {
	if from.Blank {
		return &schema.Path{Target: to}
	}
	holds := from.Acked.Union(from.Maybe)
	first := to.Snapshot
	for _, t := range [...]schema.Type{schema.Listeners, schema.Routes} {
		first = first.Replace(t, holds.Of(t))
	}
	all := [schema.NumTypes]bool{}
	for t := range all {
		all[t] = true
	}
	return &schema.Path{Target: to, Converged: 2, Stages: []schema.Stage{
		{Kind: schema.Prune, Snapshot: first, Moves: all},
		{Kind: schema.SwitchRoutes, Snapshot: to.Snapshot, Moves: all, Drain: 200 * time.Millisecond},
	}}
}
