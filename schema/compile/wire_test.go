package compile_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// The name on the wire follows the content of the cluster, and nothing else:
// endpoints change under it, a member's new name is news to the aggregate.
func TestP04RenameSafe(t *testing.T) {
	const body = `package a
groups: edge: {client: "envoy", match: id: "edge-*"}
listeners: web: {groups: ["edge"], bind: "0.0.0.0:80"}
routes: web: {listeners: ["web"], hosts: ["*"], rules: [{match: prefix: "/", service: "all"}]}
services: all: failover: ["cart"]
services: cart: {endpoints: [{address: "10.0.0.1:80"}], rename: "safe"}
`
	names := func(edit ...string) map[string]string {
		tree := fstest.MapFS{"a.cue": &fstest.MapFile{Data: []byte(strings.NewReplacer(edit...).Replace(body))}}
		f, err := compile.Fleet(t.Context(), tree, inProcess)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for r := range f.Groups[0].Snapshot.Of(schema.Clusters).All() {
			out[schema.StableName(r.Name)] = r.Name
			if from := f.Provenance.Of(r.Key); from.Kind != "service" || from.Name != schema.StableName(r.Name) {
				t.Errorf("%s comes from %+v", r.Key, from)
			}
		}
		if d := f.Groups[0].Snapshot.Dangling(); len(d) > 0 {
			t.Error(d)
		}
		return out
	}
	first := names()
	for what, c := range map[string]struct {
		now  map[string]string
		same bool
	}{
		"again":               {names(), true},
		"other endpoints":     {names("10.0.0.1", "10.0.0.2"), true},
		"another time-out":    {names("rename:", `connect_timeout: "3s", rename:`), false},
		"a patch":             {names("services: all", "patches: clusters: cart: perConnectionBufferLimitBytes: 1024\nservices: all"), false},
		"without the renames": {names(`, rename: "safe"`, ""), false},
	} {
		for _, name := range []string{"cart", "all"} {
			if same := first[name] == c.now[name]; same != c.same {
				t.Errorf("%s: %s is %s, and was %s", what, name, c.now[name], first[name])
			}
		}
	}
}
