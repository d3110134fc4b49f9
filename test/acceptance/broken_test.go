package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

const brokenRate = 200 // requests a second of each client

// loaded is a rig whose clients are served by one service, under load.
func loaded(t *testing.T, clients int, labels ...string) (*rig, map[string]string) {
	t.Helper()
	r := newRig(t, 2*time.Minute)
	r.serve()
	addrs := map[string]string{}
	for _, l := range labels {
		addrs[l] = r.backend(l)
	}
	r.merge("everything to "+labels[0], to(labels[0], addrs[labels[0]]))
	r.clients(clients)
	r.settle()
	r.load(brokenRate, labels[0])
	r.requests(100)
	return r, addrs
}

// move merges a change of the route to one service and waits until it is
// everywhere.
func (r *rig) move(from, service, addr string) {
	r.t.Helper()
	r.route.Only(from, service)
	r.merge("everything to "+service, to(service, addr))
	r.settle()
	r.route.Only(service)
	r.run.Mark()
	if got := r.requests(100); got.ByLabel[service] != got.Requests {
		r.t.Errorf("after %s: answers %v", short(r.commit), got.ByLabel)
	}
}

// A commit that does not compile changes nothing, and says where it is wrong.
func TestBrokenCommit(t *testing.T) {
	skipShort(t)
	t.Parallel() // most of it is waiting
	r, addrs := loaded(t, 2, "svc-00", "svc-01")
	good := r.commit
	for _, broken := range []struct{ text, instead, at, words string }{
		{`protocol: "grpc"`, `protocl: "grpc"`, "protocl", "protocl"},
		{`{"svc-01": 100}`, `{"svc-1": 100}`, `rules:`, "svc-1"},
		{`services: {`, `services: {{`, "", ""}, // cannot be parsed: the end of the file is to blame
	} {
		files := to("svc-01", addrs["svc-01"]).files()
		files[file] = strings.Replace(files[file], broken.text, broken.instead, 1)
		commit := r.mergeFiles("broken: "+broken.instead, files)
		st := r.await("the commit to be rejected", func(st *reconcile.Status) bool {
			return st.Rejected != nil && st.Rejected.Commit == commit
		})
		want := file + ":"
		if broken.at != "" {
			want = fmt.Sprintf("%s:%d:", file, lineOf(files, broken.at))
		}
		if !strings.Contains(st.Rejected.Why, want) || !strings.Contains(st.Rejected.Why, broken.words) {
			t.Errorf("%s: rejected because of %q: want %s and %q", broken.instead, st.Rejected.Why, want, broken.words)
		}
		if out, err := r.proc.run(r.ctx, "status", "--server", r.proc.socket); err != nil || !strings.Contains(out, want) {
			t.Errorf("sluice status: %v: want %s in:\n%s", err, want, out)
		}
		g := groupOf(st, "frontends")
		if g.State != reconcile.Converged || g.Base != good || g.Done != 2 {
			t.Errorf("%s: the group is %s at %s, %d done: want it to stay", broken.instead, g.State, short(g.Base), g.Done)
		}
		r.requests(50)
	}
	r.move("svc-00", "svc-01", addrs["svc-01"])
	if r.last.Rejected != nil {
		t.Errorf("after the fix: %+v is still rejected", r.last.Rejected)
	}
	r.unfailed("broken commits", r.run.Stop())
}

// Without its branch the server keeps the fleet as it is, over a restart too,
// and serves newcomers; it goes on when the branch is back.
func TestBranchDeleted(t *testing.T) {
	skipShort(t)
	t.Parallel() // most of it is waiting
	r, addrs := loaded(t, 2, "svc-00", "svc-01")
	branch := filepath.Join(r.dir, "config.git", "refs", "heads", "main")
	// Another branch is not what was asked for.
	if err := os.Rename(branch, filepath.Join(filepath.Dir(branch), "other")); err != nil {
		t.Fatal(err)
	}
	gone := func(st *reconcile.Status) bool { return st.Source.Error != "" }
	keeps := func(st *reconcile.Status) bool {
		g := groupOf(st, "frontends")
		return gone(st) && g.State == reconcile.Converged && g.Base == r.commit && g.Done == r.want["frontends"] && g.Expected == 0
	}
	st := r.await("the source to fail", gone)
	if !keeps(st) || !strings.Contains(st.Source.Error, "branch") {
		t.Errorf("source error %q; groups %+v", st.Source.Error, st.Groups)
	}
	r.clients(1)
	r.await("a newcomer to be served", keeps)
	r.proc.kill()
	r.restart()
	r.clients(1)
	r.await("everybody to be back after a restart without Git", keeps)
	r.requests(100)
	r.move("svc-00", "svc-01", addrs["svc-01"])
	if r.last.Source.Error != "" {
		t.Errorf("the branch is back, and the source says %q", r.last.Source.Error)
	}
	r.unfailed("without the branch", r.run.Stop())
}

// A second commit in the middle of a rollout is reached without a failure, from
// wherever the first one got to, and back to where it began too.
func TestSecondCommit(t *testing.T) {
	skipShort(t)
	n := 6
	if long {
		n = 30
	}
	r, addrs := loaded(t, 3, "svc-00", "svc-01", "svc-02", "svc-03")
	at := "svc-00"
	stages := func(st *reconcile.Status, k schema.StageKind) bool {
		g := groupOf(st, "frontends")
		return g.Base == r.commit || g.Target == r.commit && slices.ContainsFunc(g.Stages, func(s reconcile.StageStatus) bool { return s.Stage == k && s.Acked > 0 })
	}
	for i := range n {
		var others []string
		for _, l := range []string{"svc-00", "svc-01", "svc-02", "svc-03"} {
			if l != at {
				others = append(others, l)
			}
		}
		first, second := others[i%3], others[(i+1)%3]
		if i%4 == 3 {
			second = at // a revert
		}
		r.route.Only(at, first, second)
		one := r.merge("everything to "+first, to(first, addrs[first]))
		when := ""
		switch i % 3 {
		case 0:
			when = "at once"
		case 1:
			when = "when it was read"
			r.await("the first commit to be read", func(st *reconcile.Status) bool { return st.Source.Commit == one })
		case 2:
			when = "when a node is warm"
			r.await("the first commit to be under way", func(st *reconcile.Status) bool { return stages(st, schema.Warm) })
		}
		r.merge("everything to "+second, to(second, addrs[second]))
		r.settle()
		r.route.Only(second)
		tally := r.run.Mark()
		after := r.requests(100)
		t.Logf("%2d  %s → %s → %s %-20s  %4.2fs  %5d requests  %d failed", i+1, at, first, second, when, time.Since(r.merged).Seconds(),
			tally.Requests, tally.Failures)
		if after.ByLabel[second] != after.Requests {
			t.Errorf("the second commit says %s, and the answers are %v", second, after.ByLabel)
		}
		at = second
	}
	r.unfailed("second commits", r.run.Stop())
}
