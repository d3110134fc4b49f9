package compile_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-xds/sluice/schema/compile"
)

// generate makes a tree of n services, one package each, with five rules each.
func generate(n int) fstest.MapFS {
	tree := fstest.MapFS{"base/base.cue": &fstest.MapFile{Data: []byte(`package base

import "github.com/sluice-xds/sluice/schema"

groups: edge: schema.#Group & {client: "envoy", match: id: "edge-*"}
listeners: web: schema.#Listener & {groups: ["edge"], bind: "0.0.0.0:8080"}
`)}}
	for i := range n {
		tree[fmt.Sprintf("services/s%05d/s.cue", i)] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(`package s

import "github.com/sluice-xds/sluice/schema"

services: "sNNN": schema.#Service & {
	endpoints: [
		{address: "10.0.0.1:8080", zone: "a"},
		{address: "10.0.0.2:8080", zone: "b"},
		{address: "10.0.0.3:8080", zone: "b", weight: 2},
	]
	protocol: "http2"
	health: http: "/healthz"
}
routes: "sNNN": schema.#Routes & {
	listeners: ["web"]
	hosts: ["sNNN.example.com"]
	rules: [
		{match: path: "/healthz", respond: status: 200},
		{match: {prefix: "/api/", headers: "x-canary": "1"}, service: "sNNN", timeout: "2s"},
		{match: prefix: "/api/", service: "sNNN", retry: {on: ["5xx"], attempts: 2}},
		{match: path: "/old", redirect: path: "/new"},
		{match: prefix: "/", service: "sNNN"},
	]
}
tests: "sNNN": schema.#Test & {
	request: {host: "sNNN.example.com", path: "/api/x"}
	expect: service: "sNNN"
}
`, "NNN", fmt.Sprintf("%05d", i)))}
	}
	return tree
}

// cpuTime is what this process and its workers used so far.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// BenchmarkFleet compiles services in packages of their own, cold.
func BenchmarkFleet(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		if testing.Short() && n > 1000 {
			continue
		}
		dir := b.TempDir()
		if err := os.CopyFS(dir, generate(n)); err != nil {
			b.Fatal(err)
		}
		tree := os.DirFS(dir)
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var peak uint64
			before := cpuTime()
			for b.Loop() {
				f, err := compile.Fleet(b.Context(), tree, compile.Options{})
				if err != nil {
					b.Fatal(err)
				}
				var ms runtime.MemStats
				runtime.ReadMemStats(&ms)
				peak = max(peak, ms.HeapSys-ms.HeapReleased)
				if got := len(compile.RunTests(f).Results); got != n {
					b.Fatalf("%d tests", got)
				}
			}
			b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
			b.ReportMetric((cpuTime()-before).Seconds()/float64(b.N), "cpu-s/op") // workers included
		})
	}
}

// kept is a tree that keeps the hashes of its directories, as Git does. One file
// differs from the tree below.
type kept struct {
	fs.FS
	hashes  map[string]string
	changed string
	data    []byte
}

func (k *kept) TreeHash(dir string) string {
	h := k.hashes[dir]
	if h != "" && (dir == "." || strings.HasPrefix(k.changed, dir+"/")) {
		h += string(k.data)
	}
	return h
}

func (k *kept) Open(name string) (fs.File, error) {
	if name == k.changed {
		return fstest.MapFS{name: &fstest.MapFile{Data: k.data}}.Open(name)
	}
	return k.FS.Open(name)
}

// BenchmarkWarm compiles the same services again after one of them changed.
func BenchmarkWarm(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		if testing.Short() && n > 1000 {
			continue
		}
		dir := b.TempDir()
		tree := generate(n)
		if err := os.CopyFS(dir, tree); err != nil {
			b.Fatal(err)
		}
		hashes := map[string]string{".": "root"}
		for name := range tree {
			for d := path.Dir(name); d != "."; d = path.Dir(d) {
				hashes[d] = d
			}
		}
		const name = "services/s00007/s.cue"
		data := string(tree[name].Data)
		for _, c := range []struct {
			name string
			edit func(i int) string
		}{
			{"address", func(i int) string {
				return strings.Replace(data, "10.0.0.1:", fmt.Sprintf("10.1.%d.%d:", i>>8&255, i&255), 1)
			}},
			{"lines", func(i int) string { return strings.Replace(data, "services:", strings.Repeat("\n", i)+"services:", 1) }},
			{"route", func(i int) string { return strings.Replace(data, "\"2s\"", fmt.Sprintf("\"%dms\"", i+1), 1) }},
		} {
			b.Run(fmt.Sprintf("services=%d/%s", n, c.name), func(b *testing.B) {
				opts := compile.Options{Cache: compile.NewCache("")}
				at := func(i int) *kept {
					return &kept{FS: os.DirFS(dir), hashes: hashes, changed: name, data: []byte(c.edit(i))}
				}
				if _, err := compile.Fleet(b.Context(), at(0), opts); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				before := cpuTime()
				for i := 1; b.Loop(); i++ {
					if _, err := compile.Fleet(b.Context(), at(i), opts); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpuTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}
