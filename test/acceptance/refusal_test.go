package acceptance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// A node that refuses halts its group, and no other; the status says who, what,
// in which words, and which line of which commit; a fix rolls out, whichever way
// it mends what was refused.
func TestRefusal(t *testing.T) {
	skipShort(t)
	t.Parallel() // most of it is waiting
	refused := []refusedType{
		{schema.Routes, "I cannot route to svc-01: no such thing here", "routes: echo: schema.#Routes"},
		{schema.Clusters, "cluster svc-01: unexpected discovery type", `"svc-01": schema.#Service`},
		{schema.Endpoints, "endpoints of svc-01: zone-a is not for me", `"svc-01": schema.#Service`},
	}
	for _, c := range refused {
		for _, fix := range []string{"another service", "a revert", "the same service, changed"} {
			if c.typ == schema.Routes && fix == "the same service, changed" {
				continue // what was refused would be the same: rule S15
			}
			t.Run(c.typ.Short()+", "+fix, func(t *testing.T) { refusal(t, c, fix) })
		}
	}
}

type refusedType struct {
	typ   schema.Type
	words string
	line  string // of the configuration that is to blame
}

func refusal(t *testing.T, c refusedType, fix string) {
	r := newRig(t, 15*time.Second)
	r.serve()
	conf := func(service, addr string) config {
		c := to(service, addr)
		c.odd = true
		return c
	}
	zero, one := r.backend("svc-00"), r.backend("svc-01")
	r.merge("everything to svc-00", conf("svc-00", zero))
	r.clients(2)
	odd := startRefuser(r.ctx, t, r.addr, "odd-1", "echo.mesh")
	r.want["odd"] = 1
	r.settle()
	r.load(brokenRate, "svc-00")
	r.requests(100)

	odd.refuseWith(func(got schema.Type, _ *discoverypb.DiscoveryResponse) string {
		if got == c.typ {
			return c.words
		}
		return ""
	})
	good := r.commit
	files := conf("svc-01", one).files()
	r.route.Only("svc-00", "svc-01")
	bad := r.mergeFiles("everything to svc-01", files)
	st := r.await("one group to halt and the other to converge", func(st *reconcile.Status) bool {
		f := groupOf(st, "frontends")
		return groupOf(st, "odd").State == reconcile.Halted && f.State == reconcile.Converged && f.Base == bad && f.Done == 2
	})
	r.route.Only("svc-01")
	r.saysWhy(st, c, good, bad, fmt.Sprintf("%s:%d", file, lineOf(files, c.line)))
	r.requests(100)
	if n := odd.refusals(); n != 1 {
		t.Errorf("the same was sent %d times: want once", n)
	}

	odd.refuseWith(nil)
	fixed, label := conf("svc-02", zero), "svc-00"
	switch fix {
	case "a revert":
		fixed = conf("svc-00", zero)
	case "the same service, changed":
		label = "svc-02"
		fixed = conf("svc-01", r.backend(label))
		fixed.lb = "least_request"
	}
	r.route.Only("svc-01", label)
	r.merge(fix, fixed)
	r.settle()
	r.unfailed("a refusal and its fix", r.run.Stop())
}

// saysWhy checks what the status says of a refusal, as a document and in words.
func (r *rig) saysWhy(st *reconcile.Status, c refusedType, good, bad, line string) {
	r.t.Helper()
	g := groupOf(st, "odd")
	h := g.Halt
	if h == nil || h.Node != "odd-1" || h.Commit != bad || h.Nack == nil || h.Nack.Type != c.typ || h.Nack.Words != c.words {
		r.t.Fatalf("halted because of %+v: want the words of odd-1 about %s", h, c.typ)
	}
	if g.Base != good || g.Target != bad {
		r.t.Errorf("the halted group is between %s and %s: want %s and %s", short(g.Base), short(g.Target), short(good), short(bad))
	}
	if len(h.Origins) != 1 || !strings.HasPrefix(h.Origins[0].Pos.String(), line+":") {
		r.t.Errorf("the refusal comes from %+v: want %s", h.Origins, line)
	}
	out, err := r.proc.run(r.ctx, "status", "--server", r.proc.socket)
	for _, w := range []string{"odd-1", c.typ.String(), c.words, line, short(bad)} {
		if !strings.Contains(out, w) {
			r.t.Errorf("sluice status (%v) does not say %q:\n%s", err, w, out)
		}
	}
}
