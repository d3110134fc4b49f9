package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

var noon = time.Date(2026, 3, 14, 12, 4, 31, 0, time.Local)

const (
	commitA = "9be01d4000000000000000000000000000000000"
	commitB = "3f2a91c000000000000000000000000000000000"
)

// haltedFleet is the fleet of the design: edge has finished, and one node of
// mesh-a said no.
func haltedFleet() *reconcile.Status {
	nack := &schema.Nack{Type: schema.Listeners, Nonce: "6", Words: "listener 'ingress': duplicate filter chain match", Names: []string{"ingress"}, At: noon.Add(-72 * time.Second)}
	stages := func(acked ...int) (out []reconcile.StageStatus) {
		for i, k := range []schema.StageKind{schema.Make, schema.MakeListeners, schema.SwitchRoutes, schema.Prune} {
			out = append(out, reconcile.StageStatus{Stage: k, Acked: acked[i], Of: acked[4]})
		}
		return out
	}
	return &reconcile.Status{
		FormatVersion: reconcile.StatusFormat, At: noon, Seq: 100,
		Source: reconcile.SourceStatus{URL: "/fleet", Branch: "main", Commit: commitB, Author: "A. Author <a@example.com>", Subject: "api: canary v2 at 10%"},
		Rollouts: []reconcile.Rollout{
			{Number: 41, Commit: commitA, Author: "B. Author <b@example.com>", At: noon.Add(-2 * time.Hour)},
			{Number: 42, Commit: commitB, Author: "A. Author <a@example.com>", At: noon.Add(-10 * time.Minute)},
		},
		Groups: []reconcile.GroupStatus{
			{
				Name: "edge", Rollout: 42, Wave: reconcile.Wave{Index: 1, Count: 1}, State: reconcile.Converged, Base: commitB, Connected: 12, AtTarget: 12, Done: 8,
				Stages: stages(12, 12, 12, 8, 12), OpenedAt: noon.Add(-10 * time.Minute), SettledAt: noon.Add(-9 * time.Minute),
			},
			{
				Name: "mesh-a", Rollout: 42, Wave: reconcile.Wave{Index: 1, Count: 1}, State: reconcile.Halted, Base: commitA, Target: commitB, Connected: 39, Expected: 1, Nacks: 1, Client: schema.GRPC,
				Stages: stages(40, 31, 0, 0, 40), OpenedAt: noon.Add(-3 * time.Minute), Why: "listeners refused",
				Halt: &reconcile.Halt{
					Node: "mesh-a-17", Stage: "listeners", Cause: "listeners refused", Nack: nack, Commit: commitB, At: noon.Add(-72 * time.Second),
					Origins: []schema.Origin{{Kind: "listener", Name: "ingress", Pos: schema.Pos{File: "fleet/listeners.cue", Line: 41}}},
				},
			},
		},
	}
}

func haltedNodes() *nodesDocument {
	nack := haltedFleet().Groups[1].Halt.Nack
	doc := &nodesDocument{Total: 40}
	add := func(n nodeRow) {
		n.Group, n.Commit, n.AckedAt = "mesh-a", commitB, noon.Add(-12*time.Second)
		doc.Nodes = append(doc.Nodes, n)
	}
	add(nodeRow{ID: "mesh-a-17", State: reconcile.NodeNacked, Stage: "listeners", Nack: nack, Why: "listeners refused: " + nack.Words})
	for i := range 8 {
		add(nodeRow{ID: fmt.Sprintf("mesh-a-%02d", i+1), State: reconcile.NodeBehind, Stage: "listeners", Why: "held: its group is halted by mesh-a-17"})
	}
	for i := range 31 {
		add(nodeRow{ID: fmt.Sprintf("mesh-a-%02d", i+18), State: reconcile.NodeAtTarget, Stage: "listeners"})
	}
	return doc
}

func haltedNode() *nodeDocument {
	nack := haltedFleet().Groups[1].Halt.Nack
	origin := haltedFleet().Groups[1].Halt.Origins[0]
	return &nodeDocument{
		nodeRow: nodeRow{ID: "mesh-a-17", Group: "mesh-a", State: reconcile.NodeNacked, UserAgent: "envoy 1.36", Commit: commitB, Nack: nack},
		Sessions: []nodeSession{{
			ID: 17, Peer: "10.0.0.17:41234", Connected: noon.Add(-100 * time.Hour), Commit: commitB, Stage: "listeners", Nack: nack,
			Origins: []schema.Origin{origin},
			Types: []nodeType{
				{Type: schema.Clusters, Acked: "d003aaaa", Served: "d003aaaa", Desired: "d003aaaa", State: "acked", Held: 3},
				{
					Type: schema.Listeners, Acked: "77b0aaaa", Served: "8c1faaaa", Desired: "8c1faaaa", State: "nacked", Held: 1,
					Resources: []nodeResource{{Name: "ingress", Acked: "77b0", Served: "8c1f", Desired: "8c1f", State: "nacked", Origin: &origin, Changes: []resourceChange{
						{`filter_chains["https"].filter_chain_match.server_names`, `["api.example.com"]`, `["*.example.com"]`},
					}}},
				},
				{Type: schema.Routes, Acked: "10d2aaaa", Served: "10d2aaaa", Desired: "5ee9aaaa", State: "later stage", Held: 1},
			},
		}},
	}
}

func press(m *topModel, keys ...string) {
	for _, k := range keys {
		code, text := []rune(k)[0], k
		switch k {
		case "enter":
			code, text = tea.KeyEnter, ""
		case "esc":
			code, text = tea.KeyEscape, ""
		case "up":
			code, text = tea.KeyUp, ""
		case "down":
			code, text = tea.KeyDown, ""
		case "end":
			code, text = tea.KeyEnd, ""
		case "backspace":
			code, text = tea.KeyBackspace, ""
		}
		m.Update(tea.KeyPressMsg{Code: code, Text: text})
	}
}

// haltedModel shows the fleet of the design at one of the screens.
func haltedModel(screen topScreen, width, height int) *topModel {
	m := newTopModel(nil)
	m.now = noon
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(statusMsg{haltedFleet()})
	m.Update(eventsMsg{
		{Seq: 98, At: noon.Add(-3 * time.Minute), Kind: reconcile.EventRollout, Group: "mesh-a", Commit: commitB, Rollout: 42, Words: "begins, from 9be01d4"},
		{Seq: 99, At: noon.Add(-80 * time.Second), Kind: reconcile.EventStage, Group: "mesh-a", Commit: commitB, Rollout: 42, Words: "listeners 31/40"},
		{Seq: 100, At: noon.Add(-72 * time.Second), Kind: reconcile.EventHalted, Group: "mesh-a", Node: "mesh-a-17", Commit: commitB, Rollout: 42, Words: haltedFleet().Groups[1].Halt.Text()},
	})
	if screen >= rolloutScreen {
		press(m, "enter")
		m.Update(nodesMsg{"mesh-a", haltedNodes(), nil})
	}
	if screen >= nodeScreen {
		press(m, "enter")
		m.Update(nodeMsg{"mesh-a-17", haltedNode(), nil})
		press(m, "down")
	}
	return m
}

// drawn is the screen without colour.
func drawn(m *topModel) string {
	var b bytes.Buffer
	w := &colorprofile.Writer{Forward: &b, Profile: colorprofile.NoTTY}
	fmt.Fprint(w, m.View().Content)
	return b.String() + "\n"
}

// Each screen at three sizes, as files of testdata/top.
func TestTopGolden(t *testing.T) {
	for name, screen := range map[string]topScreen{"fleet": fleetScreen, "rollout": rolloutScreen, "node": nodeScreen} {
		for _, size := range [][2]int{{40, 10}, {80, 24}, {120, 40}} {
			golden(t, fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), drawn(haltedModel(screen, size[0], size[1])))
		}
	}
	m := haltedModel(fleetScreen, 80, 24)
	press(m, "?")
	golden(t, "help-80x24", drawn(m))
	m = haltedModel(fleetScreen, 80, 24)
	m.Update(askedMsg{asked: topAsked{
		reconcile.Intent{Verb: reconcile.Abort, Group: "mesh-a", Commit: commitB},
		&reconcile.Outcome{Verb: reconcile.Abort, DryRun: true, Groups: []reconcile.GroupOutcome{{Group: "mesh-a", Commit: commitB, Nodes: 40, Words: "3f2a91c is parked, and every node walks back to 9be01d4"}}},
	}})
	golden(t, "confirm-80x24", drawn(m))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "top", name+".txt")
	if *update {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s is not what is drawn (-want +got), see -update:\n%s", file, diff)
	}
}

// At any size the screen is filled, and never overfull; below the least it says so.
func TestTopSizes(t *testing.T) {
	for _, screen := range []topScreen{fleetScreen, rolloutScreen, nodeScreen} {
		for width := 40; width <= 300; width += 13 {
			for height := 10; height <= 80; height += 7 {
				lines := haltedModel(screen, width, height).lines()
				if len(lines) != height {
					t.Fatalf("screen %d at %d×%d has %d lines", screen, width, height, len(lines))
				}
				for i, l := range lines {
					if w := ansi.StringWidth(l); w > width {
						t.Errorf("screen %d at %d×%d: line %d is %d wide: %q", screen, width, height, i, w, l)
					}
				}
			}
		}
	}
	for _, size := range [][2]int{{39, 24}, {80, 9}, {1, 1}, {0, 0}} {
		lines := haltedModel(fleetScreen, size[0], size[1]).lines()
		if size[0] > 30 && !strings.Contains(strings.Join(lines, " "), "sluice top needs 40×10") || len(lines) > size[1] {
			t.Errorf("at %v: %q", size, lines)
		}
	}
}

// The colours are the terminal's 16, and nothing is said by colour alone.
func TestTopColours(t *testing.T) {
	content := haltedModel(nodeScreen, 120, 40).View().Content
	for _, part := range strings.Split(content, "\x1b[")[1:] {
		code, _, _ := strings.Cut(part, "m")
		if !strings.Contains(" 0 1 2 7 31 32 33 34 36 ", " "+code+" ") {
			t.Errorf("an escape sequence that is none of the 16 colours: %q", code)
		}
	}
	m := haltedModel(fleetScreen, 120, 40)
	m.status.Groups[1].Halt.Nack.Words = "evil \x1b[2J\x1b]0;title\x07 words\u202e"
	if got := drawn(m); !strings.Contains(got, "evil ·[2J·]0;title· words") {
		t.Errorf("words of a node reach the terminal:\n%s", got)
	}
}

func TestTopKeys(t *testing.T) {
	m := haltedModel(fleetScreen, 120, 30)
	rows := m.fleetRows()
	if rows[0].Name != "mesh-a" {
		t.Errorf("trouble does not come first: %s", rows[0].Name)
	}
	press(m, "s")
	if rows := m.fleetRows(); rows[0].Name != "edge" {
		t.Errorf("sorted by name %s comes first", rows[0].Name)
	}
	press(m, "s", "/", "e", "d", "g", "e")
	if rows := m.fleetRows(); len(rows) != 1 || rows[0].Name != "edge" || !m.typing {
		t.Errorf("the filter leaves %d", len(rows))
	}
	press(m, "q", "backspace", "enter", "enter")
	if m.screen != rolloutScreen || m.group != "edge" {
		t.Errorf("enter opened screen %d, group %q", m.screen, m.group)
	}
	press(m, "esc", "esc")
	if m.screen != fleetScreen || m.lists[fleetScreen].filter != "" {
		t.Errorf("esc left screen %d, filter %q", m.screen, m.lists[fleetScreen].filter)
	}
	press(m, "down", "down", "down", "up", "end")
	if at := m.at(2); at != 1 {
		t.Errorf("the cursor is at %d", at)
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not quit")
	} else if _, ok := cmd().(tea.QuitMsg); !ok {
		t.Error("q does not quit")
	}
}

// An intent is done after a yes, and after nothing else; its answer is shown.
func TestTopConfirm(t *testing.T) {
	m := haltedModel(fleetScreen, 120, 30)
	ask := askedMsg{asked: topAsked{reconcile.Intent{Verb: reconcile.Retry, Group: "mesh-a"}, &reconcile.Outcome{Verb: reconcile.Retry, Groups: []reconcile.GroupOutcome{{Group: "mesh-a", Commit: commitB, Nodes: 40}}}}}
	m.Update(ask)
	for _, want := range []string{"mesh-a at 3f2a91c, 40 nodes", "retry 1 group, 40 nodes?"} {
		if !strings.Contains(drawn(m), want) {
			t.Errorf("no %q in\n%s", want, drawn(m))
		}
	}
	press(m, "A")
	if m.asked != nil || m.said != "nothing was done" {
		t.Errorf("another key than y: %+v, %q", m.asked, m.said)
	}
	m.Update(ask)
	press(m, "y")
	if m.asked != nil || m.said != "retry …" {
		t.Errorf("yes: %+v, %q", m.asked, m.said)
	}
	m.Update(doneMsg{out: &reconcile.Outcome{Verb: reconcile.Retry, Groups: []reconcile.GroupOutcome{{Group: "mesh-a", Words: "3f2a91c is tried again"}}}})
	if !strings.Contains(drawn(m), "retry mesh-a: 3f2a91c is tried again") {
		t.Errorf("the answer is not shown:\n%s", drawn(m))
	}
	m.Update(askedMsg{err: &saidNo{409, "group mesh-a is not paused"}})
	if !strings.Contains(drawn(m), "group mesh-a is not paused") {
		t.Errorf("the refusal is not shown:\n%s", drawn(m))
	}
}

// A server that went away leaves what was last seen, and says that it is old.
func TestTopAway(t *testing.T) {
	m := haltedModel(fleetScreen, 100, 24)
	m.Update(awayMsg{"start one with sluice serve"})
	if got := drawn(m); !strings.Contains(got, "○ away") || !strings.Contains(got, "what is shown is old") || !strings.Contains(got, "mesh-a") {
		t.Error(got)
	}
	m.Update(statusMsg{haltedFleet()})
	if got := drawn(m); !strings.Contains(got, "● live") || strings.Contains(got, "old") {
		t.Error(got)
	}
}

// bigFleet is 100 groups and 10,000 nodes.
func bigFleet() (*reconcile.Status, *nodesDocument) {
	st, doc := haltedFleet(), &nodesDocument{Total: 10000}
	for i := range 100 {
		g := st.Groups[1]
		g.Name = fmt.Sprintf("group-%03d", i)
		g.Connected, g.AtTarget = 100, i
		st.Groups = append(st.Groups, g)
	}
	for i := range 10000 {
		doc.Nodes = append(doc.Nodes, nodeRow{ID: fmt.Sprintf("node-%05d", i), Group: "mesh-a", State: reconcile.NodeBehind, Stage: "routes", Why: "waits for the ACK of routes"})
	}
	return st, doc
}

func BenchmarkTopRedraw(b *testing.B) {
	st, doc := bigFleet()
	for _, screen := range []topScreen{fleetScreen, rolloutScreen} {
		m := haltedModel(screen, 200, 60)
		m.Update(statusMsg{st})
		m.nodes = doc
		b.Run(fmt.Sprintf("screen %d", screen), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.View()
			}
		})
	}
}
