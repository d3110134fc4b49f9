package files_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/reconcile/files"
	"github.com/sluice-xds/sluice/schema"
)

// config is a fleet of one group of Envoys, whose requests go to one service.
func config(service, host string) map[string]string {
	return map[string]string{"fleet.cue": fmt.Sprintf(`package fleet

import "github.com/sluice-xds/sluice/schema"

groups: edge: schema.#Group & {client: "envoy", match: id: "edge-*", rollout: drain: "0s"}
groups: mesh: schema.#Group & {client: "grpc", match: id: "mesh-*"}
listeners: web: schema.#Listener & {groups: ["edge"], bind: "0.0.0.0:8080"}
listeners: mesh: schema.#Listener & {groups: ["mesh"], target: "shop.mesh"}
routes: web: schema.#Routes & {listeners: ["web"], hosts: ["*"], rules: [{match: prefix: "/", service: %[1]q}]}
routes: mesh: schema.#Routes & {listeners: ["mesh"], hosts: ["shop.mesh"], rules: [{match: prefix: "/", service: %[1]q}]}
services: %[1]q: schema.#Service & {endpoints: [{address: %[2]q}]}
`, service, host)}
}

// server is a control plane that writes files, and can be started again.
type server struct {
	t     *testing.T
	repo  *reconcile.Scratch
	state string
	files string
	pause time.Duration
	log   *logs

	loop *reconcile.Loop
	stop func()
}

type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newServer(t *testing.T, pause time.Duration) *server {
	t.Helper()
	s := &server{t: t, state: t.TempDir(), files: t.TempDir(), pause: pause, log: &logs{}, stop: func() {}}
	var err error
	if s.repo, err = reconcile.NewScratch(filepath.Join(t.TempDir(), "config.git")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) start() {
	s.t.Helper()
	git, err := reconcile.OpenGit(reconcile.GitOptions{URL: s.repo.URL(), Dir: filepath.Join(s.state, "clone")})
	s.check(err)
	store, err := reconcile.OpenStore(filepath.Join(s.state, "state.db"))
	s.check(err)
	dir, err := files.Open(s.files, "")
	s.check(err)
	s.loop, err = reconcile.New(reconcile.Options{
		Source: git, Store: store, Log: slog.New(slog.NewTextHandler(s.log, nil)), Poll: time.Hour, Patience: 20 * time.Second,
		Files: dir, FilesPause: s.pause,
	})
	s.check(err)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := s.loop.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	s.stop = func() {
		cancel()
		run.Wait()
		s.check(store.Close())
		s.check(git.Close())
		s.check(dir.Close())
		s.stop = func() {}
	}
}

func (s *server) merge(files map[string]string) string {
	s.t.Helper()
	commit, err := s.repo.Merge("a change", files)
	s.check(err)
	if s.loop != nil {
		s.loop.Sync()
	}
	return commit
}

// until waits for something to be so.
func (s *server) until(what string, ok func(edge reconcile.GroupStatus) bool) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, g := range s.loop.Status().Groups {
			if g.Name == "edge" && ok(g) {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("waited in vain for %s: %+v\n%s", what, s.loop.Status().Groups, s.log)
		}
	}
}

func (s *server) done(commit string) {
	s.t.Helper()
	s.until("edge to be done with "+commit, func(g reconcile.GroupStatus) bool {
		return g.State == reconcile.Converged && g.Base == commit && g.Connected == 1 && g.Done == 1
	})
}

func (s *server) read(file string) string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.files, "edge", file))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(data)
}

func (s *server) holds(t schema.Type, names ...string) {
	s.t.Helper()
	text := s.read(t.String() + ".json")
	for _, name := range names {
		gone := strings.HasPrefix(name, "!")
		if strings.Contains(text, fmt.Sprintf("%q", strings.TrimPrefix(name, "!"))) == gone {
			s.t.Errorf("of %s the files hold %s, want %s", t, text, name)
		}
	}
}

// A rollout by files takes the stages of any other, one after another, and a node
// that reads all the while finds all that is named.
func TestRolloutByFiles(t *testing.T) {
	s := newServer(t, 300*time.Millisecond)
	first := s.merge(config("one", "10.0.0.1:80"))
	node := files.Watch(filepath.Join(s.files, "edge"))
	defer node.End(t)
	s.start()
	s.done(first)
	s.holds(schema.Clusters, "one")

	before := s.read("routes/web.json")
	second := s.merge(config("two", "10.0.0.2:80"))
	s.until("the clusters", func(reconcile.GroupStatus) bool { return strings.Contains(s.read("clusters.json"), `"two"`) })
	made := time.Now()
	if now := s.read("routes/web.json"); now != before {
		t.Errorf("the routes changed with the clusters: %s", now)
	}
	s.holds(schema.Clusters, "one", "two")
	s.until("the routes", func(reconcile.GroupStatus) bool { return s.read("routes/web.json") != before })
	if d := time.Since(made); d < s.pause-50*time.Millisecond {
		t.Errorf("the routes came %s after the clusters", d)
	}
	s.holds(schema.Clusters, "one", "two")
	s.done(second)
	s.holds(schema.Clusters, "!one", "two")
	s.holds(schema.Endpoints, "!one", "two")

	// Endpoints change at once, and alone.
	clusters := s.read("clusters.json")
	s.merge(config("two", "10.0.0.9:80"))
	s.until("the endpoints", func(reconcile.GroupStatus) bool { return strings.Contains(s.read("endpoints/two.json"), "10.0.0.9") })
	if s.read("clusters.json") != clusters {
		t.Error("the clusters were written for it")
	}

	// A group that vanishes keeps its files.
	gone := s.merge(map[string]string{"fleet.cue": strings.ReplaceAll(strings.ReplaceAll(config("two", "10.0.0.9:80")["fleet.cue"], "edge", "other"), "web", "new")})
	s.until("the group to be gone", func(g reconcile.GroupStatus) bool {
		return g.State == reconcile.Gone && s.loop.Status().Source.Commit == gone
	})
	s.until("the other's files", func(reconcile.GroupStatus) bool {
		_, err := os.Stat(filepath.Join(s.files, "other", "listeners.json"))
		return err == nil
	})
	s.holds(schema.Clusters, "two")
	s.holds(schema.Routes, "web")
	if _, err := os.Stat(filepath.Join(s.files, "mesh")); !os.IsNotExist(err) {
		t.Errorf("there are files for gRPC clients, which read none: %v", err)
	}
}

// A restart goes on from what the files hold, wherever the last process ended.
func TestRestartGoesOnFromTheFiles(t *testing.T) {
	s := newServer(t, 200*time.Millisecond)
	first := s.merge(config("one", "10.0.0.1:80"))
	node := files.Watch(filepath.Join(s.files, "edge"))
	defer node.End(t)
	s.start()
	s.done(first)
	untouched := s.read("listeners.json")
	for i, name := range []string{"two", "three", "four"} {
		commit := s.merge(config(name, "10.0.0.2:80"))
		s.until("the clusters", func(reconcile.GroupStatus) bool {
			return strings.Contains(s.read("clusters.json"), fmt.Sprintf("%q", name))
		})
		if i == 1 {
			s.until("the routes", func(reconcile.GroupStatus) bool { return strings.Contains(s.read("routes.json"), `"three"`) })
		}
		s.stop()
		s.start()
		s.done(commit)
		s.holds(schema.Clusters, name, "!one")
	}
	if s.read("listeners.json") != untouched {
		t.Error("the listeners were written anew")
	}
	// And with nothing to do, nothing is written.
	info, err := os.Stat(filepath.Join(s.files, "edge", "routes", "web.json"))
	s.check(err)
	commit := s.loop.Status().Source.Commit
	s.stop()
	s.start()
	s.done(commit)
	again, err := os.Stat(filepath.Join(s.files, "edge", "routes", "web.json"))
	s.check(err)
	if !os.SameFile(info, again) {
		t.Error("it was written again")
	}
}

// A file that somebody changed halts the group, in words, and nothing is lost.
func TestHandEditHaltsTheGroup(t *testing.T) {
	s := newServer(t, 50*time.Millisecond)
	first := s.merge(config("one", "10.0.0.1:80"))
	s.start()
	s.done(first)
	file := filepath.Join(s.files, "edge", "clusters.json")
	good := s.read("clusters.json")
	s.check(os.WriteFile(file, []byte(strings.Replace(good, "one", "uno", 1)), 0o644))
	edited := s.read("clusters.json")
	second := s.merge(config("two", "10.0.0.2:80"))
	s.until("a halt", func(g reconcile.GroupStatus) bool {
		return g.State == reconcile.Halted && strings.HasPrefix(g.Halt.Cause, "cannot go on from the files of group edge: "+file+": it is not as sluice wrote it")
	})
	if s.read("clusters.json") != edited || !strings.Contains(s.read("routes.json"), `"one"`) {
		t.Error("something was written")
	}
	if !strings.Contains(s.log.String(), "files are not written") {
		t.Error("it is not in the log")
	}
	s.check(os.WriteFile(file, []byte(good), 0o644))
	_, err := s.loop.Do(t.Context(), reconcile.Intent{Verb: reconcile.Retry, Group: "edge", By: "test"})
	s.check(err)
	s.done(second)
	s.holds(schema.Clusters, "two", "!one")

	// While it is held nothing is written; moved away, all is written anew.
	s.check(os.Rename(filepath.Join(s.files, "edge"), filepath.Join(s.files, "old")))
	third := s.merge(config("three", "10.0.0.3:80"))
	s.until("a halt", func(g reconcile.GroupStatus) bool { return g.State == reconcile.Halted })
	_, err = s.loop.Do(t.Context(), reconcile.Intent{Verb: reconcile.Retry, Group: "edge", By: "test"})
	s.check(err)
	s.done(third)
	s.holds(schema.Clusters, "three", "!two")
}

// What operators ask of a group holds for its files: a pause opens no stage, while
// endpoints go on; an abort walks back.
func TestPauseAndAbort(t *testing.T) {
	s := newServer(t, 500*time.Millisecond)
	first := s.merge(config("one", "10.0.0.1:80"))
	node := files.Watch(filepath.Join(s.files, "edge"))
	defer node.End(t)
	s.start()
	s.done(first)
	ask := func(verb string) {
		t.Helper()
		_, err := s.loop.Do(t.Context(), reconcile.Intent{Verb: verb, Group: "edge", By: "test"})
		s.check(err)
	}
	s.merge(config("two", "10.0.0.2:80"))
	s.until("the clusters", func(reconcile.GroupStatus) bool { return strings.Contains(s.read("clusters.json"), `"two"`) })
	ask(reconcile.Pause)
	routes := s.read("routes.json")
	s.until("the stage to be over", func(g reconcile.GroupStatus) bool {
		return len(g.Stages) > 0 && g.Stages[0].Acked == 1 && strings.HasPrefix(s.loop.Status().Nodes[0].Why, "held: ")
	})
	s.merge(config("two", "10.0.0.9:80"))
	s.until("the endpoints", func(reconcile.GroupStatus) bool { return strings.Contains(s.read("endpoints/two.json"), "10.0.0.9") })
	if s.read("routes.json") != routes {
		t.Error("the routes were written in the pause")
	}
	ask(reconcile.Resume)
	s.until("the routes", func(reconcile.GroupStatus) bool { return strings.Contains(s.read("routes.json"), `"two"`) })
	ask(reconcile.Abort)
	s.until("the way back", func(g reconcile.GroupStatus) bool {
		return g.State == reconcile.ParkedState && g.Done == 1
	})
	s.holds(schema.Clusters, "one", "!two")
	s.holds(schema.Routes, "one", "!two")
}
