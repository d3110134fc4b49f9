//go:build ignore

// Command gensince writes since.txt: the fields and messages of Envoy's API that
// came after the oldest release of which Envoy's Go module tells. It compares the
// modules of each release in the module cache:
//
//	for v in 1.32.4 1.35.0 …; do go mod download github.com/envoyproxy/go-control-plane/envoy@v$v; done
//	go run gensince.go 1.32.4 1.35.0 1.36.0 1.37.0 1.38.0 1.39.0 1.40.0 >since.txt
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/sluice-xds/sluice/schema/envoy"
)

var (
	structLine = regexp.MustCompile(`^type (\w+) struct \{`)
	fieldLine  = regexp.MustCompile("`protobuf:\"[^\"]*name=(\\w+)")
)

// goFields are "package.Type" and "package.Type.field" of a module's sources.
func goFields(dir string) map[string]bool {
	out := map[string]bool{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, ".pb.go") {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		pkg, _ := filepath.Rel(dir, filepath.Dir(p))
		message := ""
		for line := range bytes.Lines(data) {
			if m := structLine.FindSubmatch(line); m != nil {
				message = pkg + "." + string(m[1])
				out[message] = true
			} else if m := fieldLine.FindSubmatch(line); m != nil && message != "" {
				out[message+"."+string(m[1])] = true
			} else if line[0] == '}' {
				message = ""
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	return out
}

func main() {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		log.Fatal(err)
	}
	const module = "github.com/envoyproxy/go-control-plane/envoy"
	versions := os.Args[1:]
	var known []map[string]bool
	for _, v := range versions {
		known = append(known, goFields(filepath.Join(strings.TrimSpace(string(cache)), module+"@v"+v)))
	}
	// first is the first release that has any of some keys.
	first := func(keys func(map[string]bool) bool) string {
		for i, k := range known {
			if keys(k) {
				return versions[i]
			}
		}
		return versions[0] // of another module
	}
	var lines []string
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		t := reflect.TypeOf(mt.Zero().Interface()).Elem()
		pkg, ok := strings.CutPrefix(t.PkgPath(), module+"/")
		if !ok {
			return true
		}
		name := pkg + "." + t.Name()
		since := first(func(k map[string]bool) bool { return k[name] })
		add := func(v string, what protoreflect.FullName) {
			if v != versions[0] {
				lines = append(lines, fmt.Sprintf("%s %s", what, v[:strings.LastIndexByte(v, '.')]))
			}
		}
		add(since, mt.Descriptor().FullName())
		for i := range mt.Descriptor().Fields().Len() {
			fd := mt.Descriptor().Fields().Get(i)
			v := first(func(k map[string]bool) bool {
				if k[name+"."+string(fd.Name())] {
					return true
				}
				wrapper := name + "_" + camel(string(fd.Name()))
				return k[wrapper+"."+string(fd.Name())] || k[wrapper+"_."+string(fd.Name())]
			})
			if v != since {
				add(v, fd.FullName())
			}
		}
		return true
	})
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

func camel(s string) string {
	parts := strings.Split(s, "_")
	for i, p := range parts {
		if p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}
