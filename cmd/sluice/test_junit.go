package main

import (
	"encoding/xml"
	"io"
)

// junitSuites is the root of a JUnit report, as CI services read it.
type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"` // group and route table
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func printJUnit(w io.Writer, t *testReport) error {
	s := junitSuite{Name: "sluice test", Tests: t.Passed + t.Failed, Failures: t.Failed}
	for _, r := range t.Results {
		c := junitCase{Class: "routes", Name: r.Name, File: r.Pos.File, Line: r.Pos.Line}
		if r.Group != "" {
			c.Class = r.Group + "." + r.Table
		}
		if !r.OK {
			c.Failure = &junitFailure{Message: "expected " + r.Expected + "; got " + r.Got, Text: r.failure()}
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suites: []junitSuite{s}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
