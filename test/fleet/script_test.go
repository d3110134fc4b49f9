package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseMix(t *testing.T) {
	got, err := ParseMix("80:ack=5ms 10:nack=2.5%,life=3s 5:never 4:read=200ms 1:ack")
	if err != nil {
		t.Fatal(err)
	}
	want := []Share{
		{80, Script{Delay: 5 * time.Millisecond}},
		{10, Script{Nack: 0.025, Life: 3 * time.Second}},
		{5, Script{Never: true}},
		{4, Script{Pause: 200 * time.Millisecond}},
		{1, Script{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for text, words := range map[string]string{
		"80":          `"80": want PARTS:SCRIPT`,
		"0:ack":       `"0:ack": want PARTS:SCRIPT`,
		"x:ack":       `"x:ack": want PARTS:SCRIPT`,
		"1:ack=5":     "missing unit",
		"1:nack=200%": "nack=200% is no share",
		"1:nack=NaN":  "nack=NaN is no share",
		"1:sleep=5ms": `unknown word "sleep=5ms"`,
	} {
		if _, err := ParseMix(text); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %q", text, err, words)
		}
	}
}

// Any hundred of the clients are dealt the shares of a mix of a hundred parts.
func TestMixIsDealtEvenly(t *testing.T) {
	mix, err := ParseMix(everyScript)
	if err != nil {
		t.Fatal(err)
	}
	for from := range 3 {
		count := map[Script]int{}
		for i := range 100 {
			count[script(mix, 100*from+i)]++
		}
		for _, s := range mix {
			if count[s.Script] != s.Parts {
				t.Errorf("from %d: %+v is dealt %d times of %d", 100*from, s.Script, count[s.Script], s.Parts)
			}
		}
	}
	if got := script(nil, 7); got != (Script{}) {
		t.Errorf("no mix deals %+v", got)
	}
}

func TestStartRefuses(t *testing.T) {
	for words, cfg := range map[string]Config{
		"no address":         {Clients: 1},
		"a fleet of 0":       {Addr: "x:1"},
		"share 1.5 of delta": {Addr: "x:1", Clients: 1, Delta: 1.5},
	} {
		if _, err := Start(cfg); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
}
