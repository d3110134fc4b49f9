package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

const module = "github.com/sluice-xds/sluice/"

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	ImportPath string // of a build that is written about
}

type skip struct{ pkg, test, reason string }

// pkg is a package whose tests are running.
type pkg struct {
	output strings.Builder             // of failed tests, and of the package itself
	tests  map[string]*strings.Builder // output of the tests that have not ended
	failed int
}

// report follows one run of go test.
type report struct {
	out                    io.Writer
	pkgs                   map[string]*pkg // that have not ended
	seen                   int             // packages that were tested, or that have no tests
	passed, failed, builds int
	skips                  []skip
}

func newReport(out io.Writer) *report { return &report{out: out, pkgs: map[string]*pkg{}} }

// line takes one line of the stream. What is not an event is passed on.
func (r *report) line(b []byte) {
	var e event
	switch err := json.Unmarshal(b, &e); {
	case err != nil || e.Action == "":
		_, _ = r.out.Write(b)
	case e.Action == "build-output":
		io.WriteString(r.out, e.Output)
	case e.Action == "build-fail":
		r.builds++
	case e.Package != "" && e.Test != "":
		r.test(r.pkg(e.Package), e)
	case e.Package != "":
		r.pkgEvent(r.pkg(e.Package), e)
	}
}

func (r *report) pkg(name string) *pkg {
	p := r.pkgs[name]
	if p == nil {
		p = &pkg{tests: map[string]*strings.Builder{}}
		r.pkgs[name] = p
	}
	return p
}

func (r *report) test(p *pkg, e event) {
	said := p.tests[e.Test]
	if said == nil {
		said = new(strings.Builder)
		p.tests[e.Test] = said
	}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // RUN, PAUSE, CONT, NAME
			said.WriteString(e.Output)
		}
		return
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		p.failed++
		p.output.WriteString(said.String())
	case "skip":
		r.skips = append(r.skips, skip{strings.TrimPrefix(e.Package, module), e.Test, reason(said.String())})
	default:
		return // run, pause, cont: not an end
	}
	delete(p.tests, e.Test)
}

func (r *report) pkgEvent(p *pkg, e event) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case "pass", "skip": // a package is skipped if it has no tests
		r.seen++
		io.WriteString(r.out, lastLine(p.output.String()))
		delete(r.pkgs, e.Package)
	case "fail":
		r.seen++
		r.fail(p)
		delete(r.pkgs, e.Package)
	}
}

// fail prints a package that failed. Its tests that never ended are what was
// running when it died.
func (r *report) fail(p *pkg) {
	for _, test := range slices.Sorted(maps.Keys(p.tests)) {
		fmt.Fprintf(r.out, "--- FAIL: %s (did not end)\n%s", test, p.tests[test])
		r.failed++
		p.failed++
	}
	if p.failed == 0 {
		r.failed++
	}
	io.WriteString(r.out, p.output.String())
}

// finish prints the table and the counts, and reports whether all is well.
func (r *report) finish(expected []expectation) bool {
	for _, name := range slices.Sorted(maps.Keys(r.pkgs)) {
		r.seen++
		r.fail(r.pkgs[name])
		fmt.Fprintf(r.out, "FAIL\t%s [the events end here]\n", name)
	}
	slices.SortFunc(r.skips, func(a, b skip) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
	var unexpected []skip
	if len(r.skips) > 0 {
		fmt.Fprintln(r.out)
		table := tabwriter.NewWriter(r.out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, "package\ttest\treason")
		for _, s := range r.skips {
			fmt.Fprintf(table, "%s\t%s\t%s\n", s.pkg, s.test, cmp.Or(s.reason, "(none given)"))
			if !s.in(expected) {
				unexpected = append(unexpected, s)
			}
		}
		table.Flush()
	}
	fmt.Fprintln(r.out)
	for _, s := range unexpected {
		fmt.Fprintf(r.out, "not in test/skips/expected.txt: %s %s\n", s.pkg, s.test)
	}
	if r.seen == 0 {
		fmt.Fprintln(r.out, "nothing was tested")
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	return r.failed == 0 && r.builds == 0 && r.seen > 0 && len(unexpected) == 0
}

// where is the place that testing puts before what a test logs.
var where = regexp.MustCompile(`[^\s:]+\.go:\d+: `)

// reason is the last thing that a skipped test logged, on one line: Skip logs its
// arguments and ends the test. It is empty after SkipNow.
func reason(said string) string {
	said, _, _ = strings.Cut(said, "--- SKIP: ")
	places := where.FindAllStringIndex(said, -1)
	if len(places) == 0 {
		return ""
	}
	return strings.Join(strings.Fields(said[places[len(places)-1][1]:]), " ")
}

// lastLine is the verdict on a package that did not fail; what its tests printed
// stands before it.
func lastLine(output string) string {
	end := strings.TrimSuffix(output, "\n")
	return output[strings.LastIndexByte(end, '\n')+1:]
}
