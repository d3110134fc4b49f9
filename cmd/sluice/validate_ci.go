package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// checksPage explains each code.
const checksPage = "https://github.com/sluice-xds/sluice/blob/main/docs/checks.md"

// printGitHub prints workflow commands, which GitHub and Gitea show at the line of
// a pull request.
func printGitHub(w io.Writer, ds schema.Diagnostics) error {
	text := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, d := range ds {
		at := ""
		if d.Pos.File != "" {
			at = "file=" + property.Replace(d.Pos.File) + ","
		}
		if d.Pos.Line > 0 {
			at += fmt.Sprintf("line=%d,", d.Pos.Line)
		}
		if d.Pos.Col > 0 {
			at += fmt.Sprintf("col=%d,", d.Pos.Col)
		}
		msg := d.Message
		if d.Hint != "" {
			msg += "\n" + d.Hint
		}
		if _, err := fmt.Fprintf(w, "::%s %stitle=%s::%s\n", d.Severity, at, property.Replace(d.Code), text.Replace(msg)); err != nil {
			return err
		}
	}
	return nil
}

// The parts of SARIF 2.1.0 that a code scanner reads.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		HelpURI          string    `json:"helpUri"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI  string `json:"uri"`
		Base string `json:"uriBaseId"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

// printSARIF prints a log for code scanners. Its rules are the codes that occur.
func printSARIF(w io.Writer, ds schema.Diagnostics) error {
	driver := sarifDriver{Name: "sluice", InformationURI: "https://github.com/sluice-xds/sluice", Rules: []sarifRule{}}
	for _, c := range compile.Codes() {
		if slices.ContainsFunc(ds, func(d schema.Diagnostic) bool { return d.Code == c.Name }) {
			driver.Rules = append(driver.Rules, sarifRule{c.Name, sarifText{c.Meaning}, checksPage + "#" + c.Name})
		}
	}
	results := []sarifResult{}
	for _, d := range ds {
		r := sarifResult{
			RuleID: d.Code, Level: d.Severity.String(), Message: sarifText{d.Message},
			RuleIndex: slices.IndexFunc(driver.Rules, func(r sarifRule) bool { return r.ID == d.Code }),
		}
		if d.Hint != "" {
			r.Message.Text += "\n" + d.Hint
		}
		if d.Pos.File != "" {
			at := sarifPhysical{Artifact: sarifArtifact{(&url.URL{Path: d.Pos.File}).EscapedPath(), "%SRCROOT%"}}
			if d.Pos.Line > 0 {
				at.Region = &sarifRegion{d.Pos.Line, d.Pos.Col}
			}
			r.Locations = []sarifLocation{{at}}
		}
		results = append(results, r)
	}
	return printJSON(w, sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{sarifTool{driver}, results}},
	})
}
