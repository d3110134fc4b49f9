package planner

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// A warm route sends nothing: no route line shows it, no traffic changes by it.
func TestP06Warm(t *testing.T) {
	p, _ := plan(schema.GRPC, before, after)
	if diff := cmp.Diff([]string{"make", "warm", "routes", "cool", "prune"}, kinds(p)); diff != "" {
		t.Fatal(diff)
	}
	table := schema.Key{Type: schema.Routes, Name: "r"}
	for i, sends := range []string{1: "a", 2: "b", 3: "b"} {
		if i == 0 {
			continue
		}
		lines, err := envoy.Routes(p.At(i).Get(table))
		if err != nil || len(lines) != 1 || lines[0].Weights[sends] != 1 {
			t.Errorf("at %d: %v %v", i, lines, err)
		}
	}
	for i := range p.Stages {
		impact, err := Impact(p.At(i-1), p.At(i))
		if moved := len(impact) > 0; err != nil || moved != (p.Stages[i].Kind == schema.SwitchRoutes) {
			t.Errorf("at %d %s traffic moves: %v %v", i, p.Stages[i].Kind, moved, err)
		}
	}
	edge := func(i int, cluster string) schema.Edge {
		for _, ref := range p.At(i).Get(table).Refs {
			if ref.Name == cluster {
				return ref.Edge
			}
		}
		return schema.Optional
	}
	if edge(1, "b") != schema.Child || edge(2, "b") != schema.Traffic || edge(2, "a") != schema.Child || edge(3, "a") != schema.Optional {
		t.Error("references of warm routes are not children")
	}
}

// An Envoy asks for clusters by itself: nothing needs warming.
func TestP06NotForEnvoy(t *testing.T) {
	p, _ := plan(schema.Envoy, before, after)
	if diff := cmp.Diff([]string{"make", "routes", "prune"}, kinds(p)); diff != "" {
		t.Error(diff)
	}
}

// Each case begins with a route to a; gains are the endpoints that must be usable.
func TestP14Gains(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		want           []string
	}{
		{"a new cluster", before, after, []string{"b"}},
		{"more weight", "cluster a\ncluster b\nroute r: x.com / -> a 90, b 10\n", "cluster a\ncluster b\nroute r: x.com / -> a 80, b 20\n", []string{"b"}},
		{
			"less weight, and so more for the other", "cluster a\ncluster b\nroute r: x.com / -> a 9, b 1\n",
			"cluster a\ncluster b\nroute r: x.com / -> a 9, b 9\n",
			[]string{"b"},
		},
		{"the same ratio", "cluster a\ncluster b\nroute r: x.com / -> a 9, b 1\n", "cluster a\ncluster b\nroute r: x.com / -> a 90, b 10\n", nil},
		{"another virtual host's name", before, "cluster a\nroute r: v=x.com / -> a\nlistener l -> r\n", nil},
		{"a domain out of a wildcard", "cluster a\nroute r: * / -> a\n", "cluster a\nroute r: x.com / -> a\nroute r: * / -> a\n", nil},
		{
			"a path out of a prefix", "cluster a\ncluster b\nroute r: * / -> a\n",
			"cluster a\ncluster b\nroute r: * /b -> b\nroute r: * /a -> a\nroute r: * / -> a\n",
			[]string{"b"},
		},
		{"a route behind one that takes all", "cluster a\ncluster b\nroute r: * / -> a\n", "cluster a\ncluster b\nroute r: * / -> a\nroute r: * /b -> b\n", nil},
		{"a route that is removed leaves its requests to another", "cluster a\ncluster b\nroute r: * /b -> b\nroute r: * / -> a\n", "cluster a\ncluster b\nroute r: * / -> a\n", []string{"a"}},
		{"a mirror", "cluster a\ncluster b\nroute r: * / -> a\n", "cluster a\ncluster b\nroute r: * / -> a mirror b\n", nil},
		{"a listener that sends by itself", "cluster a\nlistener l -> cluster a\n", "cluster a\ncluster b\nlistener l -> cluster b\n", []string{"b"}},
		{"a listener that changes otherwise", "cluster a\nlistener l -> cluster a\n", "cluster a\nlistener l@2 -> cluster a\n", nil},
		{"no endpoints of ours", before, "cluster b dns\nroute r: x.com / -> b\nlistener l -> r\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := plan(schema.Envoy, c.from, c.to)
			var got []string
			for i := range p.Stages {
				for _, w := range p.Stages[i].Wants {
					if w.Usable {
						got = append(got, w.Name)
					}
				}
			}
			if !slices.Equal(c.want, got) {
				t.Errorf("want %v, got %v", c.want, got)
			}
		})
	}
}

func TestP14EmptyCluster(t *testing.T) {
	key := schema.Key{Type: schema.Endpoints, Name: "b"}
	for hosts, want := range map[string][]schema.Key{"empty": {key}, "1 host": nil} {
		p, live := plan(schema.Envoy, before, canary+"endpoints b "+hosts)
		_, hazards := Prove(p, live)
		var got []schema.Key
		for _, h := range hazards {
			if h.Code != "empty-cluster" || h.Severity != Blocking {
				t.Errorf("hazard %+v", h)
			}
			got = append(got, h.Key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", hosts, diff)
		}
	}
}

// A host in any member of an aggregate will do, however deep.
func TestP14Aggregate(t *testing.T) {
	_, live := universe.snapshot("endpoints a empty\nendpoints b 1 host\n")
	for _, c := range []struct {
		clusters string
		want     bool
	}{
		{"cluster b\ncluster top -> b", true},
		{"cluster a\ncluster top -> a", false},
		{"cluster a\ncluster b\ncluster top -> a, b", true},
		{"cluster a\ncluster b\ncluster mid -> a, b\ncluster top -> mid", true},
		{"cluster a\ncluster mid -> a\ncluster top -> mid", false},
		{"cluster a\ncluster d dns\ncluster top -> a, d", true},
		{"cluster top -> top", false},
	} {
		s, _ := universe.snapshot(c.clusters)
		if got := usable(s, live, schema.Key{Type: schema.Clusters, Name: "top"}, nil); got != c.want {
			t.Errorf("%q: %v", c.clusters, got)
		}
	}
}

func TestP09Levels(t *testing.T) {
	for _, c := range []struct {
		client   schema.Client
		from, to string
		want     []Level
	}{
		{schema.Envoy, before, after, []Level{Warmed, Acked, Timed}},
		{schema.GRPC, before, after, []Level{Acked, Acked, Acked, Acked, Acked}},
		{schema.Envoy, before, "cluster a\nroute r: * / -> header x\nlistener l -> r\n", []Level{Unproven}},
	} {
		p, live := plan(c.client, c.from, c.to)
		proof, _ := Prove(p, live)
		if diff := cmp.Diff(c.want, proof.Levels); diff != "" {
			t.Errorf("%v: %s", kinds(p), diff)
		}
	}
}

// A dangling reference of a target is told with the stages that have it.
func TestP02OpenIsTold(t *testing.T) {
	p, live := plan(schema.Envoy, "cluster a\n", "cluster a\nroute r: * / -> nobody\n")
	proof, _ := Prove(p, live)
	if len(proof.Open) != 1 || proof.Open[0].To.Name != "nobody" || proof.Open[0].Stage != schema.MakeListeners {
		t.Errorf("open: %+v", proof.Open)
	}
	p, live = plan(schema.GRPC, before, "cluster a\nlistener l -> gone\n")
	if proof, _ = Prove(p, live); len(proof.Open) == 0 || proof.Open[0].To.Name != "gone" {
		t.Errorf("open: %+v", proof.Open)
	}
}

// What a table was made to name stays so until the tables cool, through a second
// commit.
func TestP06NamesStay(t *testing.T) {
	p, _ := plan(schema.GRPC, before, after)
	warmed, _ := universe.snapshot(before)
	third, _ := universe.snapshot("cluster c\nroute r: x.com / -> c\nlistener l -> r\n")
	again := NewPath(settled(schema.State{Acked: warmed}, p, 2, false), &schema.Target{Client: schema.GRPC, Snapshot: third, Drain: -1})
	table := schema.Key{Type: schema.Routes, Name: "r"}
	for i, want := range []string{1: "  x.com: a, warm b c", 2: "  x.com: c, warm a b", 3: "  x.com: c"} {
		if got := hostWords(again.At(i).Get(table)); i > 0 && got != want {
			t.Errorf("at %d %s: %q, want %q", i, again.Stages[i].Kind, got, want)
		}
	}
}

func TestDomains(t *testing.T) {
	var d domains
	for i, names := range [][]string{
		{"*"}, {"a.*", "*.com"}, {"www.*", "*.example.com"}, {"A.Example.com", "b.example.com"}, {"b.example.com"},
	} {
		d.add(i, names)
	}
	d.sort()
	for name, want := range map[string]int{
		"a.example.com": 3, "b.example.com": 3, "c.example.com": 2, "example.com": 1, "x.com": 1, "a.org": 1, "www.org": 2,
		"www.x.com": 1, "org": 0, "*": 0, "*.x.com": 1, "*.example.com": 2, "*.org": 0, "a.b.*": 1, "b.*": 0,
	} {
		if got := d.find(name); got != want {
			t.Errorf("%s goes to %d, want %d", name, got, want)
		}
	}
	if got := (&domains{}).find("x.com"); got != -1 {
		t.Errorf("no virtual host: %d", got)
	}
}

// What a path sends, by type: the whole of it for state of the world, what
// changes for delta, and endpoints again after their cluster changed.
func TestP12Cost(t *testing.T) {
	p, live := plan(schema.Envoy, "cluster a\ncluster x\nroute r: x.com / -> a\nlistener l -> r\n",
		"cluster a\ncluster b\ncluster x@2\nroute r: x.com / -> b\nlistener l -> r\n")
	size := func(t schema.Type, names ...string) (n int) {
		for _, name := range names {
			k := schema.Key{Type: t, Name: name}
			if r := p.Target.Snapshot.Get(k); r != nil && r.Body != nil {
				n += len(r.Chunk())
			} else {
				n += len(live.Get(k).Chunk())
			}
		}
		return n
	}
	want := []TypeCost{
		{schema.Clusters, 1, size(schema.Clusters, "b", "x"), size(schema.Clusters, "a", "b", "x")},
		{schema.Endpoints, 1, size(schema.Endpoints, "b", "x"), size(schema.Endpoints, "b", "x")},
		{schema.Routes, 1, size(schema.Routes, "r"), size(schema.Routes, "r")},
	}
	if diff := cmp.Diff(want, CostOf(p, live).Types); diff != "" {
		t.Error(diff)
	}
	// Where weight shifts alone, endpoints are waited for, and not sent again.
	p, live = plan(schema.Envoy, "cluster a\ncluster b\nroute r: x.com / -> a 90, b 10\nlistener l -> r\n",
		"cluster a\ncluster b\nroute r: x.com / -> a 50, b 50\nlistener l -> r\n")
	want = []TypeCost{{schema.Routes, 1, size(schema.Routes, "r"), size(schema.Routes, "r")}}
	if diff := cmp.Diff(want, CostOf(p, live).Types); diff != "" {
		t.Error(diff)
	}
}

// What is equal but for its name was renamed, whatever carries the name along;
// it is added, traffic moves, and the old one is pruned.
func TestP05Renames(t *testing.T) {
	from, _ := universe.snapshot("cluster a eds all\ncluster gone@2\ncluster twin\ncluster both -> a\nroute r: x.com / -> a\nlistener l port=80 -> r\n")
	to, _ := universe.snapshot("cluster b eds all\ncluster new@3\ncluster one\ncluster other\ncluster both -> b\nroute s: x.com / -> a\nroute t: x.com / -> b\nlistener m port=80 -> r\n")
	key := func(t schema.Type, name string) schema.Key { return schema.Key{Type: t, Name: name} }
	want := []Rename{
		{key(schema.Clusters, "a"), key(schema.Clusters, "b")},
		{key(schema.Clusters, "twin"), key(schema.Clusters, "one")},
		{key(schema.Listeners, "l"), key(schema.Listeners, "m")},
		{key(schema.Routes, "r"), key(schema.Routes, "s")},
	}
	if diff := cmp.Diff(want, Renames(from, to)); diff != "" {
		t.Error(diff)
	}
	p, _ := plan(schema.Envoy, "cluster a eds all\nroute r: x.com / -> a\nlistener l -> r\n", "cluster b eds all\nroute r: x.com / -> b\nlistener l -> r\n")
	if diff := cmp.Diff([]string{"make", "routes", "prune"}, kinds(p)); diff != "" {
		t.Error(diff)
	}
}

// Impact tells where each class of requests goes, before and after; a service that
// is renamed at each change stays where it is.
func TestP11Impact(t *testing.T) {
	from, _ := universe.snapshot("cluster a~0123abcd\ncluster b\nroute r: x.com /gone -> b\nroute r: x.com / x-a:b -> b\nroute r: x.com / -> a~0123abcd 90, b 10\n")
	to, _ := universe.snapshot("cluster a~ffff0000\ncluster b\nroute r: x.com / x-a:b -> status 403\nroute r: x.com / -> a~ffff0000 90, b 10\n")
	changes, err := Impact(from, to)
	if err != nil {
		t.Fatal(err)
	}
	want := "r x.com prefix \"/\", header x-a = \"b\": b 100% => status 403\nr x.com prefix \"/gone\": b 100% => a 90%, b 10%\n"
	if diff := cmp.Diff(want, trafficWords(changes)); diff != "" {
		t.Error(diff)
	}
	if same, err := Impact(from, from); err != nil || len(same) > 0 {
		t.Error(same, err)
	}
}

const (
	left  = "cluster a\ncluster b\nroute t: x.com / -> a\nroute r: x.com / -> b\nlistener l -> t\n"
	taken = "cluster a\ncluster b\nroute t: x.com / -> a\nroute r: x.com / -> b\nlistener l -> r\n"
)

// A client that came back reports a warm table, which proves nothing of what that
// names: it is ready before a listener takes another table.
func TestG09WhatAListenerComesToIsReady(t *testing.T) {
	p, _ := plan(schema.GRPC, left, taken)
	i := slices.Index(kinds(p), "warm")
	if i < 0 {
		t.Fatalf("the path is\n%s", pathWords(p))
	}
	rest := NewPath(schema.State{Acked: p.At(i)}, p.Target)
	listeners := slices.Index(kinds(rest), "listeners")
	if listeners < 0 || !slices.ContainsFunc(rest.Stages[:listeners], func(st schema.Stage) bool {
		return slices.ContainsFunc(st.Wants, func(w schema.Want) bool { return w.Type == schema.Endpoints && w.Name == "b" })
	}) {
		t.Errorf("the path is\n%s", pathWords(rest))
	}
}

// A client says by which listener it sends, and not yet what its table is: that may
// be any that it was given, and is made warm as if it were acknowledged.
func TestG09ATableThatMayBeLeftIsWarm(t *testing.T) {
	from, _ := universe.snapshot(left)
	to, _ := universe.snapshot(taken)
	said := from.Replace(schema.Routes, schema.Set{})
	p := NewPath(schema.State{Acked: said, Maybe: to}, &schema.Target{Client: schema.GRPC, Snapshot: to, Drain: -1})
	warm, listeners := slices.Index(kinds(p), "warm"), slices.Index(kinds(p), "listeners")
	if warm < 0 || listeners < warm {
		t.Fatalf("the path is\n%s", pathWords(p))
	}
	if !refers(p.At(warm).Get(schema.Key{Type: schema.Routes, Name: "t"}), schema.Key{Type: schema.Clusters, Name: "b"}) {
		t.Errorf("the table that the listener leaves does not name what comes:\n%s", pathWords(p))
	}
}
