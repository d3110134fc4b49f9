package main

import (
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/schema"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(body)
}

// families are the kind and the labels of each metric of ours in a scrape.
func families(text string) map[string]string {
	kinds, labels := map[string]string{}, map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], "sluice_") {
			kinds[f[2]], labels[f[2]] = f[3], map[string]bool{}
		}
	}
	sample := regexp.MustCompile(`(?m)^(sluice_\w+?)(?:_bucket|_sum|_count)?\{(.*)\} `)
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				labels[m[1]][l[1]] = true
			}
		}
	}
	for name := range kinds {
		kinds[name] = strings.TrimSpace(kinds[name] + " " + strings.Join(slices.Sorted(maps.Keys(labels[name])), ", "))
	}
	return kinds
}

// Metrics are what docs/metrics.md lists, count what happens, and name no node.
func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	repo, socket := filepath.Join(dir, "repo"), filepath.Join(dir, "s.sock")
	file := filepath.Join(repo, "shop.cue")
	must(t, os.Mkdir(repo, 0o700))
	shop, err := os.ReadFile("../../examples/shop/shop.cue")
	must(t, err)
	must(t, os.WriteFile(file, shop, 0o600))
	must(t, replaceIn(file, `rollout: {waves: [{percent: 10}, {rest: true}], bake: "5m"}`, ""))
	first := commit(t, repo)
	running, stop := start(t, serverConfig{Repo: repo, Store: filepath.Join(dir, "store"), Socket: socket, Metrics: "127.0.0.1:0"})
	base := "http://" + running.Metrics
	cli(t, 0, "status", "--server", socket, "--wait", "--commit", first)
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(t, base+path); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get(t, base+"/v1/status"); code != http.StatusNotFound {
		t.Errorf("the admin API is there: %d", code)
	}

	node := connect(t, running.XDS, "edge-1")
	await(t, `^edge +r-1 +`+first[:7]+` +1/1 +converged +- +1 +1 +1 +0$`, "status", "--server", socket)
	node.refuse(schema.Routes, "no")
	must(t, replaceIn(file, `split: {cart: 90, "cart-v2": 10}, timeout`, `split: {cart: 50, "cart-v2": 50}, timeout`))
	second := commit(t, repo)
	cli(t, 0, "sync", "--server", socket)
	cli(t, exitRefused, "status", "--server", socket, "--wait", "--commit", second)
	_, text := get(t, base+"/metrics")
	wants(t, text,
		`^sluice_xds_nacks_total\{type="routes"\} 1$`,
		`^sluice_xds_nacks_total\{type="clusters"\} 0$`,
		`^sluice_xds_ack_seconds_count\{type="clusters"\} [1-9]`,
		`^sluice_xds_response_bytes_total\{type="clusters"\} [1-9]`,
		`^sluice_xds_streams 1$`,
		`^sluice_xds_streams_ended_total\{reason="garbage"\} 0$`,
		`^sluice_session_convergence_seconds_count 1$`,
		`^sluice_git_poll_seconds_count 2$`,
		`^sluice_compile_seconds_count 2$`,
		`^sluice_rollout_seconds_count 1$`,
		`^sluice_rollout_halts_total 1$`,
		`^sluice_group_state\{group="edge",state="halted"\} 1$`,
		`^sluice_group_state\{group="edge",state="converged"\} 0$`,
		`^sluice_group_nodes\{condition="nacked",group="edge"\} 1$`,
		`^sluice_fault\{what="source"\} 0$`,
		`^go_goroutines `)
	if strings.Contains(text, "edge-1") {
		t.Error("a node is named")
	}
	stop()

	page, err := os.ReadFile("../../docs/metrics.md")
	must(t, err)
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(sluice_\\w+)` \\| (\\w+) \\| ([\\w, ]*)\\|").FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = strings.TrimSpace(m[2] + " " + strings.TrimSpace(m[3]))
	}
	if got := families(text); !maps.Equal(got, listed) {
		t.Errorf("docs/metrics.md lists\n%v\nand there are\n%v", listed, got)
	}
	for r := range ads.NumReasons {
		if !strings.Contains(string(page), "| `"+r.String()+"` |") {
			t.Errorf("docs/metrics.md does not say what %s is", r)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "sluice_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestMetricsStayOnThisMachine(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "localhost:9901": true, "[::1]:1": true,
		":9901": false, "0.0.0.0:9901": false, "10.0.0.1:9901": false, "[::]:9901": false, "example.com:9901": false,
	} {
		cfg := serverConfig{Repo: "https://git.example.com/x.git", Poll: 1, AckWait: 1, FilesPause: 1, Metrics: addr}
		err := cfg.check()
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "--metrics "+addr+": want a loopback address") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
