package schema

import "testing"

func TestNames(t *testing.T) {
	for _, c := range []struct{ name, canonical, glob string }{
		{"plain", "plain", ""},
		{"plain?b=1&a=1", "plain?b=1&a=1", ""},
		{"xdstp://a/v3.R/r", "xdstp://a/v3.R/r", "xdstp://a/v3.R/*"},
		{"xdstp:///v3.R/d/r?b=1&a=2", "xdstp:///v3.R/d/r?a=2&b=1", "xdstp:///v3.R/d/*?a=2&b=1"},
		{"xdstp://a/v3.R/d/*?b=1&a=2#x", "xdstp://a/v3.R/d/*?a=2&b=1#x", "xdstp://a/v3.R/d/*?a=2&b=1#x"},
		{"xdstp://a", "xdstp://a", ""},
		{"xdstp:", "xdstp:", ""},
		{"xdstp:/", "xdstp:/", ""},
	} {
		if got := Canonical(c.name); got != c.canonical {
			t.Errorf("Canonical(%q) = %q, want %q", c.name, got, c.canonical)
		}
		if got := GlobOf(c.canonical); got != c.glob {
			t.Errorf("GlobOf(%q) = %q, want %q", c.canonical, got, c.glob)
		}
		if got, want := IsGlob(c.canonical), c.canonical == c.glob && c.glob != ""; got != want {
			t.Errorf("IsGlob(%q) = %v", c.canonical, got)
		}
	}
}

// A reference finds its target by either spelling.
func TestD13References(t *testing.T) {
	cluster := NewResource(Key{Clusters, "xdstp://a/v3.C/b?y=1&x=1"}, nil, []byte("b"))
	route := NewResource(Key{Routes, "r"}, []Ref{
		{Key{Clusters, "xdstp://a/v3.C/b?y=1&x=1"}, Traffic}, {Key{Clusters, "xdstp://a/v3.C/b?x=1&y=1"}, Traffic},
	}, []byte("r"))
	if d := SnapshotOf(cluster, route).Dangling(); len(d) > 0 {
		t.Errorf("dangling: %v", d)
	}
	if len(route.Refs) != 1 {
		t.Errorf("one reference, twice spelt, is %v", route.Refs)
	}
}
