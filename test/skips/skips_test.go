package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each case is a recorded stream of events, a list of expected skips, what is
// printed, and the exit code.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			part := func(name string) *[]byte {
				for i := range a.Files {
					if a.Files[i].Name == name {
						return &a.Files[i].Data
					}
				}
				t.Fatalf("%s has no part %s", file, name)
				return nil
			}
			var out, talk strings.Builder
			code := run(strings.NewReader(string(*part("events"))), &out, &talk, string(*part("expected")))
			got := out.String() + talk.String() + "exit " + string(rune('0'+code)) + "\n"
			want := part("want")
			if *update {
				*want = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(*want), got); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpectedList(t *testing.T) {
	all, err := parseExpected("# comment\n\n  TestA.*   no envoy on PATH  \n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		skip
		want bool
	}{
		{skip{"p", "TestA", "no envoy on PATH"}, true},
		{skip{"p", "TestAll/sub", "no envoy on PATH"}, true},
		{skip{"p", "TestB", "no envoy on PATH"}, false},
		{skip{"p", "MyTestA", "no envoy on PATH"}, false},
		{skip{"p", "TestA", "no envoy on PATHS"}, false},
		{skip{"p", "TestA", ""}, false},
	} {
		if got := c.in(all); got != c.want {
			t.Errorf("%+v is expected: got %v, want %v", c.skip, got, c.want)
		}
	}
	for _, bad := range []string{"TestA\n", "Test( x\n", "TestA (\n"} {
		if _, err := parseExpected("\n" + bad); err == nil || !strings.HasPrefix(err.Error(), "expected.txt:2: ") {
			t.Errorf("%q: got error %v, want one that names expected.txt:2", bad, err)
		}
	}
}

func TestExpectedFile(t *testing.T) {
	if _, err := parseExpected(expectedList); err != nil {
		t.Fatal(err)
	}
}

func TestLongLine(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	in := `{"Action":"output","Package":"p","Test":"T","Output":"` + long + `\n"}
{"Action":"fail","Package":"p","Test":"T"}
{"Action":"fail","Package":"p"}
`
	var out strings.Builder
	if code := run(strings.NewReader(in), &out, &out, ""); code != 1 || !strings.Contains(out.String(), long) {
		t.Errorf("exit %d, %d bytes printed: want 1 and the whole line", code, out.Len())
	}
}
