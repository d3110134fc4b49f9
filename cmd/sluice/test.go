package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

func newTestCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the route tests of the configuration in a directory",
		Long: `Run the tests of the configuration in a directory: each says where a request must
go, and is asked of the route tables that the configuration makes, in each group
that answers for its host. Nothing is sent.

It says how many of the rules some test reaches; -v lists those that none does.`,
		Example: `  sluice test
  sluice test --fail-under 80
  sluice test examples/shop -o junit`,
		Args: atMostOne,
	}
	folder := pathFlag(cmd)
	output := outputFlag(cmd, "text", "json", "junit")
	least := cmd.Flags().Float64("fail-under", 0, "fail if tests reach less than this percentage of the rules")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *least < 0 || *least > 100 {
			return fmt.Errorf("--fail-under %v: want a percentage between 0 and 100", *least)
		}
		tree, err := openWorkTree(dirOf(args), *folder)
		if err != nil {
			return err
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		fleet, err := tree.compile(ctx)
		if err != nil {
			return because(ctx, err)
		}
		doc := testReportOf(compile.RunTests(fleet))
		low := doc.Coverage.Percent < *least
		switch output.value {
		case "json":
			err = printJSON(a.out, doc)
		case "junit":
			err = printJUnit(a.out, doc)
		default:
			doc.print(a.out, a.verbose, a.verbose || low)
			a.say("%s", doc.summary())
		}
		switch {
		case err != nil:
			return err
		case low:
			return errors.New(doc.tooLow(*least))
		case doc.Failed > 0:
			return &exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// testReport is what test -o json prints.
type testReport struct {
	FormatVersion string         `json:"format_version"`
	Passed        int            `json:"passed"`
	Failed        int            `json:"failed"`
	Coverage      testCoverage   `json:"coverage"`
	Results       []testReported `json:"results"`
}

// testCoverage says how much of the routes tests reach.
type testCoverage struct {
	Rules   int         `json:"rules"`
	Covered int         `json:"covered"`
	Percent float64     `json:"percent"` // of the rules; 100 if there are none
	Missing []testedNot `json:"missing"`
}

// testedNot is a rule that no test reaches.
type testedNot struct {
	Pos   schema.Pos `json:"pos"`
	Route string     `json:"route"`
}

// testReported is one test on one route table.
type testReported struct {
	Name     string         `json:"name"`
	Pos      schema.Pos     `json:"pos"`
	OK       bool           `json:"ok"`
	Group    string         `json:"group,omitempty"` // none: no group answers for the host
	Table    string         `json:"table,omitempty"`
	Route    string         `json:"route,omitempty"`
	Request  schema.Request `json:"request"`
	Expected string         `json:"expected"`
	Got      string         `json:"got"`
}

func testReportOf(report *compile.TestReport) *testReport {
	doc := &testReport{FormatVersion: documentFormat, Results: []testReported{}}
	for _, r := range report.Results {
		if r.OK {
			doc.Passed++
		} else {
			doc.Failed++
		}
		doc.Results = append(doc.Results, testReported{
			Name: r.Test.Name, Pos: r.Test.Pos, OK: r.OK, Group: r.Group, Table: r.Table, Route: r.Route,
			Request: r.Test.Request, Expected: r.Expected, Got: r.Actual,
		})
	}
	doc.Coverage = testCoverage{Rules: len(report.Rules), Covered: report.Covered(), Percent: 100, Missing: []testedNot{}}
	if n := doc.Coverage.Rules; n > 0 {
		doc.Coverage.Percent = 100 * float64(doc.Coverage.Covered) / float64(n)
	}
	for _, u := range report.Rules {
		if u.Tests == 0 {
			doc.Coverage.Missing = append(doc.Coverage.Missing, testedNot{u.Pos, u.Route})
		}
	}
	return doc
}

// print shows the tests that failed, or all, and the rules that none reaches.
func (t *testReport) print(w io.Writer, all, missing bool) {
	for _, r := range t.Results {
		if r.OK {
			if all {
				fmt.Fprintf(w, "%s: pass: %s%s\n", r.Pos, r.Name, r.where())
			}
			continue
		}
		fmt.Fprintf(w, "%s: FAIL: %s%s\n", r.Pos, r.Name, r.where())
		for line := range strings.Lines(r.failure()) {
			fmt.Fprint(w, "    "+line)
		}
	}
	if !missing {
		return
	}
	for _, m := range t.Coverage.Missing {
		fmt.Fprintf(w, "%s: not tested: %s\n", m.Pos, m.Route)
	}
}

func (r *testReported) where() string {
	if r.Group == "" {
		return ""
	}
	return fmt.Sprintf(" (group %s, route table %s)", r.Group, r.Table)
}

// failure says what was asked and what was decided.
func (r *testReported) failure() string {
	by := ""
	if r.Route != "" {
		by = ", by " + r.Route
	}
	return fmt.Sprintf("request   %s\nexpected  %s\ngot       %s%s\n", requestLine(r.Request), r.Expected, r.Got, by)
}

func (t *testReport) summary() string {
	if t.Passed+t.Failed == 0 {
		return `no tests; add one: tests: "what it says": {request: {host: "shop.example.com", path: "/"}, expect: service: "web"}`
	}
	return fmt.Sprintf("%d passed, %d failed; %d of %s tested (%s)",
		t.Passed, t.Failed, t.Coverage.Covered, count(t.Coverage.Rules, "rule"), share(t.Coverage.Percent))
}

// tooLow says that too few of the rules are tested.
func (t *testReport) tooLow(least float64) string {
	return fmt.Sprintf("tests reach %d of %s (%s), and --fail-under wants %s",
		t.Coverage.Covered, count(t.Coverage.Rules, "rule"), share(t.Coverage.Percent), share(least))
}

// share is rounded down, so that 100 % means all.
func share(p float64) string { return fmt.Sprintf("%g %%", math.Floor(p*10)/10) }

// requestLine is a request on one line: GET http://host/path, header: value.
func requestLine(r schema.Request) string {
	scheme, method := r.Scheme, r.Method
	if scheme == "" {
		scheme = "http"
	}
	if method == "" {
		method = "GET"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s://%s%s", method, scheme, r.Host, r.Path)
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		fmt.Fprintf(&b, "  %s: %s", name, r.Headers[name])
	}
	return b.String()
}
