package schema

import "testing"

// TestWireName: the stable name comes back whatever the author called a service.
func TestWireName(t *testing.T) {
	for _, name := range []string{"web", "a~b", "a~", "~", "web~0badc0d", "web~0BADC0DE", "web~notahash"} {
		if StableName(name) != name {
			t.Errorf("%q is taken for a name on the wire", name)
		}
		if got := StableName(WireName(name, "0badc0de01234567")); got != name {
			t.Errorf("%q comes back as %q", name, got)
		}
	}
	if got := StableName("web~0badc0de"); got != "web" {
		t.Errorf("the stable name is %q", got)
	}
}
