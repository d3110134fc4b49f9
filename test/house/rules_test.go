package house

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/rules.md anew")

// rules are the rules of the protocol, of order, of planning and of rollouts that
// sluice keeps, in a sentence each. A test that holds one is named after it:
// TestS04StaleNonce holds S4.
var rules = []struct{ id, meaning string }{
	{"S1", "An answer is a NACK if it has an error, and only then; versions say nothing."},
	{"S2", "Nonces belong to a stream: what a stream's first request of a type carries is ignored."},
	{"S3", "The node is told once, binds the stream, and may not change."},
	{"S4", "A stale nonce answers nothing, but its names count."},
	{"S5", "Naming nothing asks for everything, until something was named."},
	{"S6", "Names replace the last names; one that is new, or back, is sent even if unchanged."},
	{"S7", "Clusters, listeners and scoped routes are sent whole, others as far as they changed."},
	{"S8", "A missing name holds up nothing, and is sent when it appears."},
	{"S9", "A reconnecting client is sent only what its version does not prove that it holds."},
	{"S10", "Only news is sent; after a NACK everything it touched is news."},
	{"S11", "A time to live is given to clients that can drop what they do not hear of, and heartbeats renew it; none by default."},
	{"S12", "What is acknowledged follows the responses and the subscription."},
	{"S13", "An ACK proves that content is valid, not that it is in use."},
	{"S14", "One response a type is in flight; a client that does not watch a type is not taken for one that accepts it."},
	{"S15", "Content that a client refused is not sent to it again until it changes or the client reconnects."},
	{"D1", "Versions that a client lists on its first request are believed, one by one."},
	{"D2", "A request without a nonce, or with a stale one, changes the subscription and answers nothing."},
	{"D3", "Subscribing again sends again."},
	{"D4", "Dropping a name that the wildcard covers is answered; dropping an unknown one is nothing."},
	{"D5", "The wildcard of naming nothing ends with the first name."},
	{"D6", "A missing name is reported as removed, and stays subscribed."},
	{"D7", "The first wildcard request is answered even with nothing."},
	{"D8", "The system version is the commit."},
	{"D9", "What a refused response held is unknown, neither old nor new; what is bad in it is found in parts, on one node, if the group asks for it."},
	{"D10", "Removals come last."},
	{"D11", "Endpoints follow a changed cluster unasked."},
	{"D12", "Virtual hosts are asked for on demand, under any of their domains; an unknown one is told without a body; a table that changes is followed by its hosts."},
	{"D13", "xdstp names are compared with their parameters sorted, and \"/*\" asks for a collection; the wildcard and names stand beside each other."},
	{"D14", "One response a type is in flight."},
	{"O1", "Clusters and endpoints, then listeners, then routes, then what is removed: across streams too."},
	{"O2", "Endpoints never wait for the ACK of their cluster."},
	{"O3", "What is asked for by name is answered, whatever came before."},
	{"O4", "Endpoints go with a stream's first clusters."},
	{"O5", "Endpoints go again after their cluster changed."},
	{"O6", "A cluster goes before its endpoints."},
	{"O7", "Routes are answered while their listener is pending."},
	{"O8", "An ACK of listeners does not prove that they listen: what they replace stays for the way back."},
	{"O9", "Routes, and listeners with routes of their own, come after the clusters that they send to."},
	{"O10", "What nothing refers to is removed after its drain time, counted from the ACK."},
	{"O11", "Gates are bounded in time, and a session's own; endpoints wait for none."},
	{"O12", "A gate outlives a client's fetch timeout; one that never ends is warned of."},
	{"O13", "Secrets and extensions go with or before what refers to them; extensions are taken away after it; tables of scoped routes need their clusters first."},
	{"O14", "An open stage takes no newer response; live types go on."},
	{"O15", "Only what a session asks for, or will, holds it up."},
	{"O16", "A name is not taken away and given back."},
	{"G1", "No names are no wildcard for a gRPC client."},
	{"G2", "A gRPC client that reconnects is sent nothing that it holds."},
	{"G3", "A refused response is followed by the fix alone."},
	{"G4", "A late ACK is not a lost one."},
	{"G5", "What a client still asks for is not left out of a whole response."},
	{"G6", "A gRPC client's listener is an API listener, a gRPC server's a socket listener under its template's name."},
	{"G7", "Clusters of types that gRPC clients refuse are told before the merge."},
	{"G8", "Endpoints have priorities without gaps, localities with weights, and no address twice."},
	{"G9", "A warm route brings a cluster up before any request goes there, and keeps the old one until the switch."},
	{"G10", "The kind of a client is what its user agent says."},
	{"G11", "A locality may be empty or missing."},
	{"P1", "A path goes make, warm, listeners, routes, unlisten, cool, prune, and no stage of it is empty."},
	{"P2", "Nothing dangles in any snapshot of a path."},
	{"P3", "What may have been applied counts as held where it is in use, and as absent where it is needed."},
	{"P4", "What cannot change in place without harm changes beside it: under another name, or one stage earlier."},
	{"P5", "What is equal but for its name was renamed: it is added, traffic moves, the old one is pruned."},
	{"P6", "A gRPC client is told of a cluster before a route sends to it."},
	{"P7", "What a session does not ask for gates nothing."},
	{"P8", "Sessions in one state share a path, and a small change costs a small plan."},
	{"P9", "Each step of a path says what its gate proves."},
	{"P10", "Each step of a path gives the old answer to a request or the new one."},
	{"P11", "A plan says where each class of requests goes, before and after."},
	{"P12", "A plan says what it sends, what it drains and what it closes."},
	{"P13", "Sessions are gated one by one."},
	{"P14", "No route gains weight on a cluster without a usable endpoint."},
	{"R1", "A node is in the matching group of the highest priority, and is given what others of it were given; groups go in the order that they are told."},
	{"R4", "A refusal halts its group: what was refused is not tried again until it changes, or somebody says so."},
	{"R5", "Silence is waited for in bounds, and nobody is left out of the count in silence."},
	{"R6", "A group has one target; it has converged when the last routes are accepted, and a prune is a debt that holds up nothing."},
	{"R7", "What operators ask for is kept, says who and when, and does what was read; what makes no sense now says what does."},
	{"R9", "What one owner's package gets wrong freezes the groups that it is a part of, and no others."},
	{"R10", "A cluster that requests still go to is not taken away without somebody's word."},
}

var ruleTest = regexp.MustCompile(`(?m)^func (Test([SDOGPR])([0-9]{1,2})[A-Za-z0-9]*)\(`)

// families are the rules of the wire: each of them has a promise, and so a test.
var families = map[string]int{"S": 15, "D": 14, "O": 16, "G": 11}

// TestRulesAreComplete finds a rule of the wire that was left out.
func TestRulesAreComplete(t *testing.T) {
	listed := map[string]bool{}
	for _, r := range rules {
		if listed[r.id] {
			t.Errorf("rule %s is listed twice", r.id)
		}
		listed[r.id] = true
	}
	for family, n := range families {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprint(family, i); !listed[id] {
				t.Errorf("rule %s has no promise", id)
			}
		}
	}
}

// TestRuleIndex holds docs/rules.md against the tests, both ways.
func TestRuleIndex(t *testing.T) {
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, m := range ruleTest.FindAllSubmatch(src, -1) {
			id := string(m[2]) + strings.TrimLeft(string(m[3]), "0")
			tests[id] = append(tests[id], fmt.Sprintf("`%s.%s`", filepath.ToSlash(rel), m[1]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("# Rules and their tests\n\nWhat sluice promises on the wire, in planning and of rollouts, and the tests that hold it.\n" +
		"`go test ./test/house -update` writes this page.\n\n| rule | promise | tests |\n|---|---|---|\n")
	for _, r := range rules {
		found := tests[r.id]
		if len(found) == 0 {
			t.Errorf("rule %s has no test", r.id)
		}
		delete(tests, r.id)
		slices.Sort(found)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.id, r.meaning, strings.Join(found, "<br>"))
	}
	for id, found := range tests {
		t.Errorf("%v hold rule %s, which is not listed", found, id)
	}
	page := filepath.Join(root, "docs", "rules.md")
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.ReadFile(page); err != nil || !bytes.Equal(now, b.Bytes()) {
		t.Errorf("docs/rules.md is not what the tests say: run go test ./test/house -update (%v)", err)
	}
}
