package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// shopFleet is the shop example in a repository of its own, without waves.
type shopFleet struct {
	t            *testing.T
	repo, socket string
	store        string
	split        string // of the cart route, as it stands in the file
}

func newShop(t *testing.T) *shopFleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &shopFleet{t: t, repo: filepath.Join(dir, "repo"), socket: filepath.Join(dir, "s.sock"), store: filepath.Join(dir, "store")}
	shop, err := os.ReadFile("../../examples/shop/shop.cue")
	must(t, err)
	must(t, os.Mkdir(f.repo, 0o700))
	must(t, os.WriteFile(f.file(), shop, 0o600))
	must(t, replaceIn(f.file(), `rollout: {waves: [{percent: 10}, {rest: true}], bake: "5m"}`, `rollout: drain: "0s"`))
	f.split = `split: {cart: 90, "cart-v2": 10}, timeout`
	return f
}

func (f *shopFleet) file() string { return filepath.Join(f.repo, "shop.cue") }

func (f *shopFleet) serve() (serverRunning, func()) {
	f.t.Helper()
	return start(f.t, serverConfig{Repo: f.repo, Store: f.store, Socket: f.socket})
}

// shift commits another split, and has it read.
func (f *shopFleet) shift(v1, v2 int) string {
	f.t.Helper()
	next := fmt.Sprintf(`split: {cart: %d, "cart-v2": %d}, timeout`, v1, v2)
	must(f.t, replaceIn(f.file(), f.split, next))
	f.split = next
	h := commit(f.t, f.repo)
	cli(f.t, 0, "sync", "--server", f.socket)
	return h
}

// call makes a request over the socket, and holds the answer against the file.
func (f *shopFleet) call(doc openAPI, code int, method, route, url, body string) []byte {
	f.t.Helper()
	c := newAdminClient(f.socket)
	req, err := http.NewRequest(method, "http://sluice"+url, strings.NewReader(body))
	must(f.t, err)
	res, err := c.http.Do(req)
	must(f.t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(f.t, err)
	if res.StatusCode != code {
		f.t.Fatalf("%s %s: %d, want %d: %s", method, url, res.StatusCode, code, data)
	}
	doc.check(f.t, method, route, fmt.Sprint(code), data)
	return data
}

// The API over the socket: every answer is as docs/admin-api.yaml says, in the
// course of a rollout that a node refuses.
func TestAdminAPI(t *testing.T) {
	f := newShop(t)
	doc := readOpenAPI(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	node := connect(t, running.XDS, "edge-1")
	connect(t, running.XDS, "edge-2")
	connect(t, running.XDS, "stranger")
	await(t, `^edge .*converged +- +2 +2 +2 +0$`, "status", "--server", f.socket)
	node.refuse(schema.Routes, "virtual host 'shop' is no good")
	second := f.shift(50, 50)
	await(t, `^edge .*halted`, "status", "--server", f.socket)

	f.call(doc, 200, "GET", "/v1/status", "/v1/status", "")
	f.call(doc, 200, "GET", "/v1/status", "/v1/status?nodes=none", "")
	f.call(doc, 400, "GET", "/v1/status", "/v1/status?nodes=some", "")
	f.call(doc, 200, "GET", "/v1/loads", "/v1/loads", "")
	f.call(doc, 200, "GET", "/v1/nodes", "/v1/nodes?sort=trouble&limit=2", "")
	f.call(doc, 400, "GET", "/v1/nodes", "/v1/nodes?state=gone", "")
	f.call(doc, 404, "GET", "/v1/nodes", "/v1/nodes?group=egde", "")
	f.call(doc, 404, "GET", "/v1/nodes/{id}", "/v1/nodes/egde-1", "")
	f.call(doc, 400, "GET", "/v1/events", "/v1/events?after=x", "")
	f.call(doc, 400, "GET", "/v1/events", "/v1/events?heartbeat=1ns", "")
	var n nodeDocument
	must(t, json.Unmarshal(f.call(doc, 200, "GET", "/v1/nodes/{id}", "/v1/nodes/edge-1", ""), &n))
	wantRefusal(t, &n)

	f.call(doc, 400, "POST", "/v1/intents", "/v1/intents", `{"verb": "pause", "grup": "edge"}`)
	f.call(doc, 409, "POST", "/v1/intents", "/v1/intents", `{"verb": "promote"}`)
	f.call(doc, 409, "POST", "/v1/intents", "/v1/intents", `{"verb": "retry", "commit": "`+first+`"}`)
	f.call(doc, 412, "POST", "/v1/intents", "/v1/intents", `{"verb": "promote", "plan": {"edge": {"acked": "envoy-x"}}}`)
	var out reconcile.Outcome
	must(t, json.Unmarshal(f.call(doc, 200, "POST", "/v1/intents", "/v1/intents", `{"verb": "abort", "group": "edge", "dry_run": true}`), &out))
	if g := out.Groups[0]; !out.DryRun || g.Commit != second || g.Nodes != 2 || !strings.HasSuffix(g.Words, "every node walks back to "+first[:7]) {
		t.Errorf("a dry run says %+v", out)
	}
	node.no.Store(nil)
	f.call(doc, 200, "POST", "/v1/intents", "/v1/intents", `{"verb": "abort", "group": "edge", "commit": "`+second[:7]+`"}`)
	await(t, `^edge .*parked`, "status", "--server", f.socket)
	f.call(doc, 200, "GET", "/v1/status", "/v1/status", "")
	f.call(doc, 200, "GET", "/v1/history", "/v1/history", "")
	events(t, f)
	curls(t, f)
}

// wantRefusal wants to see who holds what: the node acknowledged the base's routes,
// and was served the target's.
func wantRefusal(t *testing.T, n *nodeDocument) {
	t.Helper()
	s := n.Sessions[0]
	if n.State != reconcile.NodeNacked || s.Nack == nil || s.Nack.Words != "virtual host 'shop' is no good" || len(s.Origins) == 0 || s.Origins[0].Pos.File != "shop.cue" {
		t.Errorf("the node is %+v", n)
	}
	for _, row := range s.Types {
		if row.Type != schema.Routes {
			continue
		}
		r := row.Resources[0]
		if row.State != "nacked" || row.Acked == row.Desired || row.Served != row.Desired || r.Name != "web" || r.Acked == "" || r.Acked == r.Desired || r.Served != r.Desired || r.State != "nacked" || r.Origin == nil {
			t.Errorf("the routes are %+v", row)
		}
		if len(r.Changes) != 1 || !strings.Contains(r.Changes[0].Before, "cart: 90") || !strings.Contains(r.Changes[0].After, "cart: 50") {
			t.Errorf("the changes are %+v", r.Changes)
		}
	}
}

// stream reads events until nothing has happened twice.
func stream(t *testing.T, f *shopFleet, query string) []reconcile.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	res, err := newAdminClient(f.socket).open(ctx, http.MethodGet, "/v1/events"+query, nil)
	must(t, err)
	defer res.Body.Close()
	var all []reconcile.Event
	beats := 0
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		readOpenAPI(t).check(t, "GET", "/v1/events", "200", lines.Bytes())
		var e reconcile.Event
		must(t, json.Unmarshal(lines.Bytes(), &e))
		if e.Kind != eventHeartbeat {
			all = append(all, e)
			continue
		}
		if beats++; beats == 2 {
			return all
		}
	}
	t.Fatalf("no end after %+v", all)
	return nil
}

// A reader that comes back with its cursor misses nothing and reads nothing twice.
func events(t *testing.T, f *shopFleet) {
	t.Helper()
	all := stream(t, f, "?heartbeat=100ms")
	for i, e := range all {
		if i > 0 && e.Seq != all[i-1].Seq+1 {
			t.Errorf("event %d comes after %d", e.Seq, all[i-1].Seq)
		}
	}
	cut := all[len(all)/2].Seq
	rest := stream(t, f, fmt.Sprintf("?after=%d&heartbeat=100ms", cut))
	if rest[0].Seq != cut+1 || len(rest) < len(all)-len(all)/2-1 {
		t.Errorf("after %d of %d events come %d, from %d", cut, len(all), len(rest), rest[0].Seq)
	}
	if lost := stream(t, f, "?after=7&heartbeat=100ms"); lost[0].Kind != eventGap || lost[1].Seq != all[0].Seq {
		t.Errorf("with a strange cursor comes %+v", lost[0])
	}
}

// curls runs the lines that docs/admin-api.md shows.
func curls(t *testing.T, f *shopFleet) {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Log("curl is not here: its lines are not run")
		return
	}
	page, err := os.ReadFile("../../docs/admin-api.md")
	must(t, err)
	lines := regexp.MustCompile(`(?m)^curl .*$`).FindAllString(string(page), -1)
	if len(lines) < 6 {
		t.Errorf("docs/admin-api.md shows %d curl lines", len(lines))
	}
	for _, line := range lines {
		line = strings.Replace(line, "-sN", "-sN --max-time 0.3", 1)
		c := exec.Command("sh", "-c", strings.Replace(line, "curl", curl+" -w '%{http_code}'", 1))
		c.Env = []string{"SOCKET=" + f.socket}
		out, _ := c.Output() // --max-time ends the stream with an error
		if !regexp.MustCompile(`(?s)(200|202|409)$`).Match(out) {
			t.Errorf("%s: %s", line, out)
		}
	}
}

// What can be wrong is said in one line, with what to do.
func TestOperatorsBadInput(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	connect(t, running.XDS, "edge-1")
	await(t, `^edge .*converged +- +1 +1 +1 +0$`, "status", "--server", f.socket)
	for _, c := range []struct{ args, want string }{
		{"node egde-1", `error: no node "egde-1" was seen since the server started (did you mean edge-1?); see sluice nodes`},
		{"node", "error: which node? name one, such as sluice node edge-1; see sluice nodes"},
		{"nodes --group egde", `error: there is no group "egde": there are edge`},
		{"nodes --state gone", `error: --state "gone": want nacked, refused, behind, disconnected or at-target; see sluice nodes --help`},
		{"pause egde --yes", `error: there is no group "egde": there are edge`},
		{"pause", "error: nobody is there to ask, as stdin is no terminal: give --yes"},
		{"resume edge --yes", "error: group edge is not paused"},
		{"promote --yes", "error: nothing waits for a promotion: every group is one wave, and goes on by itself"},
		{"abort --yes", "error: group edge has finished " + first[:7] + ": undo that in Git, with git revert " + first[:7]},
		{"retry edge --yes", "error: group edge is neither halted nor parked: there is nothing to try again"},
		{"retry --commit 0000000 --yes", "error: no group is at commit 0000000: look again"},
		{"promote r-1 --yes", "error: nothing waits for a promotion: every group is one wave, and goes on by itself"},
		{"promote r-9 --yes", "error: there is no rollout r-9 any more, or yet: the newest is r-1; see sluice history"},
		{"history r-9", "error: the history has nothing of rollout r-9: see sluice history"},
		{"top now", `error: sluice top takes no arguments, and got "now"`},
		{"history 0000000", "error: the history has nothing of commit 0000000: see sluice history"},
	} {
		out := cli(t, 1, append(strings.Fields(c.args), "--server", f.socket)...)
		if strings.TrimSpace(out) != c.want {
			t.Errorf("sluice %s: got %swant %s", c.args, out, c.want)
		}
	}
	for _, c := range []struct{ args, says string }{
		{"nodes", "edge-1"},
		{"node edge-1", "edge-1"},
		{"history", "edge"},
		{"status", "edge"},
		{"sync -q", f.repo},
		{"pause --yes", "edge"},
		{"resume --yes", "edge"},
	} {
		said := map[string]string{}
		for _, format := range dataFormats {
			if c.args == "resume --yes" {
				cli(t, 0, "pause", "--yes", "--server", f.socket)
			}
			said[format] = cli(t, 0, append(strings.Fields(c.args), "-o", format, "--server", f.socket)...)
			if !strings.Contains(said[format], c.says) {
				t.Errorf("sluice %s -o %s: %s", c.args, format, said[format])
			}
			if c.args == "pause --yes" {
				cli(t, 0, "resume", "--yes", "--server", f.socket)
			}
		}
		if len(said["wide"]) <= len(said["table"]) {
			t.Errorf("sluice %s: wide says no more than table:\n%s%s", c.args, said["wide"], said["table"])
		}
	}
}

// An operator asks, is asked, and is in the history.
func TestIntentCommands(t *testing.T) {
	f := newShop(t)
	commit(t, f.repo)
	_, stop := f.serve()
	defer stop()
	await(t, `^edge .*converged`, "status", "--server", f.socket)
	ask := func(answer string, args ...string) string {
		var out strings.Builder
		a := &app{out: &out, err: &out, in: strings.NewReader(answer)}
		root := newRoot(a)
		root.SetArgs(append(args, "--server", f.socket))
		if code := a.report(root.ExecuteContext(t.Context())); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, &out)
		}
		return out.String()
	}
	wants(t, ask("\n", "pause", "edge"), `^edge at [0-9a-f]{7}, 0 nodes: nothing new is served`, `^pause 1 group, 0 nodes\? \[y/N\] nothing was done$`)
	wants(t, ask("y\n", "pause", "edge"), `^edge +r-1 +[0-9a-f]{7} +0 +nothing new is served`)
	wants(t, cli(t, 0, "status", "--server", f.socket), `^converged  edge: paused by .*: the next commit waits$`)
	f.shift(50, 50)
	await(t, `^edge .*paused`, "status", "--server", f.socket)
	wants(t, ask("", "resume", "--yes", "-o", "yaml"), `^verb: resume$`, `^  - group: edge$`)
	await(t, `^edge .*converged`, "status", "--server", f.socket)
	name := userName(uint32(os.Getuid()))
	wants(t, cli(t, 0, "history", "--server", f.socket), `^\S+ \S+ +r-1 +[0-9a-f]{7} +edge +0 +`+name+` +pause +nothing new is served, endpoints go on$`, ` +- +converged +0 of 0 nodes at target$`)
}

// A server that is older has no such path, and one that speaks another format says
// so; a socket of somebody else's is denied.
func TestOtherServers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	lis, err := net.Listen("unix", socket)
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"format_version": "0"}`) })
	mux.HandleFunc("GET /v1/history", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"format_version": "1", "acts": [{"commit": "3f2a91c0", "rollout": "r-6"}, {"commit": "3f2a9200", "rollout": "r-7"}]}`)
	})
	srv := &http.Server{Handler: mux}
	go srv.Serve(lis)
	defer srv.Close()
	wants(t, cli(t, 1, "nodes", "--server", socket), `^error: the server at \S+ is older than this sluice, and has no GET /v1/nodes: use the same version$`)
	wants(t, cli(t, 1, "status", "--server", socket), `^error: the server at \S+ speaks format "0" of the status, and this sluice "1": use the same version$`)
	wants(t, cli(t, 1, "node", "x", "--server", filepath.Join(t.TempDir(), "none")), `^error: no sluice answers at \S+: start one with sluice serve, or name its socket with --server$`)
	wants(t, cli(t, 1, "top", "--server", filepath.Join(t.TempDir(), "none")), `^error: no sluice answers at \S+: start one with sluice serve`)
	dead := filepath.Join(t.TempDir(), "dead.sock")
	left, err := net.Listen("unix", dead)
	must(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	wants(t, cli(t, 1, "nodes", "--server", dead), `^error: no sluice answers at \S+: start one with sluice serve, or name its socket with --server$`)
	wants(t, cli(t, 1, "history", "3f2a9", "--server", socket), `^error: revision 3f2a9 is ambiguous: it may be 3f2a91c0 or 3f2a9200; give more digits$`)
	wants(t, cli(t, 0, "history", "r-7", "--server", socket), `^\S+ \S+ +r-7 +3f2a920 `)
}

// The socket of another user is denied, in one line.
func TestSomebodyElsesSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sluice")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	socket := filepath.Join(dir, "s.sock")
	lis, err := listenSocket(socket)
	must(t, err)
	defer lis.Close()
	self, err := os.Executable()
	must(t, err)
	data, err := os.ReadFile(self)
	must(t, err)
	bin := filepath.Join(dir, "sluice")
	must(t, os.WriteFile(bin, data, 0o755))
	c := exec.Command(bin, "history", "--server", socket)
	c.Dir, c.Env = dir, []string{"HOME=" + dir}
	if os.Getuid() == 0 {
		const nobody = 65534
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	} else {
		must(t, os.Chmod(socket, 0)) // who is not root is kept out of what is its own
	}
	out, err := c.CombinedOutput()
	if want := "error: no sluice answers at " + socket + ": permission denied; it is the user's who runs the server\n"; c.ProcessState.ExitCode() != 1 || string(out) != want {
		t.Errorf("got %v, %swant %s", err, out, want)
	}
}

// After a restart the status counts the nodes that have not come back, and the list
// names them; a node that is refused is listed with the time of its last try.
func TestNodesAfterARestart(t *testing.T) {
	f := newShop(t)
	first := commit(t, f.repo)
	running, stop := f.serve()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	connect(t, running.XDS, "edge-1")
	await(t, `^edge .*converged +- +1 +1 +1 +0$`, "status", "--server", f.socket)
	second := f.shift(50, 50) // writes down who is there
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", second)
	stop()
	running, stop = f.serve()
	defer stop()
	wants(t, cli(t, 0, "status", "--server", f.socket), `^edge +r-2 .* +1 +0 +0 +0$`)
	wants(t, cli(t, 0, "nodes", "--server", f.socket), `^edge-1 +edge +- +- +disconnected +was connected before the restart; waited for until [0-9:]{8}$`)
	wants(t, cli(t, 0, "node", "edge-1", "--server", f.socket), `^edge-1  disconnected: was connected before the restart`)
	connect(t, running.XDS, "stranger")
	await(t, `^stranger +- +- +- +refused +no group matches .*; last seen [0-9:]{8}$`, "nodes", "--server", f.socket)
	await(t, `^refused  node stranger: no group matches .* \(last seen [0-9:]{8}\)$`, "status", "--server", f.socket)
	connect(t, running.XDS, "edge-1")
	await(t, `^edge-1 +edge +`+second[:7]+` +\S+ +at-target`, "nodes", "--server", f.socket)
	if out := cli(t, 0, "nodes", "--server", f.socket); strings.Count(out, "edge-1") != 1 {
		t.Errorf("the node is listed twice:\n%s", out)
	}
}

// Two nodes that share an id are said to.
func TestTwinsAreShown(t *testing.T) {
	n := &schema.NodeRow{Node: schema.Node{ID: "a"}, Sessions: 2, Twins: []string{"10.0.0.1", "10.0.0.2"}}
	row := rowOf(n, &reconcile.NodeStatus{ID: "a", State: reconcile.NodeAtTarget})
	if want := "two nodes use this id, at 10.0.0.1 and 10.0.0.2: give each its own"; row.Why != want || len(row.Twins) != 2 {
		t.Errorf("the row is %+v", row)
	}
}
