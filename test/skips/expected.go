package main

import (
	"fmt"
	"regexp"
	"strings"
)

// expectation allows the skips whose test name and reason both match as a whole.
type expectation struct{ name, reason *regexp.Regexp }

// parseExpected reads lines of a name and a reason, both regular expressions,
// with blanks between them. Empty lines and those that begin with # say nothing.
func parseExpected(list string) ([]expectation, error) {
	var all []expectation
	n := 0
	for line := range strings.Lines(list) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return nil, fmt.Errorf("expected.txt:%d: want a test name and a reason, found %q", n, line)
		}
		name, err := whole(fields[0])
		if err != nil {
			return nil, fmt.Errorf("expected.txt:%d: %w", n, err)
		}
		reason, err := whole(strings.TrimSpace(line[len(fields[0]):]))
		if err != nil {
			return nil, fmt.Errorf("expected.txt:%d: %w", n, err)
		}
		all = append(all, expectation{name, reason})
	}
	return all, nil
}

func whole(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil { // so that the error shows what was written
		return nil, err
	}
	return regexp.Compile("^(?:" + pattern + ")$")
}

func (s skip) in(expected []expectation) bool {
	for _, e := range expected {
		if e.name.MatchString(s.test) && e.reason.MatchString(s.reason) {
			return true
		}
	}
	return false
}
