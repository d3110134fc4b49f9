package envoy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-xds/sluice/schema"
)

// Whatever refers to a cluster follows its new name, wherever it stands.
func TestRenameClusters(t *testing.T) {
	for _, tt := range refTests {
		msg := parse(t, tt.typ, tt.json)
		before, err := References(msg)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, ref := range before {
			if ref.Type == schema.Clusters {
				ref.Name += "~0123abcd"
			}
			want = append(want, ref.Key.String()+" "+ref.Edge.String())
		}
		if err := RenameClusters(msg, func(name string) string { return name + "~0123abcd" }); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		after, err := References(msg)
		if diff := cmp.Diff(strings.Join(want, ", "), refsText(after)); diff != "" || err != nil {
			t.Errorf("%s: %s, %v", tt.name, diff, err)
		}
		if err := RenameClusters(msg, schema.StableName); err != nil {
			t.Error(err)
		}
		if again, err := References(msg); refsText(again) != refsText(before) || err != nil {
			t.Errorf("%s: back again it refers to %s, %v", tt.name, refsText(again), err)
		}
	}
}

func TestStableName(t *testing.T) {
	for name, want := range map[string]string{
		"cart": "cart", "cart~0123abcd": "cart", "cart~0123ABCD": "cart~0123ABCD", "cart~0123abc": "cart~0123abc", "a~b": "a~b",
		schema.WireName("cart", "0123456789abcdef"): "cart",
	} {
		if got := schema.StableName(name); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}
