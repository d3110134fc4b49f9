package ads

import (
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// Names of the xdstp scheme are compared with their parameters sorted, whoever
// wrote them in which order.
func TestD13ParametersAreSorted(t *testing.T) {
	t.Parallel()
	const asked, sorted = "xdstp://a/v3.R/r?zone=1&env=x", "xdstp://a/v3.R/r?env=x&zone=1"
	f := newFleet(t, res(rds, asked, "1"))
	c := f.deltaDial("n")
	c.sub(rds, sorted)
	r := c.expect(rds, asked+"@1")
	if r.Resources[0].Name != sorted {
		t.Errorf("sent as %s", r.Resources[0].Name)
	}
	c.ack(rds)
	c.sub(rds, asked) // the same, so it is sent again (rule D3)
	c.expect(rds, asked+"@1")
	c.ack(rds)
	c.unsub(rds, asked)
	c.quiet()
	f.set(schema.Envoy, res(rds, asked, "2"))
	c.quiet()

	s := f.dial("s")
	s.ask(rds, sorted)
	s.expect(rds, asked+"@2")
	s.ask(rds, asked)
	s.quiet()
	// Other parameters are another resource.
	c.sub(rds, "xdstp://a/v3.R/r?env=x")
	c.expect(rds, "-xdstp://a/v3.R/r?env=x")
}

// "/*" asks for the members of a collection: one level of the path, with the same
// parameters.
func TestD13Globs(t *testing.T) {
	t.Parallel()
	in := func(name string) string { return "xdstp://a/v3.R/" + name }
	for _, variant := range []string{"delta", "sotw"} {
		t.Run(variant, func(t *testing.T) {
			f := newFleet(t, res(rds, in("d/x"), "1"), res(rds, in("d/y"), "1"), res(rds, in("d/e/z"), "1"),
				res(rds, in("d/x?k=1"), "1"), res(rds, in("w"), "1"), res(rds, "plain/x", "1"))
			if variant == "sotw" {
				c := f.dial(variant)
				c.ask(rds, in("d/*"), in("w"))
				c.expect(rds, in("d/x@1"), in("d/y@1"), in("w@1"))
				c.ask(rds, in("d/*"), in("w"))
				c.quiet()
				f.set(schema.Envoy, res(rds, in("d/new"), "1"), res(rds, in("d/y"), "2"), res(rds, in("w"), "1"), res(rds, in("v"), "1"))
				c.expect(rds, in("d/new@1"))
				c.ask(rds, in("d/*"), in("w"))
				c.expect(rds, in("d/y@2"))
				return
			}
			c := f.deltaDial(variant)
			c.sub(rds, in("d/*"))
			c.expect(rds, in("d/x@1"), in("d/y@1"))
			c.ack(rds)
			c.sub(rds, in("d/*?k=1"), in("none/*"), "plain/*")
			c.expect(rds, in("d/x?k=1@1"), "-plain/*", "-"+in("none/*"))
			c.ack(rds)
			c.sub(rds, in("d/*")) // again
			c.expect(rds, in("d/x@1"), in("d/y@1"))
			c.ack(rds)
			f.set(schema.Envoy, res(rds, in("d/y"), "2"), res(rds, in("d/x?k=1"), "1"), res(rds, in("none/n"), "1"))
			c.expect(rds, in("none/n@1")) // a new table goes before one that changes
			c.ack(rds)
			c.expect(rds, in("d/y@2"))
			c.ack(rds)
			c.expect(rds, "-"+in("d/x"))
			c.ack(rds)
			c.unsub(rds, in("d/*"))
			c.quiet()
			f.set(schema.Envoy, res(rds, in("d/y"), "3"), res(rds, in("d/x?k=1"), "2"), res(rds, in("none/n"), "1"))
			c.expect(rds, in("d/x?k=1@2"))
		})
	}
}

// The wildcard and names stand beside each other: each holds until it is dropped.
func TestD13WildcardBesideNames(t *testing.T) {
	t.Parallel()
	const far = "xdstp://a/v3.C/d/far"
	f := newFleet(t, res(cds, "a", "1"), res(cds, far, "1"))
	c := f.deltaDial("n")
	c.sub(cds, "*", "a", "xdstp://a/v3.C/d/*", "missing")
	c.expect(cds, "a@1", far+"@1", "-missing")
	c.ack(cds)
	c.unsub(cds, "*")
	c.quiet()
	f.set(schema.Envoy, res(cds, "a", "2"), res(cds, "b", "2"), res(cds, far, "2"))
	c.expect(cds, "a@2", far+"@2")
	c.ack(cds)
	c.unsub(cds, "a")
	c.quiet()
	f.set(schema.Envoy, res(cds, "a", "3"), res(cds, "b", "3"), res(cds, far, "3"))
	c.expect(cds, far+"@3")
}
