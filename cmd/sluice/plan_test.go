package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// What a compiled fleet never shows, a document may: an open reference, several
// bases, more fields than a screen holds.
func TestPlanText(t *testing.T) {
	zero := 0
	change := planChange{
		Action: actionChange, Kind: "resource", Name: "own", Pos: schema.Pos{File: "a.cue", Line: 7, Col: 2},
		Resources: []planResource{{Key: schema.Key{Type: schema.Clusters, Name: "own"}}},
	}
	for i := range maxFields + 2 {
		change.Fields = append(change.Fields, planField{schema.Clusters, fmt.Sprintf("f%d", i), "a", "b"})
	}
	doc := &planDocument{
		FormatVersion: planFormat,
		Base:          planRevision{Branch: "main", From: "server"},
		To:            planRevision{Commit: "3f2a91c0000000000000", From: "--to"},
		Nodes:         &planNodes{52, 50, 2},
		Groups: []planGroup{
			{Name: "edge", Base: "9be01d40000000000000", Path: &zero, Nodes: &planNodes{12, 12, 0}},
			{Name: "mesh", Base: "1111111000000000000", Nodes: &planNodes{40, 38, 2}},
		},
		Paths: []planPath{{Groups: []string{"edge"}, Stages: []planStage{{Stage: schema.Make, Changes: []planChange{change}}}}},
		Proof: planProof{Open: []planOpening{{
			Groups: []string{"edge"}, Stage: schema.Make, From: change.Resources[0].Key,
			To: schema.Key{Type: schema.Secrets, Name: "tls"}, Pos: change.Pos,
		}}},
		Summary: planSummary{Change: 1, Stages: 1, Nodes: &zero},
	}
	var out bytes.Buffer
	must(t, printPlan(&out, doc, false))
	wants(t, out.String(),
		`^main 9be01d4, 1111111 → 3f2a91c        2 groups, 52 nodes: 50 acked, 2 disconnected$`,
		`^Group edge  \(envoy\)$`,
		`^  ~ resource own  \(cluster\)   a.cue:7$`,
		`^      … 2 more fields; -o json has all$`,
		`^Traffic  goes where it went$`,
		`^Proof    NOT closed:$`,
		`^           at stage make, clusters/own refers to secrets/tls, which is not there  a.cue:7$`,
		`^Groups   mesh stays as it is$`,
	)
	if got, want := doc.refusal(), "no safe path: at stage make clusters/own refers to secrets/tls, which is not there"; got != want {
		t.Errorf("refusal: got %q, want %q", got, want)
	}
	out.Reset()
	must(t, printPlan(&out, doc, true))
	wants(t, out.String(), "^  \x1b\\[33m~\x1b\\[0m resource")
	if _, err := json.Marshal(doc); err != nil {
		t.Error(err)
	}
}

func TestTrafficWords(t *testing.T) {
	from := schema.SnapshotOf(schema.NewLive(schema.Key{Type: schema.Clusters, Name: "a"}))
	to := func(w ...any) planAnswer {
		a := planAnswer{Weights: map[string]uint32{}}
		for i := 0; i < len(w); i += 2 {
			a.Weights[w[i].(string)] = uint32(w[i+1].(int))
		}
		return a
	}
	for _, c := range []struct {
		before, after planAnswer
		want          string
	}{
		{to("a", 1), to("a", 9, "b", 1), "10% moves to b (new)"},
		{to("a", 9, "b", 1), to("a", 1, "b", 1), "40% moves to b (new)"},
		{to("a", 1), to("b", 1), "100% moves to b (new); nothing is left for a"},
		{to("a", 2, "b", 1), to("a", 1), "33.3% moves to a; nothing is left for b"},
		{to("a", 1), planAnswer{Status: 503}, "a becomes status 503"},
		{planAnswer{Redirect: "https://{host}{path}", Status: 301}, to("a", 1), "redirect to https://{host}{path} (301) becomes a"},
		{planAnswer{}, to("a", 3, "b", 1), "a 404 becomes a 75%, b 25%"},
		{to("a", 1), planAnswer{Other: "a plugin chooses the cluster"}, "a becomes a plugin chooses the cluster"},
		{to("a", 1), planAnswer{}, "a becomes a 404"},
	} {
		if got := trafficWords(c.before, c.after, from); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for match, want := range map[string]string{
		`prefix "/"`:                        "h/",
		`path "/x", header :method = "GET"`: `h/x (exact), header :method = "GET"`,
		`regex "/a.*"`:                      `h  regex "/a.*"`,
		`connect`:                           "h  connect",
	} {
		if got := requestWords("h", match); got != want {
			t.Errorf("%s: got %q, want %q", match, got, want)
		}
	}
}

// Of many classes that change alike a few stand for all; JSON has them.
func TestTrafficRows(t *testing.T) {
	p := planText{doc: &planDocument{}}
	for i := range 9 {
		summary := "10% moves to b"
		if i == 5 {
			summary = "a becomes a 404"
		}
		p.doc.Traffic = append(p.doc.Traffic, planTraffic{Table: "web", Hosts: []string{"h"}, Match: fmt.Sprintf("prefix \"/%d\"", i), Summary: summary})
	}
	got := fmt.Sprint(p.trafficRows())
	want := "[[h/0 10% moves to b] [h/1 10% moves to b] [h/2 10% moves to b] [… and 5 more 10% moves to b] [h/5 a becomes a 404]]"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// The words of gates are the planner's, in the document too.
func TestPlanJSON(t *testing.T) {
	data, err := json.Marshal(planProof{Closed: true, Gates: []planner.Level{planner.Warmed, planner.Timed}})
	must(t, err)
	if got, want := string(data), `{"closed":true,"gates":["warm","timed"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
