package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxFields = 8   // of one change; JSON has all
	maxValue  = 100 // characters of one value
	maxLeft   = 64  // where positions begin at the latest
)

// printPlan writes a plan for people.
func printPlan(w io.Writer, doc *planDocument, colour bool) error {
	p := planText{doc: doc, colour: colour}
	if len(doc.Paths) == 0 {
		p.nothing()
	} else {
		p.measure()
		p.head()
		for i := range doc.Paths {
			p.path(&doc.Paths[i])
		}
		p.foot()
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

type planText struct {
	doc    *planDocument
	colour bool
	b      strings.Builder
	kind   int // width of the author's words
	left   int // where positions begin
}

func (p *planText) line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// paint colours a sign: + green, ~ yellow, - red.
func (p *planText) paint(sign string) string {
	code, ok := map[string]string{"+": "32", "~": "33", "-": "31"}[sign]
	if !p.colour || !ok {
		return sign
	}
	return "\x1b[" + code + "m" + sign + "\x1b[0m"
}

func (p *planText) nothing() {
	if p.doc.changed() {
		p.b.WriteString("No changes of resources.")
	} else {
		p.b.WriteString("No changes.")
	}
	if n := p.doc.Nodes; n != nil {
		fmt.Fprintf(&p.b, " %d of %d nodes acked", n.Acked, n.Total)
		if c := p.doc.Base.Commit; c != "" {
			p.b.WriteString(" " + short(c))
		}
		p.b.WriteString(".")
	}
	p.line("")
	p.labelled("Nodes", p.differ()...)
	p.labelled("Groups", p.groupNotes()...)
}

// measure finds the widths of the columns.
func (p *planText) measure() {
	each := func(f func(c *planChange)) {
		for i := range p.doc.Paths {
			for _, st := range p.doc.Paths[i].Stages {
				for j := range st.Changes {
					f(&st.Changes[j])
				}
			}
			for j := range p.doc.Paths[i].Live {
				f(&p.doc.Paths[i].Live[j])
			}
		}
	}
	each(func(c *planChange) { p.kind = max(p.kind, len(c.Kind)) })
	each(func(c *planChange) {
		if n := utf8.RuneCountInString(p.entry(c)) + 4; n <= maxLeft {
			p.left = max(p.left, n)
		}
	})
}

// ends are the commits that the plan leads from and to.
func (p *planText) ends() string {
	d := p.doc
	from := d.Base.Branch
	if bases := p.bases(); from == "" {
		from = bases
	} else {
		from += " " + bases
	}
	to := d.To.From
	if d.To.Commit != "" {
		to = short(d.To.Commit)
	}
	return from + " → " + to
}

func (p *planText) head() {
	d := p.doc
	groups := 0
	for _, g := range d.Groups {
		if !g.Gone {
			groups++
		}
	}
	counts := count(groups, "group")
	if n := d.Nodes; n != nil {
		counts += fmt.Sprintf(", %s: %d acked, %d disconnected", count(n.Total, "node"), n.Acked, n.Disconnected)
	}
	p.line("%s        %s", p.ends(), counts)
}

// bases are the commits that the groups begin at.
func (p *planText) bases() string {
	var all []string
	for _, g := range p.doc.Groups {
		c := "nothing"
		if g.Base != "" {
			c = short(g.Base)
		}
		if !slices.Contains(all, c) && (g.Base != "" || p.doc.Base.Commit == "") {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return short(p.doc.Base.Commit)
	}
	return strings.Join(all, ", ")
}

func (p *planText) path(path *planPath) {
	p.line("")
	if len(p.doc.Paths) > 1 || len(path.Groups) < len(p.doc.Groups) || path.Retry {
		noun := "Group"
		if len(path.Groups) > 1 {
			noun = "Groups"
		}
		p.line("%s %s  (%s)", noun, strings.Join(path.Groups, ", "), path.Client)
	}
	if path.Retry && len(path.Stages) > 0 {
		p.line("%s", p.retryWords(path))
	}
	for i := range path.Stages {
		st := &path.Stages[i]
		title := fmt.Sprintf("Stage %d  %s", i+1, st.Stage)
		if st.DrainSeconds > 0 {
			title += fmt.Sprintf("  %s after the last ACK", seconds(st.DrainSeconds))
		}
		p.line("%s", title)
		p.changes(st.Changes)
		if len(st.Changes) == 0 {
			p.line("    %s %s", p.idleWords(path), waitWords(st.WaitsFor))
		}
	}
	if len(path.Live) > 0 {
		p.line("Live     at once, in no stage")
		p.changes(path.Live)
	}
}

// seconds is a duration as people write it: 10m, and not 10m0s.
func seconds(n float64) string {
	s := time.Duration(n * float64(time.Second)).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// waitWords says what a step that sends nothing is there for.
func waitWords(waits []planWait) string {
	var parts []string
	for _, w := range waits {
		part := w.Type.Noun() + " " + w.Name
		if w.Usable {
			part = "usable " + part
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "the ACKs of what was sent before"
	}
	return strings.Join(parts, ", ")
}

func (p *planText) changes(all []planChange) {
	signs := map[string]string{actionAdd: "+", actionChange: "~", actionRemove: "-"}
	for i := range all {
		c := &all[i]
		text := p.entry(c)
		pos := ""
		if c.Pos.File != "" {
			pos = strings.Repeat(" ", max(p.left-4-utf8.RuneCountInString(text), 0)) + "   " + c.Pos.Short()
			if c.Commit != "" {
				pos += " @ " + short(c.Commit)
			}
		}
		p.line("  %s %s%s", p.paint(signs[c.Action]), text, pos)
		if c.Note != "" {
			p.line("      %s", c.Note)
		}
		p.fields(c)
	}
}

// entry names the author's word first and Envoy's after it.
func (p *planText) entry(c *planChange) string {
	text := fmt.Sprintf("%-*s %s", p.kind, c.Kind, c.Name)
	if words := envoyWords(c); words != "" {
		text += "  (" + words + ")"
	}
	return text
}

// envoyWords names the resources of a change; what is named as its author named
// it goes without saying.
func envoyWords(c *planChange) string {
	var parts []string
	plain := true
	for _, r := range c.Resources {
		s := r.Type.Noun()
		if r.Name != c.Name {
			s += " " + plainName(r.Name)
		}
		if r.Detail != "" {
			s += ": " + r.Detail
		}
		plain = plain && strings.TrimSuffix(s, " table") == c.Kind
		parts = append(parts, s)
	}
	if plain {
		return ""
	}
	return strings.Join(parts, ", ")
}

// plainName is a resource's name; a gRPC server's listener is named by its
// address, behind a prefix that says nothing.
func plainName(name string) string {
	if _, address, ok := strings.Cut(name, "?xds.resource.listening_address="); ok {
		return address
	}
	return name
}

func (p *planText) fields(c *planChange) {
	for i, f := range c.Fields {
		if i == maxFields {
			p.line("      … %s; -o json has all", count(len(c.Fields)-i, "more field"))
			return
		}
		p.line("      %s", f.Path)
		if f.Before != "" {
			p.line("    %s   %s", p.paint("-"), cut(f.Before))
		}
		if f.After != "" {
			p.line("    %s   %s", p.paint("+"), cut(f.After))
		}
	}
}

// cut is a value on one line.
func cut(s string) string {
	if r := []rune(oneLine(s)); len(r) > maxValue {
		return string(r[:maxValue-1]) + "…"
	}
	return oneLine(s)
}

// labelled prints lines under one label.
func (p *planText) labelled(label string, lines ...string) {
	for _, l := range lines {
		p.line("%-9s%s", label, l)
		label = ""
	}
}

func (p *planText) foot() {
	d := p.doc
	p.line("")
	p.labelled("Traffic", p.traffic()...)
	p.labelled("Proof", p.proof()...)
	p.labelled("Tests", p.tests()...)
	p.labelled("Hazards", p.hazards()...)
	p.labelled("Cost", p.cost()...)
	p.labelled("Nodes", p.differ()...)
	if len(d.Order) > 0 {
		p.labelled("Order", p.order())
	}
	p.labelled("Groups", p.groupNotes()...)
	p.line("")
	p.line("Plan: %s", p.sum())
}

// sum is what the plan does in one sentence. It counts Envoy's resources: of a
// service that is added there are two, or more.
func (p *planText) sum() string {
	s, over := p.doc.Summary, ""
	if s.Add+s.Change+s.Prune+s.Stages == 0 && len(p.retries()) > 0 {
		return "nothing is sent: " + p.stuck() + "."
	}
	if s.Nodes != nil {
		over = " over " + count(*s.Nodes, "node")
	}
	also := ""
	if len(p.retries()) > 0 {
		also = "; " + p.stuck()
	}
	return fmt.Sprintf("%s to add, %d to change, %d to prune, in %s%s%s.", count(s.Add, "resource"), s.Change, s.Prune, count(s.Stages, "stage"), over, also)
}

func (p *planText) traffic() []string {
	if len(p.doc.Traffic) == 0 {
		return []string{"goes where it went"}
	}
	rows := p.trafficRows()
	width := 0
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, r[0]+strings.Repeat(" ", width-utf8.RuneCountInString(r[0]))+"   "+r[1])
	}
	return lines
}

// trafficRows are the classes of requests whose answer changes, and how. Of many
// that change alike the first few stand for all.
func (p *planText) trafficRows() [][2]string {
	const most = 4 // that change alike
	all := p.trafficClasses()
	alike := map[string]int{}
	for _, r := range all {
		alike[r[1]]++
	}
	var rows [][2]string
	shown := map[string]int{}
	for _, r := range all {
		switch shown[r[1]]++; {
		case alike[r[1]] <= most || shown[r[1]] < most:
			rows = append(rows, r)
		case shown[r[1]] == most:
			rows = append(rows, [2]string{fmt.Sprintf("… and %d more", alike[r[1]]-most+1), r[1]})
		}
	}
	return rows
}

func (p *planText) trafficClasses() [][2]string {
	// Two tables may answer for one host, each on a listener of its own.
	tables := map[string]string{} // of a class; empty if there are two
	class := func(t *planTraffic) string { return strings.Join(t.Hosts, ",") + " " + t.Match }
	for i := range p.doc.Traffic {
		t := &p.doc.Traffic[i]
		if other, ok := tables[class(t)]; ok && other != t.Table {
			tables[class(t)] = ""
		} else {
			tables[class(t)] = t.Table
		}
	}
	rows, moving := make([][2]string, len(p.doc.Traffic)), p.moving()
	for i := range p.doc.Traffic {
		t := &p.doc.Traffic[i]
		host := strings.Join(t.Hosts, ", ")
		if n := len(t.Hosts); n > 2 {
			host = fmt.Sprintf("%s (and %d more)", t.Hosts[0], n-1)
		}
		rows[i] = [2]string{requestWords(host, t.Match), t.Summary}
		if tables[class(t)] == "" {
			rows[i][0] += " on " + plainName(t.Table)
		}
		if len(t.Groups) < moving {
			rows[i][1] += "  (" + strings.Join(t.Groups, ", ") + ")"
		}
	}
	return rows
}

// moving is the number of groups whose requests are routed by the plan's tables.
func (p *planText) moving() int {
	var all []string
	for _, t := range p.doc.Traffic {
		for _, g := range t.Groups {
			if !slices.Contains(all, g) {
				all = append(all, g)
			}
		}
	}
	return len(all)
}

func (p *planText) proof() []string {
	if !p.doc.Proof.Closed {
		lines := []string{"NOT closed:"}
		for _, o := range p.doc.Proof.Open {
			lines = append(lines, fmt.Sprintf("  at stage %s, %s refers to %s, which is not there  %s", o.Stage, o.From, o.To, o.Pos.Short()))
		}
		return lines
	}
	if len(p.doc.Proof.Gates) == 0 {
		return []string{"no steps"}
	}
	var gates []string
	for _, g := range p.doc.Proof.Gates {
		gates = append(gates, g.String())
	}
	return []string{"every step closed; gates: " + strings.Join(gates, ", ")}
}

func (p *planText) hazards() []string {
	if len(p.doc.Hazards) == 0 {
		return []string{"none"}
	}
	var lines []string
	for _, h := range p.doc.Hazards {
		state := ""
		switch {
		case h.Reason != "":
			state = " (allowed: " + h.Reason + ")"
		case h.Allowed:
			state = " (allowed)"
		case h.Blocking:
			state = " (blocks)"
		}
		l := fmt.Sprintf("%s%s  %s: %s", h.Code, state, strings.Join(h.Groups, ", "), h.Message)
		if h.Pos.File != "" {
			l += "  " + h.Pos.Short()
		}
		lines = append(lines, l)
		if h.WayOut != "" && !h.Allowed {
			lines = append(lines, "  "+h.WayOut)
		}
	}
	return lines
}

func (p *planText) order() string {
	nodes := map[string]*planNodes{}
	for _, g := range p.doc.Groups {
		nodes[g.Name] = g.Nodes
	}
	var steps []string
	for _, step := range p.doc.Order {
		var names []string
		for _, name := range step {
			if n := nodes[name]; n != nil {
				name = fmt.Sprintf("%s (%d)", name, n.Total)
			}
			names = append(names, name)
		}
		steps = append(steps, strings.Join(names, ", "))
	}
	return strings.Join(steps, "; then ")
}
