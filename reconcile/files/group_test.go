package files

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
	"github.com/sluice-xds/sluice/schema/envoy"
)

func served() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func made(t testing.TB, name string, msg proto.Message) *schema.Resource {
	t.Helper()
	r, err := envoy.Resource(msg, name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func cluster(t testing.TB, name string, version int) []*schema.Resource {
	t.Helper()
	return []*schema.Resource{
		made(t, name, &clusterv3.Cluster{
			Name: name, ConnectTimeout: durationpb.New(1e9 + 1e6*1e3), ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: served()}, AltStatName: fmt.Sprint(version),
		}),
		made(t, name, &endpointv3.ClusterLoadAssignment{ClusterName: name}),
	}
}

func routes(t testing.TB, name string, to ...string) *schema.Resource {
	t.Helper()
	w := &routev3.WeightedCluster{}
	for _, c := range to {
		w.Clusters = append(w.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: c})
	}
	return made(t, name, &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: w}}},
		}},
	}}})
}

func listener(t testing.TB, name, table string) *schema.Resource {
	t.Helper()
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix:     name,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: served(), RouteConfigName: table}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return made(t, name, &listenerv3.Listener{Name: name, FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}},
	}}})
}

func openDir(t testing.TB, path string) *Dir {
	t.Helper()
	d, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func groupOf(t testing.TB, d *Dir, name string) *Group {
	t.Helper()
	g, err := d.Group(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func write(t testing.TB, g *Group, to schema.Snapshot) {
	t.Helper()
	if err := g.Write(to); err != nil {
		t.Fatal(err)
	}
}

// differ says how two snapshots differ.
func differ(a, b schema.Snapshot) string {
	var all []string
	for old, now := range schema.DiffAll(a, b) {
		for sign, r := range map[string]*schema.Resource{"-": old, "+": now} {
			if r != nil {
				all = append(all, fmt.Sprint(sign, r.Key, "@", r.Version))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// random is a closed snapshot.
func random(t testing.TB, rnd *rand.Rand) schema.Snapshot {
	var rs []*schema.Resource
	var names []string
	for i := range 1 + rnd.IntN(4) {
		names = append(names, fmt.Sprint("c/", (i+rnd.IntN(2))%4))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, c := range names {
		rs = append(rs, cluster(t, c, rnd.IntN(2))...)
	}
	for i := range rnd.IntN(3) {
		table := fmt.Sprint("r", rnd.IntN(3))
		rs = append(rs, listener(t, fmt.Sprint("l", i), table))
		if !slices.ContainsFunc(rs, func(r *schema.Resource) bool { return r.Type == schema.Routes && r.Name == table }) {
			rs = append(rs, routes(t, table, names[rnd.IntN(len(names))]))
		}
	}
	return schema.SnapshotOf(rs...)
}

// Whatever is written after whatever, and wherever a process ended in between: a
// node that reads meanwhile finds all that is named, and the end is as it was to be.
func TestNothingEverDangles(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	node := Watch(filepath.Join(path, "edge"))
	defer node.End(t)
	g := groupOf(t, d, "edge")
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		to := random(t, rnd)
		if i%3 == 0 { // ends half-way
			if err := g.prepare(to); err != nil {
				t.Fatal(err)
			}
			for _, ty := range up[:rnd.IntN(len(up)+1)] {
				if err := g.put(ty, g.held.Of(ty).Union(to.Of(ty))); err != nil {
					t.Fatal(err)
				}
			}
			if i%2 == 0 {
				var news []schema.Key
				set := g.held.Of(schema.Routes).Union(to.Of(schema.Routes))
				for _, r := range schema.Diff(g.held.Of(schema.Routes), set) {
					news = append(news, r.Key)
				}
				if len(g.held.Dangling()) == 0 && to.Of(schema.Clusters).Equal(g.held.Of(schema.Clusters)) {
					if err := g.putEach(schema.Routes, set, news); err != nil {
						t.Fatal(err)
					}
				}
			}
			g = groupOf(t, d, "edge")
			if dangling := g.Held().Dangling(); len(dangling) > 0 {
				t.Fatalf("half-way it holds what leads nowhere: %v", dangling)
			}
			to = random(t, rnd)
		}
		write(t, g, to)
		if diff := differ(groupOf(t, d, "edge").Held(), to); diff != "" {
			t.Fatalf("the files hold otherwise: %s", diff)
		}
	}
	left, err := filepath.Glob(filepath.Join(path, "edge", "*", "*.json"))
	if err != nil || len(left) != g.held.Of(schema.Endpoints).Len()+g.held.Of(schema.Routes).Len() {
		t.Errorf("%d files are left: %v", len(left), left)
	}
}

// The files of every example hold what the commit says, resource by resource.
func TestExamplesFromTheirFiles(t *testing.T) {
	for _, example := range []string{"shop", "edge", "raw", "grpc-mesh"} {
		t.Run(example, func(t *testing.T) {
			fleet, err := compile.Fleet(t.Context(), os.DirFS("../../examples/"+example), compile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			path := t.TempDir()
			d := openDir(t, path)
			for i := range fleet.Groups {
				to := fleet.Groups[i].Snapshot
				for _, ty := range []schema.Type{schema.Endpoints, schema.Secrets} {
					to = to.Replace(ty, fleet.Live.Of(ty).Filter(func(r *schema.Resource) bool { return to.Get(r.Key) != nil }))
				}
				name := fleet.Groups[i].Name
				write(t, groupOf(t, d, name), to)
				again := groupOf(t, d, name).Held()
				if diff := differ(again, to); diff != "" {
					t.Errorf("group %s: %s", name, diff)
				}
				for r := range again.All() {
					if !slices.Equal(r.Refs, to.Get(r.Key).Refs) {
						t.Errorf("%s: refers to %v, and before to %v", r.Key, r.Refs, to.Get(r.Key).Refs)
					}
				}
				r := &reader{folder: filepath.Join(path, fileName(name))}
				if err := r.look(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestSomebodyElseChangesAFile(t *testing.T) {
	one := schema.SnapshotOf(append(cluster(t, "a", 1), routes(t, "r", "a"), listener(t, "l", "r"))...)
	two := schema.SnapshotOf(append(cluster(t, "b", 1), routes(t, "r", "b"), listener(t, "l", "r"))...)
	for name, c := range map[string]struct {
		file string
		data string // empty: removed
		says string
	}{
		"edited":           {"clusters.json", `{"version_info": "1", "type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "control_plane": {"identifier": "sluice sha256:00"}, "resources": []}`, "it is not as sluice wrote it: its seal"},
		"not JSON":         {"routes.json", "resources: []", "it is not as sluice wrote it: invalid character"},
		"another type":     {"routes.json", `{"type_url": "x"}`, "it holds a x"},
		"a field":          {"listeners.json", `{"nonce": "1"}`, `unknown field "nonce"`},
		"gone":             {"clusters.json", "", "it is gone"},
		"one of a kind":    {"endpoints/a.json", "{}", "it is not as sluice wrote it"},
		"one that is gone": {"routes/r.json", "", "it is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			d := openDir(t, path)
			g := groupOf(t, d, "edge")
			write(t, g, one)
			file := filepath.Join(path, "edge", filepath.FromSlash(c.file))
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if c.data == "" {
				err = os.Remove(file)
			} else {
				err = os.WriteFile(file, []byte(c.data), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := tree(t, path)
			err = g.Write(two)
			for _, want := range []string{"cannot go on from the files of group edge: " + file, "put back what sluice wrote, or move the folder " + filepath.Join(path, "edge") + " away"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Write says %v, want %q", err, want)
				}
			}
			// A file of one resource is made again when it is lost; all else is told.
			if _, err = d.Group("edge"); name != "one that is gone" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("Group says %v, want %q", err, c.says)
			}
			if after := tree(t, path); !slices.Equal(after, before) {
				t.Errorf("the files were changed: %v, before %v", after, before)
			}
			if err := os.WriteFile(file, good, 0o644); err != nil { // put back
				t.Fatal(err)
			}
			write(t, g, two)
			if diff := differ(groupOf(t, d, "edge").Held(), two); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// tree lists files with their size.
func tree(t *testing.T, path string) (all []string) {
	t.Helper()
	err := filepath.Walk(path, func(p string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			all = append(all, fmt.Sprint(p, " ", info.Size(), " ", info.ModTime().UnixNano()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatIsNotOursStays(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	note := filepath.Join(path, "edge", "routes", "note.txt")
	for _, file := range []string{note, filepath.Join(path, "edge", tempPrefix+"1.tmp")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(t, groupOf(t, d, "edge"), schema.SnapshotOf(append(cluster(t, "a", 1), routes(t, "r", "a"))...))
	write(t, groupOf(t, d, "edge"), schema.Snapshot{})
	if _, err := os.Stat(note); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(path, "edge", tempPrefix+"*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestOneProcessWrites(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	if _, err := Open(path, ""); err == nil || !strings.Contains(err.Error(), "another sluice does") {
		t.Errorf("a second is told %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, ""); err == nil || !strings.Contains(err.Error(), "cannot write files into "+file) {
		t.Errorf("for a file it says %v", err)
	}
}

// Nodes may know the folder by another path, and by yet another after a restart.
func TestPathOnTheNodes(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path, "/etc/envoy/xds/")
	if err != nil {
		t.Fatal(err)
	}
	to := schema.SnapshotOf(cluster(t, "a", 1)...)
	write(t, groupOf(t, d, "a group"), to)
	d.Close()
	data, err := os.ReadFile(filepath.Join(path, "a%20group", "clusters.json"))
	if want := `"path": "/etc/envoy/xds/a%20group/endpoints/a.json"`; err != nil || !strings.Contains(string(data), want) {
		t.Errorf("%s, %v, want %s", data, err, want)
	}
	if diff := differ(groupOf(t, openDir(t, path), "a group").Held(), to); diff != "" {
		t.Error(diff)
	}
}

func TestWhatFilesCannotHold(t *testing.T) {
	g := groupOf(t, openDir(t, t.TempDir()), "edge")
	for want, r := range map[string]*schema.Resource{
		"nothing is known of endpoints/a yet": schema.NewLive(schema.Key{Type: schema.Endpoints, Name: "a"}),
		"envoy.config.route.v3.Vhds.config_source is taken from this server, which files cannot stand for": made(t, "r", &routev3.RouteConfiguration{Name: "r", Vhds: &routev3.Vhds{ConfigSource: served()}}),
		"virtual hosts that are asked for on demand":                                                       made(t, "r/h", &routev3.VirtualHost{Name: "h", Domains: []string{"*"}}),
	} {
		if err := g.Write(schema.SnapshotOf(r)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Write says %v, want %q", err, want)
		}
	}
	if g.Held().Len() != 0 {
		t.Error("something was written")
	}
}

func TestFileNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"a", "A b", "..", ".", "a/../b", "xdstp://x/y?a=b", strings.Repeat("x", 300), strings.Repeat("x", 301), "%2E", ".x"} {
		f := fileName(name)
		if strings.ContainsAny(f, "/\x00") || strings.HasPrefix(f, ".") || len(f) > longName || seen[f] {
			t.Errorf("%q is named %q", name, f)
		}
		seen[f] = true
	}
}

// FuzzFile reads anything as a file: what is read was sealed.
func FuzzFile(f *testing.F) {
	good, err := encode(schema.Clusters, "1", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"resources":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decode(schema.Clusters, data)
		if err != nil {
			return
		}
		if seal, err := d.seal(); err != nil || seal != d.ControlPlane.Identifier {
			t.Errorf("%s is taken for %s, %v", d.ControlPlane.Identifier, seal, err)
		}
	})
}

// A process that ended between the file of one resource and that of its type left
// the one ahead of the other, or none.
func TestFileOfAResourceThatIsBehind(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	one := schema.SnapshotOf(append(cluster(t, "a", 1), routes(t, "r", "a"), routes(t, "s", "a"))...)
	ahead := schema.SnapshotOf(append(cluster(t, "a", 1), routes(t, "r"))...)
	g := groupOf(t, d, "edge")
	write(t, g, one)
	file := func(name string) string { return filepath.Join(path, "edge", "routes", name+".json") }
	want := map[string]string{}
	for _, name := range []string{"r", "s"} {
		data, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = string(data)
	}
	if err := g.putEach(schema.Routes, ahead.Of(schema.Routes), []schema.Key{{Type: schema.Routes, Name: "r"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file("s")); err != nil {
		t.Fatal(err)
	}
	write(t, groupOf(t, d, "edge"), one)
	for name, was := range want {
		if data, err := os.ReadFile(file(name)); err != nil || string(data) != was {
			t.Errorf("%s is not written again: %s, %v", name, data, err)
		}
	}
}
