package ads

import (
	"slices"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// voice is a stream of one type, of either variant.
type voice struct {
	t     schema.Type
	sotw  *client
	delta *deltaClient
	names []string
}

// voices opens a stream for each of some types, of one node.
func (f *fleet) voices(node string, incremental bool, types ...schema.Type) map[schema.Type]*voice {
	out := map[schema.Type]*voice{}
	for _, t := range types {
		v := &voice{t: t}
		if incremental {
			v.delta = f.deltaApart(node, t)
		} else {
			v.sotw = f.apart(node, t)
		}
		out[t] = v
	}
	return out
}

func (v *voice) ask(names ...string) {
	v.names = append(v.names, names...)
	if v.delta != nil {
		v.delta.sub(v.t, names...)
	} else {
		v.sotw.ask(v.t, v.names...)
	}
}

func (v *voice) ack() {
	if v.delta != nil {
		v.delta.ack(v.t)
	} else {
		v.sotw.ask(v.t, v.names...)
	}
}

// hears expects what changed, and, if the type is sent whole, all of it.
func (v *voice) hears(changed string, rest ...string) {
	switch {
	case v.delta != nil && v.t == vhds:
		v.delta.expectHosts(changed)
	case v.delta != nil:
		v.delta.expect(v.t, changed)
	default:
		all := append(rest, changed)
		slices.Sort(all)
		v.sotw.expect(v.t, all...)
	}
}

// flying waits until responses of exactly these types are un-ACKed.
func (f *fleet) flying(node string, types ...schema.Type) {
	f.t.Helper()
	f.settled(node, func(s *schema.SessionRow) bool {
		var got []schema.Type
		for _, r := range f.srv.View().Types(s.ID) {
			if r.InFlight {
				got = append(got, r.Type)
			}
		}
		return slices.Equal(got, types)
	})
}

// The stages of a path hold across separate streams of every type and of both
// variants: nothing is on its way before its turn.
func TestO01StagesAcrossStreamsOfEveryType(t *testing.T) {
	t.Parallel()
	const rtds = schema.Runtimes
	child := func(t schema.Type, name string) schema.Ref { return ref(t, name, schema.Child) }
	target := func(version, cluster, table string) []*schema.Resource {
		return []*schema.Resource{
			eds("a", "1"), eds(cluster, "1"), res(edsT, "a", "1"), res(edsT, cluster, "1"), res(sds, "s", "1"), res(ecds, "x", version), res(rtds, "y", version),
			res(lds, "l", version, child(srds, "k"), child(sds, "s"), child(ecds, "x")),
			res(srds, "k", version, child(rds, table)), route(table, "1", cluster), route("q", version, cluster),
			vhostTo("q/h", version, []schema.Ref{ref(cds, cluster, schema.Traffic)}, "h"),
		}
	}
	for _, incremental := range []bool{false, true} {
		name := map[bool]string{false: "sotw", true: "delta"}[incremental]
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, target("1", "a", "r")...)
			types := []schema.Type{cds, edsT, sds, ecds, lds, srds, rds, rtds}
			if incremental {
				types = append(types, vhds)
			}
			vs := f.voices(name, incremental, types...)
			for _, up := range []struct {
				t    schema.Type
				name string
				want []string
			}{
				{cds, "", []string{"a@1"}},
				{edsT, "a", []string{"a@1"}},
				{sds, "s", []string{"s@1"}},
				{ecds, "x", []string{"x@1"}},
				{lds, "", []string{"l@1"}},
				{srds, "", []string{"k@1"}},
				{rds, "r", []string{"r@1"}},
				{rds, "q", []string{"q@1"}},
				{rtds, "y", []string{"y@1"}},
				{vhds, "q/h", []string{"q/h@1 []"}},
			} {
				v := vs[up.t]
				if v == nil {
					continue
				}
				if up.name == "" {
					v.ask()
				} else {
					v.ask(up.name)
				}
				v.hears(up.want[0])
				v.ack()
				f.typed(name, up.t, func(r *schema.TypeRow) bool { return r.Held > 0 && !r.InFlight })
			}
			f.settled(name, func(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done })

			f.set(schema.Envoy, target("2", "b", "t")...)
			vs[cds].hears("b@1", "a@1")
			vs[ecds].hears("x@2")
			vs[rtds].hears("y@2")
			f.flying(name, cds, ecds, rtds)
			vs[cds].ack()
			vs[ecds].ack()
			vs[edsT].ask("b")
			vs[edsT].hears("b@1")
			vs[edsT].ack()
			f.flying(name, rtds) // and it alone holds all the others up
			f.srv.Live(schema.SnapshotOf(res(sds, "s", "2")))
			vs[sds].hears("s@2") // but for what is live
			vs[sds].ack()
			vs[rtds].ack()
			vs[lds].hears("l@2")
			f.flying(name, lds)
			vs[rds].ask("t")
			vs[rds].hears("t@1") // a new table is there for whoever asks
			vs[rds].ack()
			f.flying(name, lds)
			vs[lds].ack()
			vs[srds].hears("k@2")
			vs[rds].hears("q@2")
			if incremental {
				vs[vhds].hears("q/h@2 []")
				f.flying(name, srds, rds, vhds)
				vs[vhds].ack()
			}
			f.flying(name, srds, rds)
			vs[srds].ack()
			vs[rds].ack()
			if incremental { // the table took its hosts away with it
				vs[vhds].hears("q/h@2 []")
				vs[vhds].ack()
			}
			f.settled(name, func(s *schema.SessionRow) bool { return s.Converged })
			if n := f.sessions(name); n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}
