package main

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// planMarker is the first line of every plan in Markdown: a comment on a pull
	// request is found again by it.
	planMarker = "<!-- sluice:plan -->"
	// markdownLimit is the most characters that GitHub takes in a comment.
	markdownLimit = 65535
)

// planMarkdown writes a plan for a pull request: what becomes of traffic first,
// the stages folded. What does not fit under limit bytes is cut, and it says so.
func planMarkdown(doc *planDocument, limit int) string {
	levels := []planCut{
		{traffic: 200, changes: 1000, fields: maxFields},
		{traffic: 200, changes: 200, fields: 2},
		{traffic: 100, changes: 100},
		{traffic: 50, changes: 20},
		{traffic: 20, changes: 5},
		{traffic: 5, changes: 0},
	}
	var text string
	for i, cut := range levels {
		m := planPage{doc: doc, cut: cut}
		text = m.page()
		if i > 0 {
			text += "\nThis page is cut to fit a comment; `sluice plan` shows all.\n"
		}
		if len(text) <= limit {
			return text
		}
	}
	const rest = "\n…\n\nThis page is cut to fit a comment; `sluice plan` shows all.\n"
	text = strings.ToValidUTF8(text[:limit-len(rest)-len("\n</details>\n")], "")
	if strings.Count(text, "<details>") > strings.Count(text, "</details>") {
		text += "\n</details>\n"
	}
	return text + rest
}

// planCut is how much of a plan is shown: rows of traffic, changes of a stage,
// fields of a change.
type planCut struct{ traffic, changes, fields int }

type planPage struct {
	doc *planDocument
	cut planCut
	b   strings.Builder
}

func (m *planPage) line(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }

func (m *planPage) page() string {
	t := planText{doc: m.doc}
	m.line("%s", planMarker)
	m.line("### sluice plan: %s", t.ends())
	m.line("")
	if len(m.doc.Paths) == 0 {
		t.nothing()
		m.line("%s", strings.TrimSpace(t.b.String()))
		return m.b.String()
	}
	m.line("%s", t.sum())
	m.line("")
	m.traffic(&t)
	m.hazards()
	for i := range m.doc.Paths {
		m.path(&t, &m.doc.Paths[i])
	}
	m.list("Proof", t.proof())
	m.list("Tests", t.tests())
	m.list("Cost", t.cost())
	m.list("Nodes", t.differ())
	if len(m.doc.Order) > 0 {
		m.list("Order", []string{t.order()})
	}
	m.list("Groups", t.groupNotes())
	return m.b.String()
}

func (m *planPage) traffic(t *planText) {
	if len(m.doc.Traffic) == 0 {
		m.line("**Traffic** goes where it went.\n")
		return
	}
	m.line("| Requests | What becomes of them |\n|---|---|")
	rows := t.trafficRows()
	for i, r := range rows {
		if i == m.cut.traffic {
			m.line("| … | %s |", count(len(rows)-i, "more class"))
			break
		}
		m.line("| %s | %s |", mdCell(mdCode(r[0])), mdCell(mdText(r[1])))
	}
	m.line("")
}

func (m *planPage) hazards() {
	if len(m.doc.Hazards) == 0 {
		m.line("**Hazards** none\n")
		return
	}
	m.line("**Hazards**\n")
	for _, h := range m.doc.Hazards {
		sign, state := "⚠️", "warning"
		switch {
		case h.Reason != "":
			state = "allowed: " + mdText(h.Reason)
		case h.Allowed:
			state = "allowed"
		case h.Blocking:
			sign, state = "⛔", "blocks"
		}
		m.line("- %s **%s** (%s) %s: %s%s", sign, h.Code, state, mdText(strings.Join(h.Groups, ", ")), mdText(h.Message), at(h.Pos.Short()))
		if h.WayOut != "" && !h.Allowed {
			m.line("  %s", mdText(upperFirst(h.WayOut)+"."))
		}
	}
	m.line("")
}

// at is a place behind a line, or nothing.
func at(pos string) string {
	if pos == "" {
		return ""
	}
	return " " + mdCode(pos)
}

func (m *planPage) path(t *planText, path *planPath) {
	if len(m.doc.Paths) > 1 || len(path.Groups) < len(m.doc.Groups) || path.Retry {
		m.line("**%s** (%s)\n", mdText(strings.Join(path.Groups, ", ")), path.Client)
	}
	if path.Retry && len(path.Stages) > 0 {
		m.line("%s:\n", t.retryWords(path))
	}
	for i := range path.Stages {
		st := &path.Stages[i]
		if len(st.Changes) == 0 {
			m.line("Stage %d **%s** %s %s\n", i+1, st.Stage, t.idleWords(path), mdText(waitWords(st.WaitsFor)))
			continue
		}
		m.fold(fmt.Sprintf("Stage %d <b>%s</b>: %s", i+1, st.Stage, t.counted(st)), st.Changes)
	}
	if len(path.Live) > 0 {
		m.fold("<b>Live</b>: at once, in no stage: "+count(len(path.Live), "change"), path.Live)
	}
}

// fold writes changes as a diff that is shut at first.
func (m *planPage) fold(title string, all []planChange) {
	m.line("<details><summary>%s</summary>\n", title)
	cut := all[:min(len(all), m.cut.changes)]
	if len(cut) > 0 {
		t := planText{doc: m.doc}
		t.diff(cut, m.cut.fields)
		text := strings.ReplaceAll(t.b.String(), "```", "'''")
		m.line("```diff\n%s```", text)
	}
	if n := len(all) - len(cut); n > 0 {
		m.line("… and %s", count(n, "more change"))
	}
	m.line("\n</details>\n")
}

func (m *planPage) list(title string, lines []string) {
	switch len(lines) {
	case 0:
		return
	case 1:
		m.line("**%s** %s\n", title, mdText(lines[0]))
		return
	}
	m.line("**%s**\n", title)
	for _, l := range lines {
		m.line("- %s", mdText(strings.TrimSpace(l)))
	}
	m.line("")
}

// mdCode is text as code, whatever is in it.
func mdCode(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }

// mdCell is text that stands in a table.
func mdCell(s string) string { return strings.ReplaceAll(oneLine(s), "|", `\|`) }

// mdText keeps what a configuration says from being read as markup.
func mdText(s string) string {
	var b strings.Builder
	for _, r := range oneLine(s) {
		if slices.Contains([]rune("\\`*_[]<>#@"), r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
