// Command skips reads what `go test -json` writes, prints what `go test` would
// have printed, and ends with a table of the tests that were skipped and one line
// of counts:
//
//	go test -json ./... | go run ./test/skips
//
// A test that never runs protects nothing, so a skip that expected.txt does not
// name is a failure. The exit code is 0 if all is well, 1 if a test, a package or
// a build failed, if a skip was not expected or if nothing was tested, and 2 if
// the input or expected.txt cannot be read.
//
// Tests and subtests count one each; so does a package that failed although none
// of its tests did.
package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
)

//go:embed expected.txt
var expectedList string

func main() { os.Exit(run(os.Stdin, os.Stdout, os.Stderr, expectedList)) }

// run is the whole command; list is the text of expected.txt.
func run(in io.Reader, out, talk io.Writer, list string) int {
	expected, err := parseExpected(list)
	if err != nil {
		fmt.Fprintln(talk, "skips:", err)
		return 2
	}
	w := bufio.NewWriter(out)
	defer w.Flush()
	r := newReport(w)
	lines := bufio.NewReader(in) // no limit: a test may print a line of any length
	for {
		line, err := lines.ReadBytes('\n')
		r.line(line)
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Fprintln(talk, "skips: cannot read the events:", err)
			return 2
		}
		if lines.Buffered() == 0 {
			w.Flush()
		}
	}
	if !r.finish(expected) {
		return 1
	}
	return 0
}
