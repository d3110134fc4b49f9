package planner

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

var update = flag.Bool("update", false, "rewrite the golden cases")

// outputs are the sections that a case ends with.
var outputs = [...]string{"path.txt", "proof.txt", "traffic.txt"}

// Each archive holds what a session may hold, its target, and what comes of
// them. The comment at its head says what to look for.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d cases: %v", len(files), err)
	}
	var w world
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, &w, file) })
	}
}

func golden(t *testing.T, w *world, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := readCase(t, w, ar)
	path := NewPath(c.from, c.to)
	proof, hazards := Prove(path, c.live)
	impact, err := Impact(path.From, c.to.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{
		"path.txt": pathWords(path), "proof.txt": proofWords(proof, hazards), "traffic.txt": trafficWords(impact),
	}
	want := map[string]string{}
	ar.Files = slices.DeleteFunc(ar.Files, func(f txtar.File) bool {
		if slices.Contains(outputs[:], f.Name) {
			want[f.Name] = string(f.Data)
			return true
		}
		return false
	})
	if *update {
		for _, name := range outputs {
			if got[name] != "" {
				ar.Files = append(ar.Files, txtar.File{Name: name, Data: []byte(got[name])})
			}
		}
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, name := range outputs {
		if diff := cmp.Diff(want[name], got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

type planCase struct {
	from schema.State
	to   *schema.Target
	live schema.Snapshot
}

func readCase(t *testing.T, w *world, ar *txtar.Archive) planCase {
	c := planCase{to: &schema.Target{Group: "edge", Drain: -1, Patience: 30 * time.Second}}
	for _, f := range ar.Files {
		if slices.Contains(outputs[:], f.Name) {
			continue
		}
		if f.Name == "session" {
			c.session(t, string(f.Data))
			continue
		}
		snap, live := w.snapshot(string(f.Data))
		c.live = c.live.Union(live)
		switch f.Name {
		case "from/acked":
			c.from.Acked = snap
		case "from/maybe":
			c.from.Maybe = snap
		case "known":
			c.to.Known = append(c.to.Known, snap)
		case "to":
			c.to.Snapshot = snap
		default:
			t.Fatalf("unknown section %s", f.Name)
		}
	}
	return c
}

func (c *planCase) session(t *testing.T, text string) {
	for line := range strings.Lines(text) {
		var err error
		switch f := strings.Fields(line); f[0] {
		case "client":
			err = c.to.Client.UnmarshalText([]byte(f[1]))
		case "drain":
			c.to.Drain, err = time.ParseDuration(f[1])
		case "blank":
			c.from.Blank = true
		default:
			err = fmt.Errorf("unknown word %q", f[0])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func pathWords(p *schema.Path) string {
	var b strings.Builder
	prev := p.From
	for i := range p.Stages {
		st := &p.Stages[i]
		var moves []string
		for t, m := range st.Moves {
			if m {
				moves = append(moves, schema.Type(t).String())
			}
		}
		fmt.Fprintf(&b, "%d %s (%s)\n", i, st.Kind, strings.Join(moves, ", "))
		if st.Drain > 0 {
			fmt.Fprintf(&b, "    after %s\n", st.Drain)
		}
		if len(st.Unused) > 0 {
			fmt.Fprintf(&b, "    once unused: %s\n", keys(st.Unused))
		}
		for old, r := range schema.DiffAll(prev, st.Snapshot) {
			switch {
			case old == nil:
				fmt.Fprintf(&b, "  + %s%s\n", r.Key, hostWords(r))
			case r == nil:
				fmt.Fprintf(&b, "  - %s\n", old.Key)
			default:
				fmt.Fprintf(&b, "  ~ %s%s\n", r.Key, hostWords(r))
			}
		}
		for _, w := range st.Wants {
			fmt.Fprintf(&b, "  ? %s", w.Key)
			if w.Usable {
				b.WriteString(" usable")
			}
			if len(w.Parents) > 0 {
				fmt.Fprintf(&b, " < %s", keys(w.Parents))
			}
			b.WriteString("\n")
		}
		prev = st.Snapshot
	}
	fmt.Fprintf(&b, "converged after %d\n", p.Converged)
	return b.String()
}

func keys(ks []schema.Key) string {
	words := make([]string, len(ks))
	for i, k := range ks {
		words[i] = k.String()
	}
	return strings.Join(words, ", ")
}

// hostWords says what the virtual hosts of a table name: "  v: a b, warm c".
func hostWords(r *schema.Resource) string {
	if r.Type != schema.Routes {
		return ""
	}
	hosts, err := envoy.HostsOf(r)
	if err != nil {
		return "  " + err.Error()
	}
	var parts []string
	for _, h := range hosts {
		part := h.Name() + ": " + strings.Join(clustersOf(h), " ")
		if warm := h.WarmClusters(); len(warm) > 0 {
			part += ", warm " + strings.Join(warm, " ")
		}
		parts = append(parts, part)
	}
	return "  " + strings.Join(parts, "; ")
}

func proofWords(proof Proof, hazards []Hazard) string {
	var b strings.Builder
	if len(proof.Levels) > 0 {
		for _, l := range proof.Levels {
			b.WriteString(l.String() + " ")
		}
		b.WriteString("\n")
	}
	for _, o := range proof.Open {
		fmt.Fprintf(&b, "open at %s: %s -> %s\n", o.Stage, o.From.Key, o.To.Key)
	}
	for _, h := range hazards {
		fmt.Fprintf(&b, "%s (%s): %s\n    %s\n", h.Code, h.Severity, h.Message, h.WayOut)
	}
	return b.String()
}

func trafficWords(all []TrafficChange) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "%s %s %s: %s => %s", c.Table, strings.Join(c.Hosts, ","), c.Match, answerWords(c.Before), answerWords(c.After))
		if c.Note != "" {
			b.WriteString("  (" + c.Note + ")")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func answerWords(a Answer) string {
	switch {
	case a.Other != "":
		return a.Other
	case a.Redirect != "":
		return a.Redirect
	case a.Status != 0:
		return fmt.Sprint("status ", a.Status)
	case len(a.Weights) == 0:
		return "404"
	}
	shares := a.shares()
	var parts []string
	for _, c := range slices.Sorted(maps.Keys(shares)) {
		parts = append(parts, fmt.Sprintf("%s %.4g%%", c, shares[c]*100))
	}
	return strings.Join(parts, ", ")
}
