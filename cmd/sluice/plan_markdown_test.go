package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-xds/sluice/schema"
)

// bigPlan changes n services, and the answers of n hosts.
func bigPlan(n int) *planDocument {
	zero := 0
	doc := &planDocument{
		Base: planRevision{Commit: "9be01d40000000000000"}, To: planRevision{Commit: "3f2a91c0000000000000"},
		Groups: []planGroup{{Name: "edge", Path: &zero}}, Proof: planProof{Closed: true},
	}
	st := planStage{Stage: schema.Make}
	for i := range n {
		name := fmt.Sprintf("service-%d-of-many-with-a-long-name", i)
		st.Changes = append(st.Changes, planChange{
			Action: actionChange, Kind: "service", Name: name, Pos: schema.Pos{File: "fleet/services.cue", Line: i + 1},
			Resources: []planResource{{Key: schema.Key{Type: schema.Clusters, Name: name}}},
			Fields:    []planField{{schema.Clusters, "connect_timeout", "1s", "2s"}, {schema.Clusters, "lb_policy", "RANDOM", "LEAST_REQUEST"}},
		})
		doc.Traffic = append(doc.Traffic, planTraffic{
			Groups: []string{"edge"}, Table: "web", Hosts: []string{name + ".example.com"}, Match: `prefix "/"`, Summary: fmt.Sprintf("%d requests in a hundred move to %s", i%100, name),
		})
	}
	doc.Paths = []planPath{{Groups: []string{"edge"}, Stages: []planStage{st}}}
	return doc
}

// A comment that is too long is refused by the forge, so a plan is cut, and says so.
func TestPlanMarkdownFits(t *testing.T) {
	for _, n := range []int{1, 100, 1000, 20000} {
		for _, limit := range []int{markdownLimit, 2000} {
			text := planMarkdown(bigPlan(n), limit)
			if len(text) > limit || !utf8.ValidString(text) {
				t.Errorf("%d changes: %d bytes, the limit is %d", n, len(text), limit)
			}
			if !strings.HasPrefix(text, planMarker+"\n") {
				t.Errorf("%d changes: the first line is not the marker: %.60s", n, text)
			}
			if opened, shut := strings.Count(text, "<details>"), strings.Count(text, "</details>"); opened != shut {
				t.Errorf("%d changes, %d bytes: %d folds open and %d shut", n, limit, opened, shut)
			}
			whole := strings.Count(text, "\n! service") == n && strings.Count(text, "move to") == n
			if said := strings.Contains(text, "This page is cut"); said == whole {
				t.Errorf("%d changes, %d bytes: all is shown: %v; says that it is cut: %v", n, limit, whole, said)
			}
		}
	}
}

// What a configuration says cannot leave its place on the page.
func TestPlanMarkdownIsQuoted(t *testing.T) {
	doc := bigPlan(1)
	doc.Traffic[0].Hosts = []string{"`a|b`\n<!-- x -->"}
	doc.Traffic[0].Summary = "moves to <script> | *b* @team #1"
	doc.Paths[0].Stages[0].Changes[0].Fields[0].After = "```\n</details>"
	doc.Hazards = []planHazard{{Code: "empty-cluster", Blocking: true, Groups: []string{"edge"}, Message: "[x](http://y)", WayOut: "add <b>"}}
	text := planMarkdown(doc, markdownLimit)
	wants(t, text,
		"^\\| `'a\\\\\\|b' <!-- x -->/` \\| "+`moves to \\<script\\> \\\| \\\*b\\\* \\@team \\#1 \|$`,
		`^- ⛔ \*\*empty-cluster\*\* \(blocks\) edge: \\\[x\\\]\(http://y\)$`,
		`^  Add \\<b\\>\.$`,
		"^\\+     ''' </details>$",
	)
	if strings.Count(text, "```") != 2 {
		t.Errorf("a value opens or shuts the code:\n%s", text)
	}
}
