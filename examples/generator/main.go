// Command generator writes a repository of many services, each in a package of
// its own, for measuring: go run ./examples/generator -n 10000 DIR.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
)

const base = `package base

import "github.com/sluice-xds/sluice/schema"

groups: edge: schema.#Group & {client: "envoy", match: id: "edge-*"}
listeners: web: schema.#Listener & {groups: ["edge"], bind: "0.0.0.0:8080"}
`

const service = `package s

import "github.com/sluice-xds/sluice/schema"

services: NAME: schema.#Service & {
	endpoints: [
		{address: "10.0.0.1:8080", zone: "a"},
		{address: "10.0.0.2:8080", zone: "b"},
		{address: "10.0.0.3:8080", zone: "b", weight: 2},
	]
	protocol: "http2"
	health: http: "/healthz"
}

routes: NAME: schema.#Routes & {
	listeners: ["web"]
	hosts: ["NAME.example.com"]
	rules: [
		{match: path: "/healthz", respond: status: 200},
		{match: {prefix: "/api/", headers: "x-canary": "1"}, service: "NAME", timeout: "2s"},
		{match: prefix: "/api/", service: "NAME", retry: {on: ["5xx"], attempts: 2}},
		{match: path: "/old", redirect: path: "/new"},
		{match: prefix: "/", service: "NAME"},
	]
}

tests: NAME: schema.#Test & {
	request: {host: "NAME.example.com", path: "/api/x"}
	expect: service: "NAME"
}
`

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 10_000, "how many services")
	single := flag.Bool("single", false, "put all into one package")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("want one directory")
	}
	if err := write(flag.Arg(0), *n, *single); err != nil {
		log.Fatal(err)
	}
}

func write(dir string, n int, single bool) error {
	put := func(name, data string) error {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		return os.WriteFile(name, []byte(data), 0o644)
	}
	if err := put("base/base.cue", base); err != nil {
		return err
	}
	if single {
		var all strings.Builder
		all.WriteString("package s\n\nimport \"github.com/sluice-xds/sluice/schema\"\n\n")
		for i := range n {
			_, body, _ := strings.Cut(service, "schema\"\n\n")
			all.WriteString(strings.ReplaceAll(body, "NAME", fmt.Sprintf("s%05d", i)) + "\n")
		}
		return put("services/all.cue", all.String())
	}
	for i := range n {
		name := fmt.Sprintf("s%05d", i)
		if err := put("services/"+name+"/s.cue", strings.ReplaceAll(service, "NAME", name)); err != nil {
			return err
		}
	}
	return nil
}
