package ads

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// said is a set as "name@version of the resource it stands for".
func said(s schema.Set) []string {
	var out []string
	for r := range s.All() {
		out = append(out, r.Name+"@"+string(r.Version))
	}
	return out
}

// sets waits until the ledger says what a node acknowledged and was served of a
// type.
func (f *fleet) sets(node string, t schema.Type, acked, served []*schema.Resource) {
	f.t.Helper()
	wantAcked, wantServed := schema.SetOf(acked...), schema.SetOf(served...)
	f.typed(node, t, func(r *schema.TypeRow) bool {
		return slices.Equal(said(r.AckedSet), said(wantAcked)) && slices.Equal(said(r.ServedSet), said(wantServed)) &&
			r.Acked == wantAcked.Version() && r.Served == wantServed.Version() && r.Held == len(acked)
	})
}

// The ledger says by name what a client accepted, and what it was sent: while
// that is unanswered, refused, accepted, or no longer asked for.
func TestLedgerSaysWhatIsAckedAndServed(t *testing.T) {
	t.Parallel()
	r1, r2, s1 := res(rds, "r", "1"), res(rds, "r", "2"), res(rds, "s", "1")
	a1, b1 := res(cds, "a", "1"), res(cds, "b", "1")
	f := newFleet(t, r1, s1, a1)
	c := f.dial("n")
	c.ask(rds, "r", "s")
	c.expect(rds, "r@1", "s@1")
	f.sets("n", rds, nil, []*schema.Resource{r1, s1})
	c.ask(rds, "r", "s")
	f.sets("n", rds, []*schema.Resource{r1, s1}, []*schema.Resource{r1, s1})
	c.ask(cds)
	c.expect(cds, "a@1")
	c.ask(cds)

	f.set(schema.Envoy, r2, s1, a1) // a partial response
	c.expect(rds, "r@2")
	f.sets("n", rds, []*schema.Resource{r1, s1}, []*schema.Resource{r2, s1})
	c.nack(rds, "no", "r", "s")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil })
	f.sets("n", rds, []*schema.Resource{r1, s1}, []*schema.Resource{r2, s1})

	f.set(schema.Envoy, r1, s1, a1, b1) // a whole one, and one that walks back
	c.expect(cds, "a@1", "b@1")
	f.sets("n", cds, []*schema.Resource{a1}, []*schema.Resource{a1, b1})
	c.ask(cds)
	f.sets("n", cds, []*schema.Resource{a1, b1}, []*schema.Resource{a1, b1})
	c.expect(rds, "r@1")
	c.ask(rds, "r") // and s is dropped
	f.sets("n", rds, []*schema.Resource{r1}, []*schema.Resource{r1})
	version := string(schema.SetOf(r1).Version())
	c.close()

	c = f.dial("n") // is sent nothing: what it holds is what it was served
	c.reask(rds, version, "r")
	f.sets("n", rds, []*schema.Resource{r1}, []*schema.Resource{r1})
}

// A node id that two hosts use is marked in its row, for as long as they do.
func TestLedgerMarksTwins(t *testing.T) {
	t.Parallel()
	f := newFleetWith(t, setup{limits: Limits{Twins: time.Millisecond}}, first()...)
	var cs []*client
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		c := f.apart("n", cds, from(host))
		c.ask(cds)
		c.expect(cds, "a@1")
		cs = append(cs, c)
	}
	twins := func(want ...string) {
		t.Helper()
		f.settled("n", func(*schema.SessionRow) bool {
			return slices.Equal(f.srv.View().Nodes()[0].Twins, want)
		})
	}
	twins("127.0.0.1", "127.0.0.2")
	cs[1].close()
	twins()
}
