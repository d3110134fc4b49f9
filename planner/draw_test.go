package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-xds/sluice/schema"
)

// universe is small, so that what is drawn twice is often related.
var universe world

// drawText draws a closed snapshot in the words of the DSL.
func drawText(t *rapid.T, client schema.Client, label string) string {
	d := drawing{t: t, label: label, client: client}
	d.clusters()
	for _, table := range []string{"r", "s"} {
		if d.coin("table " + table) {
			d.table(table)
		}
	}
	d.listeners()
	if d.one("extra", 6) {
		d.line("endpoints x 1 host")
	}
	if d.one("secret", 6) {
		d.line("secret cert")
	}
	text := strings.Join(d.lines, "\n") + "\n"
	t.Logf("%s:\n%s", label, text)
	return text
}

type drawing struct {
	t      *rapid.T
	label  string
	client schema.Client
	lines  []string
	names  []string // of clusters
	tables []string
}

func (d *drawing) line(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *drawing) n(label string, limit int) int {
	return rapid.IntRange(0, limit-1).Draw(d.t, d.label+" "+label)
}
func (d *drawing) coin(label string) bool        { return d.n(label, 2) == 1 }
func (d *drawing) one(label string, of int) bool { return d.n(label, of) == of-1 }
func (d *drawing) pick(label string) string      { return d.names[d.n(label, len(d.names))] }
func (d *drawing) version(label string) string   { return []string{"", "@2"}[d.n(label, 2)] }
func (d *drawing) some(label string, from []string) []string {
	var out []string
	for _, s := range from {
		if d.coin(label + s) {
			out = append(out, s)
		}
	}
	return out
}

func (d *drawing) clusters() {
	d.names = d.some("cluster ", []string{"a", "b", "c"})
	for _, c := range d.names {
		eds := ""
		if d.one("shared "+c, 5) {
			eds = " eds all"
		}
		d.line("cluster %s%s%s", c, d.version("version "+c), eds)
	}
	if members := d.some("member ", d.names); len(members) > 0 && d.one("aggregate", 3) {
		d.line("cluster both -> %s", strings.Join(members, ", "))
		d.names = append(d.names, "both")
	}
}

func (d *drawing) table(name string) {
	if len(d.names) == 0 {
		return
	}
	d.tables = append(d.tables, name)
	for _, host := range []string{"x.com", "*.com", "*"} {
		if host != "*" && !d.coin(name+host) {
			continue
		}
		if d.one(name+host+" path", 4) {
			with := []string{"", "with rbac: "}[d.n(name+host+" with", 2)]
			d.line("route %s: %s /p -> %s%s", name, host, with, d.pick(name+host+" p"))
		}
		one, two := d.pick(name+host+" one"), d.pick(name+host+" two")
		if one == two {
			d.line("route %s: %s / -> %s", name, host, one)
		} else {
			d.line("route %s: %s / -> %s %d, %s 10", name, host, one, 10+80*d.n(name+host+" weight", 2), two)
		}
	}
}

func (d *drawing) listeners() {
	for _, l := range []string{"l", "m"} {
		tcp := d.client == schema.Envoy && len(d.names) > 0 && d.one("tcp "+l, 3)
		opts := ""
		if d.client == schema.Envoy && d.one("port "+l, 3) {
			opts = " port=80" // which both may want, or take from the other
		}
		if d.one("filters "+l, 4) {
			opts += " filters=rbac"
		}
		switch {
		case d.one("no "+l, 3):
		case tcp:
			d.line("listener %s%s%s -> cluster %s", l, d.version(l), opts, d.pick("to "+l))
		case len(d.tables) > 0:
			d.line("listener %s%s%s -> %s", l, d.version(l), opts, d.tables[d.n("to "+l, len(d.tables))])
		}
	}
	if d.client == schema.Envoy && len(d.tables) > 0 && d.one("scope", 3) {
		d.line("scope z -> %s", d.tables[d.n("scope to", len(d.tables))])
	}
}

// drawState draws what a session may hold, as package ads tells it: two closed
// snapshots, of which the second may be missing, or of a part of the types.
func drawState(t *rapid.T, client schema.Client) schema.State {
	acked, _ := universe.snapshot(drawText(t, client, "acked"))
	st := schema.State{Acked: acked}
	how := rapid.IntRange(0, 3).Draw(t, "maybe how")
	if how == 0 {
		return st
	}
	maybe, _ := universe.snapshot(drawText(t, client, "maybe"))
	if how == 1 {
		for _, typ := range schema.AllTypes() {
			if rapid.Bool().Draw(t, "drop "+typ.String()) {
				maybe = maybe.Replace(typ, schema.Set{})
			}
		}
		if len(acked.Union(maybe).Dangling()) > 0 {
			return st
		}
	}
	st.Maybe = maybe
	return st
}

// drawPath draws a plan's inputs.
func drawPath(t *rapid.T) (schema.State, *schema.Target) {
	client := schema.Client(rapid.IntRange(0, 1).Draw(t, "client"))
	from := drawState(t, client)
	to := &schema.Target{Client: client, Drain: -1, Patience: 30 * time.Second}
	switch rapid.IntRange(0, 5).Draw(t, "target how") {
	case 0:
		to.Snapshot = from.Acked
	case 1:
		if len(from.Maybe.Dangling()) == 0 {
			to.Snapshot = from.Maybe
			break
		}
		fallthrough
	default:
		to.Snapshot, _ = universe.snapshot(drawText(t, client, "to"))
	}
	return from, to
}

// kinds are the stages' names.
func kinds(p *schema.Path) []string {
	out := make([]string, len(p.Stages))
	for i := range p.Stages {
		out[i] = p.Stages[i].Kind.String()
	}
	return out
}

// versions of a resource that a snapshot among these has.
func versions(k schema.Key, in ...schema.Snapshot) []*schema.Resource {
	var out []*schema.Resource
	for _, s := range in {
		if r := s.Get(k); r != nil && !slices.ContainsFunc(out, func(o *schema.Resource) bool { return same(o, r) }) {
			out = append(out, r)
		}
	}
	return out
}
