package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const plansFleet = `package fleet

groups: edge: {client: "envoy", match: id: "edge-*"}
listeners: web: {groups: ["edge"], bind: "0.0.0.0:8080"}
routes: web: {listeners: ["web"], hosts: ["*"], rules: [{match: prefix: "/", split: {web: 90, canary: 10}}]}
services: {
	web: endpoints: [{address: "10.0.0.1:80"}]
	canary: endpoints: [{address: "10.0.0.2:80"}]
}
tests: home: {request: {host: "h", path: "/"}, expect: split: {web: 90, canary: 10}}
`

// TestPullRequest runs what a CI job runs, in a shallow clone of a pull request's
// branch, against the three forges: one comment, written over by the next run, and
// a status for each commit.
func TestPullRequest(t *testing.T) {
	skipShort(t)
	origin, work := gitOverHTTP(t)
	for _, kind := range []string{"github", "gitlab", "gitea"} {
		t.Run(kind, func(t *testing.T) {
			api := newFakeForge(t, kind)
			branch := "change-" + kind
			git(t, work, "checkout", "-q", "-B", branch, "main")
			run := func(fleet string) (code int, out, commit string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(work, "fleet.cue"), []byte(fleet), 0o600); err != nil {
					t.Fatal(err)
				}
				git(t, work, "commit", "-qam", "change")
				git(t, work, "push", "-qf", "origin", branch)
				commit = git(t, work, "rev-parse", "HEAD")
				clone := filepath.Join(t.TempDir(), "clone")
				git(t, "", "clone", "-q", "--depth", "1", "--branch", branch, origin, clone)
				code, out = pullRequestJob(t, kind, api.url, clone, commit, git(t, work, "rev-parse", "main"))
				return code, out, commit
			}

			code, out, first := run(strings.ReplaceAll(plansFleet, "web: 90, canary: 10", "web: 50, canary: 50"))
			if code != 0 {
				t.Fatalf("a plan that is safe ends with %d:\n%s", code, out)
			}
			api.wants(t, 1, "### sluice plan: ", "40% moves to canary", "0 resources to add, 1 to change, 0 to prune")
			api.status(t, first, "pending", "success")

			code, out, second := run(strings.Replace(plansFleet, `"10.0.0.2:80"`, `"10.0.0.2"`, 1))
			if code != 1 {
				t.Errorf("a configuration that is wrong ends with %d:\n%s", code, out)
			}
			api.wants(t, 1, "### sluice: the configuration is not valid", "fleet.cue:8:")
			api.status(t, second, "pending", "failure")

			code, _, third := run(strings.Replace(plansFleet, "expect: split: {web: 90, canary: 10}", `expect: service: "web"`, 1))
			if code != 1 {
				t.Errorf("a route test that fails ends with %d", code)
			}
			api.wants(t, 1, "### sluice: a route test fails", "home")
			api.status(t, third, "pending", "failure")

			code, out, fourth := run(strings.NewReplacer("web: 90, canary: 10", "web: 90, none: 10", "canary: endpoints", "none: endpoints",
				`[{address: "10.0.0.2:80"}]`, "[]").Replace(plansFleet))
			if code != 3 {
				t.Errorf("a plan that is refused ends with %d:\n%s", code, out)
			}
			api.wants(t, 1, "⛔ **empty-cluster** (blocks)")
			api.status(t, fourth, "pending", "failure")
		})
	}
}

// A forge that is away stops nothing: the plan is still made, and decides.
func TestPullRequestWithoutForge(t *testing.T) {
	skipShort(t)
	origin, work := gitOverHTTP(t)
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, "", "clone", "-q", origin, clone)
	commit := git(t, work, "rev-parse", "HEAD")
	code, out := pullRequestJob(t, "gitlab", "http://127.0.0.1:1", clone, commit, commit)
	if code != 0 || !strings.Contains(out, "No changes.") || !strings.Contains(out, "warning: the report failed") {
		t.Errorf("ends with %d:\n%s", code, out)
	}
}

// What the files of the forges give the script is what that reads, and every input of
// the action is given.
func TestPullRequestInputs(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join("../../deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	script, action := read("ci/pull-request.sh"), read("github/action.yml")
	var doc struct {
		Inputs map[string]any
		Runs   struct {
			Steps []struct{ Env map[string]string }
		}
	}
	if err := yaml.Unmarshal([]byte(action), &doc); err != nil {
		t.Fatal(err)
	}
	for name := range doc.Inputs {
		if !strings.Contains(action, "${{ inputs."+name+" }}") && !strings.Contains(action, "inputs."+name+" !=") {
			t.Errorf("nothing takes the input %s of the action", name)
		}
	}
	given := 0
	for _, step := range doc.Runs.Steps {
		for variable, value := range step.Env {
			if input, ok := strings.CutPrefix(value, "${{ inputs."); ok && doc.Inputs[strings.TrimSuffix(input, " }}")] == nil {
				t.Errorf("%s is given an input that is not there: %s", variable, value)
			}
			if strings.HasPrefix(variable, "SLUICE_") && variable != "SLUICE_FORGE_TOKEN" { // which is for report
				given++
				if !strings.Contains(script, variable) {
					t.Errorf("the script does not know %s", variable)
				}
			}
		}
	}
	if given < 5 {
		t.Errorf("the action gives the script %d variables", given)
	}
	var gitea struct {
		Jobs map[string]struct {
			Steps []struct{ With map[string]string }
		}
	}
	if err := yaml.Unmarshal([]byte(read("gitea/sluice.yml")), &gitea); err != nil {
		t.Fatal(err)
	}
	steps := gitea.Jobs["plan"].Steps
	for name := range steps[len(steps)-1].With {
		if doc.Inputs[name] == nil {
			t.Errorf("the workflow for Gitea gives the action %s, which it does not take", name)
		}
	}
}

// TestPullRequestLive plans from what the nodes of a real server are at, over TCP and
// with a token that may only read. The target branch is ahead of them, so that a plan
// from there would say that nothing changes.
func TestPullRequestLive(t *testing.T) {
	skipShort(t)
	const reads, writes = "planted-reads-0123456789", "planted-writes-0123456789"
	origin, work := gitOverHTTP(t)
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("read ci "+reads+"\nwrite oncall "+writes+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := newProcess(git(t, work, "remote", "get-url", "origin"), dir, freeAddr(t))
	admin := freeAddr(t)
	server.more = []string{"--admin", admin, "--admin-tokens", tokens}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.stop)
	sluice := func(token string, args ...string) (code int, out string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, binary, append(args, "--server", "http://"+admin)...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "SLUICE_TOKEN=" + token}
		text, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(text)
	}
	first := git(t, work, "rev-parse", "HEAD")
	if code, out := sluice(reads, "status", "--wait", "--commit", first); code != 0 {
		t.Fatalf("waiting ends with %d: %s", code, out)
	}
	if code, out := sluice(writes, "pause", "edge", "--yes"); code != 0 {
		t.Fatalf("the pause ends with %d: %s", code, out)
	}

	// What is merged waits; the pull request adds nothing to it.
	if err := os.WriteFile(filepath.Join(work, "fleet.cue"), []byte(strings.ReplaceAll(plansFleet, "web: 90, canary: 10", "web: 50, canary: 50")), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, work, "commit", "-qam", "merged")
	git(t, work, "push", "-q", "origin", "main")
	git(t, work, "checkout", "-qb", "change")
	git(t, work, "commit", "-q", "--allow-empty", "-m", "change")
	git(t, work, "push", "-q", "origin", "change")
	commit := git(t, work, "rev-parse", "HEAD")
	job := func(env ...string) (*fakeForge, int, string) {
		api, clone := newFakeForge(t, "github"), filepath.Join(t.TempDir(), "clone")
		git(t, "", "clone", "-q", "--depth", "1", "--branch", "change", origin, clone)
		code, out := pullRequestJob(t, "github", api.url, clone, commit, first, env...)
		return api, code, out
	}

	api, code, out := job("SLUICE_SERVER=http://"+admin, "SLUICE_TOKEN="+reads)
	if code != 0 {
		t.Fatalf("a plan from what nodes hold ends with %d:\n%s", code, out)
	}
	api.wants(t, 1, "40% moves to canary", "over 0 nodes")
	if !strings.Contains(out, "base: what the nodes of the server at http://"+admin+" have acknowledged") || strings.Contains(out, reads) {
		t.Errorf("the job says:\n%s", out)
	}
	api, code, out = job("SLUICE_SERVER=http://" + admin) // as in a fork, which has no secrets
	if code != 0 || !strings.Contains(out, "note: there is no token for http://"+admin) {
		t.Errorf("without a token it ends with %d:\n%s", code, out)
	}
	api.wants(t, 1, "No changes.")

	for _, args := range [][]string{{"resume", "edge", "--yes"}, {"pause", "--yes"}, {"sync"}} {
		if code, out := sluice(reads, args...); code != 1 || !strings.Contains(out, "error: ci may only read: for POST /v1/") {
			t.Errorf("with a token that may only read %v ends with %d: %s", args, code, out)
		}
	}
	if st, err := server.status(ctx); err != nil || groupOf(st, "edge").Base != first || groupOf(st, "edge").Paused == nil {
		t.Errorf("the group is %+v, %v", groupOf(st, "edge"), err)
	}
	if text := server.log.String(); strings.Contains(text, reads) || strings.Contains(text, writes) {
		t.Errorf("the server's log has a token:\n%s", text)
	}
}

// pullRequestJob runs the script as a forge's CI does.
func pullRequestJob(t *testing.T, kind, api, clone, commit, base string, more ...string) (code int, out string) {
	t.Helper()
	script, err := filepath.Abs("../../deploy/ci/pull-request.sh")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"PATH=" + filepath.Dir(binary) + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"XDG_RUNTIME_DIR=" + t.TempDir(), "SLUICE_FORGE_TOKEN=secret",
	}
	if kind == "gitlab" {
		env = append(env, "GITLAB_CI=true", "CI_API_V4_URL="+api, "CI_PROJECT_ID=42", "CI_MERGE_REQUEST_IID=7", "CI_COMMIT_SHA="+commit,
			"CI_MERGE_REQUEST_DIFF_BASE_SHA="+base)
	} else {
		event := filepath.Join(t.TempDir(), "event.json")
		data := fmt.Sprintf(`{"pull_request": {"number": 7, "head": {"sha": %q}}}`, commit)
		if err := os.WriteFile(event, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		env = append(env, "GITHUB_ACTIONS=true", "GITHUB_API_URL="+api, "GITHUB_REPOSITORY=acme/fleet", "GITHUB_EVENT_PATH="+event,
			"GITHUB_SERVER_URL=http://forge.example.com", "GITHUB_RUN_ID=1", "GITHUB_BASE_REF=main", "GITHUB_SHA=merge")
		if kind == "gitea" {
			env = append(env, "GITEA_ACTIONS=true")
		}
	}
	cmd := exec.Command("sh", script)
	cmd.Dir, cmd.Env = clone, append(env, more...)
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// gitOverHTTP serves a bare repository by git http-backend, and gives its URL and
// a work tree that pushes to it.
func gitOverHTTP(t *testing.T) (url, work string) {
	t.Helper()
	where, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skipf("git http-backend is the server of this test, and there is no git binary: %v", err)
	}
	root := t.TempDir()
	bare := filepath.Join(root, "fleet.git")
	git(t, "", "init", "-q", "--bare", "-b", "main", bare)
	work = filepath.Join(root, "work")
	git(t, "", "init", "-q", "-b", "main", work)
	if err := os.WriteFile(filepath.Join(work, "fleet.cue"), []byte(plansFleet), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", ".")
	git(t, work, "commit", "-qm", "first")
	git(t, work, "remote", "add", "origin", bare)
	git(t, work, "push", "-q", "origin", "main")
	server := httptest.NewServer(&cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(where)), "git-http-backend"),
		Env:    []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
		Stderr: io.Discard,
	})
	t.Cleanup(server.Close)
	return server.URL + "/fleet.git", work
}

// git runs git, which must succeed, and gives what it prints.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A. Author", "GIT_AUTHOR_EMAIL=author@example.com",
		"GIT_COMMITTER_NAME=A. Author", "GIT_COMMITTER_EMAIL=author@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// fakeForge stands for a forge's REST API: comments of pull request 7, and the
// statuses of commits. Somebody has commented already, and it is busy at first.
type fakeForge struct {
	kind, url string

	mu       sync.Mutex
	comments []string // the id is the index plus 1
	statuses map[string][]string
	busy     bool
}

func newFakeForge(t *testing.T, kind string) *fakeForge {
	f := &fakeForge{kind: kind, comments: []string{"looks good to me"}, statuses: map[string][]string{}, busy: true}
	for range 120 { // more than a page
		f.comments = append(f.comments, "+1")
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func (f *fakeForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy {
		f.busy = false
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	token, comments, comment, statuses, edit := r.Header.Get("Authorization"), "/repos/acme/fleet/issues/7/comments",
		"/repos/acme/fleet/issues/comments/", "/repos/acme/fleet/statuses/", http.MethodPatch
	want := map[string]string{"github": "Bearer secret", "gitea": "token secret"}[f.kind]
	if f.kind == "gitlab" {
		token, comments, comment, statuses, edit = r.Header.Get("PRIVATE-TOKEN"), "/projects/42/merge_requests/7/notes",
			"/projects/42/merge_requests/7/notes/", "/projects/42/statuses/", http.MethodPut
		want = "secret"
	}
	if token != want {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	var in struct{ Body, State, Context, Name, Description string }
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Path == comments:
		f.list(w, r)
	case r.Method == http.MethodPost && r.URL.Path == comments:
		f.comments = append(f.comments, in.Body)
		w.WriteHeader(http.StatusCreated)
	case r.Method == edit && strings.HasPrefix(r.URL.Path, comment):
		var id int
		if _, err := fmt.Sscan(strings.TrimPrefix(r.URL.Path, comment), &id); err != nil || id < 1 || id > len(f.comments) {
			http.NotFound(w, r)
			return
		}
		f.comments[id-1] = in.Body
	case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, statuses):
		if name := in.Context + in.Name; name != "sluice/plan" || in.Description == "" {
			http.Error(w, "no name", http.StatusBadRequest)
			return
		}
		commit := strings.TrimPrefix(r.URL.Path, statuses)
		f.statuses[commit] = append(f.statuses[commit], in.State)
		w.WriteHeader(http.StatusCreated)
	default:
		http.NotFound(w, r)
	}
}

// list answers with a page of the comments; Gitea's pages are shorter than what is
// asked for.
func (f *fakeForge) list(w http.ResponseWriter, r *http.Request) {
	size, page := 100, 1
	if f.kind == "gitea" {
		size = 50
	}
	fmt.Sscan(r.URL.Query().Get("page"), &page)
	type comment struct {
		ID   int    `json:"id"`
		Body string `json:"body"`
	}
	all := []comment{}
	for i := (page - 1) * size; i < min(page*size, len(f.comments)); i++ {
		all = append(all, comment{i + 1, f.comments[i]})
	}
	_ = json.NewEncoder(w).Encode(all)
}

// wants checks that there are n comments by sluice, and what the last one says.
func (f *fakeForge) wants(t *testing.T, n int, words ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var ours []string
	for _, c := range f.comments {
		if strings.HasPrefix(c, "<!-- sluice:plan -->\n") {
			ours = append(ours, c)
		}
	}
	if len(ours) != n {
		t.Fatalf("%d comments, want %d:\n%s", len(ours), n, strings.Join(ours, "\n---\n"))
	}
	for _, w := range words {
		if !strings.Contains(ours[n-1], w) {
			t.Errorf("the comment does not say %q:\n%s", w, ours[n-1])
		}
	}
}

// status checks what a commit's status was set to, one after the other.
func (f *fakeForge) status(t *testing.T, commit string, states ...string) {
	t.Helper()
	if f.kind == "gitlab" {
		for i := range states {
			states[i] = strings.Replace(states[i], "failure", "failed", 1)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(states, f.statuses[commit]); diff != "" {
		t.Errorf("statuses of %s: %s", commit, diff)
	}
}
