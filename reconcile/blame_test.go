package reconcile

import (
	"fmt"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// A refused route table is blamed on the route that the node's words name, or else
// on the one that changed, and not on the listener that the table belongs to.
func TestBlameOfARouteTable(t *testing.T) {
	other := func(to string) string {
		return fmt.Sprintf("routes: other: schema.#Routes & {listeners: [\"front\"], hosts: [\"other.mesh\"], rules: [{match: prefix: \"/\", %s}]}\n", to)
	}
	for _, c := range []struct{ words, want string }{
		{"no", "routes: other"},
		{"virtual host 'front' is no good", "routes: front"},
	} {
		t.Run(c.words, func(t *testing.T) {
			conf := frontOnly("v1")
			conf.extra = other(to("v1"))
			r, first := newRig(t, conf)
			front := r.connect("front-1")
			front.sees("front → v1, v1@10.0.0.1:80")
			r.done("front", first)
			front.rejects(rds, c.words)
			conf.extra = other(to("v1") + `, timeout: "5s"`)
			r.merge(conf)
			h := r.state("front", Halted).group("front").Halt
			if len(h.Origins) != 1 || h.Origins[0].Kind != "route" || h.Origins[0].Pos.Line != conf.lineOf(c.want) {
				t.Errorf("the origins are %+v, want line %d", h.Origins, conf.lineOf(c.want))
			}
		})
	}
}

// Of a table whose every part may be wrong, and of one that nobody knows the parts
// of, the line is that of the whole.
func TestBlameOfTheWhole(t *testing.T) {
	k := schema.Key{Type: rds, Name: "web"}
	whole := schema.Origin{Kind: "listener", Name: "web", Pos: schema.Pos{Line: 1}}
	r := &Release{Origins: map[schema.Key][]schema.Origin{k: {whole}}}
	n := &schema.Nack{Type: rds, Words: "no", Names: []string{"web"}}
	for i := range fewLines + 2 {
		got, want := r.Blame(n, nil), max(1, i)
		if i > fewLines {
			want = 1
		}
		if len(got) != want || (got[0] == whole) != (i == 0 || i > fewLines) {
			t.Errorf("with %d routes it is %+v", i, got)
		}
		r.Origins[k] = append(r.Origins[k], schema.Origin{Kind: "route", Name: fmt.Sprint("r", i), Pos: schema.Pos{Line: i + 2}})
	}
}
