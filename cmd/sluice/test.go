package main

import (
	"fmt"
	"io"
	"maps"
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
that answers for its host. Nothing is sent.`,
		Example: `  sluice test
  sluice test examples/shop -o json`,
		Args: atMostOne,
	}
	folder := pathFlag(cmd)
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
		if output.value == "json" {
			if err := printJSON(a.out, doc); err != nil {
				return err
			}
		} else {
			doc.print(a.out, a.verbose)
			a.say("%s", doc.summary())
		}
		if doc.Failed > 0 {
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
	Results       []testReported `json:"results"`
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

func testReportOf(results []compile.TestResult) *testReport {
	doc := &testReport{FormatVersion: documentFormat, Results: []testReported{}}
	for _, r := range results {
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
	return doc
}

// print shows the tests that failed, or all.
func (t *testReport) print(w io.Writer, all bool) {
	for _, r := range t.Results {
		where := ""
		if r.Group != "" {
			where = fmt.Sprintf(" (group %s, route table %s)", r.Group, r.Table)
		}
		if r.OK {
			if all {
				fmt.Fprintf(w, "%s: pass: %s%s\n", r.Pos, r.Name, where)
			}
			continue
		}
		fmt.Fprintf(w, "%s: FAIL: %s%s\n", r.Pos, r.Name, where)
		fmt.Fprintf(w, "    request   %s\n", requestLine(r.Request))
		fmt.Fprintf(w, "    expected  %s\n", r.Expected)
		fmt.Fprintf(w, "    got       %s", r.Got)
		if r.Route != "" {
			fmt.Fprintf(w, ", by %s", r.Route)
		}
		fmt.Fprintln(w)
	}
}

func (t *testReport) summary() string {
	if t.Passed+t.Failed == 0 {
		return `no tests; add one: tests: "what it says": {request: {host: "shop.example.com", path: "/"}, expect: service: "web"}`
	}
	return fmt.Sprintf("%d passed, %d failed", t.Passed, t.Failed)
}

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
