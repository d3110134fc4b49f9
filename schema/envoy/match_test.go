package envoy

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sluice-xds/sluice/schema"
)

var update = flag.Bool("update", false, "rewrite the golden cases")

// request reads "GET http://host/path header: value, header: value". Host and
// path may be missing: "CONNECT http://host".
func request(line string) schema.Request {
	method, rest, _ := strings.Cut(line, " ")
	url, headers, _ := strings.Cut(rest, " ")
	scheme, rest, _ := strings.Cut(url, "://")
	r := schema.Request{Method: method, Scheme: scheme, Host: rest}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		r.Host, r.Path = rest[:i], rest[i:]
	}
	for h := range strings.SplitSeq(headers, ", ") {
		if k, v, ok := strings.Cut(h, ": "); ok {
			if r.Headers == nil {
				r.Headers = map[string]string{}
			}
			r.Headers[k] = v
		}
	}
	return r
}

// outcome writes a decision in one line: what differs from the request alone.
func outcome(d Decision, r schema.Request) string {
	var b strings.Builder
	b.WriteString(string(d.Kind))
	if d.Status != 0 {
		fmt.Fprintf(&b, " %d", d.Status)
	}
	if d.Cluster != "" {
		b.WriteString(" " + d.Cluster)
	}
	for _, c := range slices.Sorted(maps.Keys(d.Split)) {
		fmt.Fprintf(&b, " %s:%d", c, d.Split[c])
	}
	if d.Redirect != "" {
		b.WriteString(" " + d.Redirect)
	}
	if d.VirtualHost != "" {
		fmt.Fprintf(&b, " (%s %d: %s)", d.VirtualHost, d.Index, d.Route)
	}
	if d.Path != r.Path {
		b.WriteString(" path " + d.Path)
	}
	if d.Host != r.Host {
		b.WriteString(" host " + d.Host)
	}
	for _, h := range slices.Sorted(maps.Keys(d.AddHeaders)) {
		fmt.Fprintf(&b, " +%s=%s", h, d.AddHeaders[h])
	}
	for _, h := range d.RemoveHeaders {
		b.WriteString(" -" + h)
	}
	if d.Kind == Forward && d.Timeout != defaultTimeout {
		fmt.Fprintf(&b, " timeout %s", d.Timeout)
	}
	if d.Unprovable != "" {
		b.WriteString(" ?" + d.Unprovable)
	}
	return b.String()
}

// Each archive is a table and requests. The comment above a request is the rule
// of Envoy's documentation (or, where that is silent, of its router) that the
// answer follows.
func TestMatch(t *testing.T) {
	files, err := filepath.Glob("testdata/match/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(ar.Files) != 2 || ar.Files[0].Name != "table.json" || ar.Files[1].Name != "cases" {
		t.Fatal("want table.json and cases")
	}
	rc := parse(t, schema.Routes, string(ar.Files[0].Data)).(*routev3.RouteConfiguration)
	for _, v := range Validate(rc) {
		t.Errorf("the table is not one that Envoy takes: %s", v)
	}
	table := NewTable(rc)
	var out strings.Builder
	for line := range strings.Lines(string(ar.Files[1].Data)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r := request(line)
		d := table.Match(r)
		out.WriteString("  " + outcome(d, r) + "\n")
		if diff := cmp.Diff(d, Match(rc, r)); diff != "" {
			t.Errorf("%s: a fresh table decides otherwise: %s", line, diff)
		}
	}
	if *update {
		ar.Files[1].Data = []byte(out.String())
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(ar.Files[1].Data), out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
