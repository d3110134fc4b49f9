package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// history is one run: what its seed says.
type history struct {
	seed  uint64
	rng   *rand.Rand
	fault fault

	teams  []*team
	author *author
	source source
	saved  saved
	plane  *plane
	procs  []*proc // the older generation of a node first
	// base is the number of the commit that each group finished, turn of the
	// newest one that was its turn.
	base, turn map[string]int
	done       map[string]schema.Version // what each group took last, until it is given other things
	must       map[span]map[request]bool

	mu      sync.Mutex
	began   time.Time
	commits []*commit
	lines   []string
	failure string
	holes   int // requests that were black-holed
	retries int // by the operator, since the last commit
}

// span is what a process of a group may be given.
type span struct {
	team     string
	from, to int
}

// failed is how a history went wrong.
type failed struct {
	seed  uint64
	what  string
	holes int
	log   string
}

func (f *failed) Error() string {
	return fmt.Sprintf("seed %d: %s\n%s\nseed %d: %s\nagain: go test ./test/sim -run TestHistories -seed %d", f.seed, f.what, f.log, f.seed, f.what, f.seed)
}

// run lives through the history of a seed.
func run(t *testing.T, seed uint64, f fault) (err *failed) {
	synctest.Test(t, func(*testing.T) {
		h := &history{
			seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), fault: f, began: time.Now(),
			base: map[string]int{}, done: map[string]schema.Version{}, turn: map[string]int{}, must: map[span]map[request]bool{},
		}
		h.live()
		if h.failure != "" {
			err = &failed{seed, h.failure, h.holes, strings.Join(h.lines, "\n")}
		}
	})
	return err
}

func (h *history) log(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%12.3fs  ", time.Since(h.began).Seconds())+fmt.Sprintf(format, args...))
}

// fail ends the history. The first failure counts.
func (h *history) fail(format string, args ...any) {
	h.log("FAILS: "+format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == "" {
		h.failure = fmt.Sprintf(format, args...)
	}
}

func (h *history) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure != ""
}

// live is the whole of it: a fleet comes up, lives through commits and accidents,
// and is left in peace, in which it must come to what the last commit says.
func (h *history) live() {
	h.found()
	h.start()
	for range 1 + h.rng.IntN(2) {
		for _, t := range h.teams {
			h.spawn(t, fmt.Sprintf("%s-%d", t.name, len(h.procs)%2), 0)
		}
	}
	h.peace(func() bool { return h.settled() == "" }, time.Hour)
	for n := 60 + h.rng.IntN(200); n > 0 && !h.over(); n-- {
		h.act()
	}
	h.end()
	if h.plane != nil {
		h.plane.fuse.Store(0)
	}
	h.crash()
}

// found draws the groups and the first commit.
func (h *history) found() {
	drain := func() time.Duration {
		if h.rng.IntN(3) == 0 {
			return time.Duration(h.rng.IntN(20)) * time.Second
		}
		return -1
	}
	edge := &team{name: "edge", client: schema.Envoy, drain: drain()}
	front := &team{name: "front", client: schema.GRPC, drain: -1}
	switch h.rng.IntN(4) {
	case 0:
		h.teams = []*team{edge}
	case 1:
		h.teams = []*team{front}
	case 2:
		h.teams = []*team{edge, front}
	default:
		edge.after = []string{"front"}
		h.teams = []*team{edge, front}
	}
	h.author = &author{rng: h.rng, ever: map[string]bool{}}
	c := &commit{id: fmt.Sprintf("%040d", 0), groups: map[string]conf{}, live: map[string]hosts{}}
	for _, t := range h.teams {
		h.author.first(c, t)
	}
	c.lower(h.teams)
	h.merge(c, "the first")
}

// merge has a commit polled.
func (h *history) merge(c *commit, words string) {
	h.log("commit %d: %s", c.number, words)
	for _, t := range h.teams {
		if n := len(h.commits); n > 0 && !h.commits[n-1].snapshotOf(t).Equal(c.snapshotOf(t)) {
			delete(h.done, t.name)
		}
		h.log("  %s %s after %v drain %s:\n%s", t.name, t.client, t.after, t.drain, c.groups[t.name])
	}
	h.mu.Lock()
	h.commits = append(h.commits, c)
	h.mu.Unlock()
	h.look() // it may be a group's turn already
	h.source.set(c.id)
	if h.plane != nil {
		h.plane.loop.Sync()
	}
	h.wait()
}

// wait lets the server do all that it has to do now.
func (h *history) wait() {
	h.look() // what somebody did may have made it a group's turn
	synctest.Wait()
	if h.plane != nil && h.plane.dead.Load() {
		h.crash()
	}
	h.look()
}

// look takes note of which groups have finished what, and whose turn it is.
func (h *history) look() {
	if h.plane != nil {
		for _, g := range h.plane.loop.Status().Groups {
			if n, err := strconv.Atoi(strings.TrimLeft(g.Base, "0") + ""); err == nil {
				h.base[g.Name] = n
			}
		}
	}
	last := h.commits[len(h.commits)-1]
	for _, t := range h.teams {
		if h.took(t, last) {
			h.done[t.name] = last.snapshotOf(t).Version()
		}
	}
	for _, t := range h.teams {
		if !slices.ContainsFunc(h.teams, func(f *team) bool {
			return slices.Contains(t.after, f.name) && h.done[f.name] != last.snapshotOf(f).Version()
		}) {
			h.turn[t.name] = last.number
		}
	}
}

// took reports whether every node of a group that the server knows of has taken a
// commit.
func (h *history) took(t *team, c *commit) bool {
	for _, p := range h.procs {
		if p.team == t && p.wire != nil && p.wire.heard && h.newest(p) && !p.model.exact(c.snapshotOf(t)) {
			return false
		}
	}
	return true
}

// newest reports whether a process is its node's newest.
func (h *history) newest(p *proc) bool {
	for _, q := range h.procs {
		if q.id == p.id && q.gen > p.gen {
			return false
		}
	}
	return true
}

// inTurn fails if a process is sent what only commits say whose turn has not
// come.
func (h *history) inTurn(p *proc, m *message) {
	if m.t.Live() || len(p.team.after) == 0 {
		return
	}
	for _, it := range m.items {
		turn, late := false, -1
		for i, c := range h.commits {
			if r := c.snapshotOf(p.team).Get(it.Key); r != nil && r.Version == it.bare {
				turn, late = turn || i <= h.turn[p.team.name], i
			}
		}
		if !turn && late >= 0 {
			h.fail("%s is sent %s of commit %d before its turn", p, it.Key, late)
			h.state()
		}
	}
}

// expected lists the requests that a process must answer: those that every
// commit answers which it may be given.
func (h *history) expected(p *proc) map[request]bool {
	s := span{p.team.name, min(p.held, h.base[p.team.name]), len(h.commits) - 1}
	if m, ok := h.must[s]; ok {
		return m
	}
	m := answered(h.commits[s.from].snapshotOf(p.team))
	for _, c := range h.commits[s.from+1:] {
		has := answered(c.snapshotOf(p.team))
		for r := range m {
			if !has[r] {
				delete(m, r)
			}
		}
	}
	h.must[s] = m
	return m
}

// settled says what is missing until every node holds what the last commit says.
func (h *history) settled() string {
	last := h.commits[len(h.commits)-1]
	if h.plane == nil {
		return "there is no server"
	}
	for _, p := range h.procs {
		if !h.newest(p) {
			continue
		}
		if p.wire == nil {
			return fmt.Sprintf("%s is not connected", p)
		}
		if why := p.model.whole(last.snapshotOf(p.team)); why != "" {
			return fmt.Sprintf("%s: %s", p, why)
		}
	}
	for _, g := range h.plane.loop.Status().Groups {
		if g.Base != last.id || g.Target != "" {
			return fmt.Sprintf("group %s is %s: %s", g.Name, g.State, g.Why)
		}
	}
	return ""
}

// state writes down where everybody stands, as the control plane sees it.
func (h *history) state() {
	if h.plane == nil {
		return
	}
	for _, g := range h.plane.loop.Status().Groups {
		h.log("group %s is %s: %s; base %s target %s next %s", g.Name, g.State, g.Why, strings.TrimLeft(g.Base, "0"), strings.TrimLeft(g.Target, "0"), strings.TrimLeft(g.Next, "0"))
	}
	for _, s := range h.plane.loop.Server().View().Sessions() {
		h.log("session %s of generation %d at %d of %v: %s", s.Node.ID, s.Generation, s.At, s.Stages, s.Step)
	}
}

// halted reports whether the control plane has said itself that it does not go on,
// again and again, and counts it: that is seen, and nothing is lost by it.
func (h *history) halted() bool {
	if h.retries < 2 || *strict {
		return false
	}
	halts.Lock()
	defer halts.Unlock()
	halts.seeds = append(halts.seeds, h.seed)
	return true
}

// halts are the histories that end in a halt which neither a retry nor another
// commit mends.
var halts struct {
	sync.Mutex
	seeds []uint64
}

// end mends what is refused, and leaves the fleet alone until it has settled: with
// an operator who retries what is halted and, if that does not help, merges once
// more.
func (h *history) end() {
	for _, words := range []string{"mends what is refused", "tries once more"} {
		if h.over() {
			return
		}
		h.log("peace")
		h.retries = 0
		if h.plane != nil {
			h.plane.fuse.Store(-1)
		}
		h.merge(h.author.mend(h.commits[len(h.commits)-1], h.teams), words)
		h.peace(func() bool { return h.settled() == "" }, time.Hour)
		if h.settled() == "" {
			return
		}
	}
	if !h.over() && !h.halted() {
		h.state()
		h.fail("two hours of peace do not settle it: %s", h.settled())
	}
}
