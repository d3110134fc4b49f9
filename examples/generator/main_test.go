package main

import (
	"os"
	"testing"

	"github.com/sluice-xds/sluice/schema/compile"
)

// TestWrite: what is written compiles without a warning, and its tests pass,
// whether it is one package or many.
func TestWrite(t *testing.T) {
	for _, single := range []bool{false, true} {
		written(t, single)
	}
}

func written(t *testing.T, single bool) {
	const n = 20
	dir := t.TempDir()
	if err := write(dir, n, single); err != nil {
		t.Fatal(err)
	}
	fleet, err := compile.Fleet(t.Context(), os.DirFS(dir), compile.Options{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(fleet.Warnings) > 0 {
		t.Error(fleet.Warnings)
	}
	report := compile.RunTests(fleet)
	if len(report.Results) != n || len(report.Rules) != 5*n {
		t.Errorf("%d tests and %d rules", len(report.Results), len(report.Rules))
	}
	for _, r := range report.Results {
		if !r.OK {
			t.Errorf("%s: want %s, got %s", r.Test.Name, r.Expected, r.Actual)
		}
	}
}
