package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// tests says how the route tests fare along the way, and names those that fail
// on it.
func (p *planText) tests() []string {
	if len(p.doc.Tests) == 0 {
		return nil
	}
	moved := 0
	var lines []string
	for i := range p.doc.Tests {
		t := &p.doc.Tests[i]
		if t.Answers[0] != t.Answers[len(t.Answers)-1] {
			moved++
		}
		if len(t.Broken) > 0 {
			lines = append(lines, fmt.Sprintf("  %q gets neither at stage %s: %s  %s", t.Name, t.Broken[0], strings.Join(t.Answers, " → "), t.Pos.Short()))
		}
	}
	n := count(len(p.doc.Tests), "route test")
	if len(lines) == 0 {
		return []string{fmt.Sprintf("%s, %d with a new answer: at each step the old answer or the new one", n, moved)}
	}
	return append([]string{fmt.Sprintf("%s, of which %d get a wrong answer on the way:", n, len(lines))}, lines...)
}

// cost says what each node is sent. Groups that pay the same share a line.
func (p *planText) cost() []string {
	var lines []string
	var payers [][]string
	for i := range p.doc.Groups {
		g := &p.doc.Groups[i]
		if g.Cost == nil {
			continue
		}
		words := costWords(g.Cost)
		at := slices.Index(lines, words)
		if at < 0 {
			at = len(lines)
			lines, payers = append(lines, words), append(payers, nil)
		}
		payers[at] = append(payers[at], g.Name)
	}
	if len(lines) > 1 || len(payers) == 1 && len(payers[0]) < len(p.doc.Groups) {
		for i := range lines {
			lines[i] = strings.Join(payers[i], ", ") + ": " + lines[i]
		}
	}
	return lines
}

func costWords(c *planCost) string {
	responses, changed, full := 0, 0, 0
	var types []string
	for _, t := range c.Types {
		responses += t.Responses
		types = append(types, t.Type.String())
		if t.Responses > 1 {
			types[len(types)-1] += fmt.Sprintf(" ×%d", t.Responses)
		}
		changed += t.ChangedBytes
		full += t.FullBytes
	}
	words := count(responses, "response") + " a node"
	if len(types) > 0 {
		words += " (" + strings.Join(types, ", ") + ")"
	}
	words += ", " + byteWords(changed)
	if full != changed {
		words += fmt.Sprintf(" (%s with state of the world)", byteWords(full))
	}
	if len(c.Drained) > 0 {
		words += "; drains " + keyWords(c.Drained)
	}
	if len(c.Reset) > 0 {
		words += "; closes the connections of " + keyWords(c.Reset)
	}
	return words
}

// keyWords names the first few of some resources.
func keyWords(keys []schema.Key) string {
	const most = 3
	var names []string
	for _, k := range keys[:min(len(keys), most)] {
		names = append(names, k.Type.Noun()+" "+plainName(k.Name))
	}
	words := strings.Join(names, ", ")
	if n := len(keys) - most; n > 0 {
		words += fmt.Sprintf(" and %d more", n)
	}
	return words
}

// byteWords is a size in units of 1024 bytes.
func byteWords(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// differ names the nodes that are not where their group is, and says why.
func (p *planText) differ() []string {
	const most = 3 // of a group
	var lines []string
	for i := range p.doc.Groups {
		g := &p.doc.Groups[i]
		for j, n := range g.Differ {
			if j == most {
				lines = append(lines, fmt.Sprintf("%s  … see sluice nodes --group %s", g.Name, g.Name))
				break
			}
			at := ""
			if n.Commit != "" && n.Commit != g.Base {
				at = " (at " + short(n.Commit) + ")"
			}
			lines = append(lines, fmt.Sprintf("%s  %s%s is %s", g.Name, n.ID, at, n.Why))
		}
	}
	return lines
}

// counted is what a stage does in numbers: of what the author wrote, by kind.
func (p *planText) counted(st *planStage) string {
	type kind struct{ action, word string }
	n := map[kind]int{}
	var order []kind
	for i := range st.Changes {
		k := kind{st.Changes[i].Action, st.Changes[i].Kind}
		if n[k]++; n[k] == 1 {
			order = append(order, k)
		}
	}
	done := map[string]string{actionAdd: "added", actionChange: "changed", actionRemove: "removed"}
	var parts []string
	for _, k := range order {
		parts = append(parts, count(n[k], k.word)+" "+done[k.action])
	}
	if st.DrainSeconds > 0 {
		parts = append(parts, seconds(st.DrainSeconds)+" after the last ACK")
	}
	return strings.Join(parts, ", ")
}

// diff writes changes as lines of a diff, with some fields of each.
func (p *planText) diff(all []planChange, fields int) {
	signs := map[string]string{actionAdd: "+", actionChange: "!", actionRemove: "-"}
	for i := range all {
		c := &all[i]
		pos := ""
		if c.Pos.File != "" {
			pos = "  " + c.Pos.Short()
		}
		p.line("%s %s%s", signs[c.Action], p.entry(c), pos)
		if c.Note != "" {
			p.line("    %s", c.Note)
		}
		for j, f := range c.Fields {
			if j == fields {
				p.line("    … %s", count(len(c.Fields)-j, "more field"))
				break
			}
			p.line("    %s", f.Path)
			if f.Before != "" {
				p.line("-     %s", cut(f.Before))
			}
			if f.After != "" {
				p.line("+     %s", cut(f.After))
			}
		}
	}
}
