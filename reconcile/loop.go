package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/reconcile/files"
	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/compile"
)

// Source gives the newest revision of a branch: a *Git.
type Source interface {
	// Poll may return a revision together with a *HistoryRewritten: the branch
	// no longer descends from what it was.
	Poll(ctx context.Context) (Revision, error)
	// Accept takes a commit as the branch's history from now on.
	Accept(commit string) error
}

// Options of a Loop.
type Options struct {
	Source Source
	Store  Store
	Log    *slog.Logger
	// Path is the folder of the repository that is compiled; "" is all of it.
	Path string
	// Poll is the time between two polls, give or take a tenth. Default 15 s.
	Poll time.Duration
	// Patience is how long a stage waits for its ACKs. Default 30 s.
	Patience time.Duration
	// AllowRewrite follows a branch whose history was rewritten. By default the
	// fleet keeps what it has until somebody has looked (rule T3).
	AllowRewrite bool
	// Files is where what the groups of Envoys hold is written as files, beside
	// being served; nil for nowhere. Nodes are given FilesPause, 15 s by default,
	// to take in a stage.
	Files      *files.Dir
	FilesPause time.Duration
	// Plan makes paths. Default planner.NewPath.
	Plan func(schema.State, *schema.Target) *schema.Path
	// Compile makes a fleet of a revision. Default compile.Fleet, of Path and with
	// a cache of the loop's own.
	Compile func(ctx context.Context, tree fs.FS, commit string) (*schema.Fleet, error)
	// Around, if set, is given what answers the wire, and what it returns answers
	// in its place: a simulation plants its faults here.
	Around func(ads.Guide) ads.Guide
}

// Loop drives the fleet to what Git desires. Make it with New, serve its Server,
// and Run it; Status may be called at any time.
type Loop struct {
	opts   Options
	guide  *guide
	server *ads.Server

	hints  chan struct{}
	status atomic.Pointer[Status]
	events *events
	files  *files.Walker // nil for none
	stats  Stats
	asks   chan ask

	// Owned by Run.
	groups   map[string]*group
	live     schema.Snapshot
	source   SourceStatus
	rejected *Rejected
	failing  string // why the store was not written
	spent    Spent
	ops      Operators
	unsaved  bool // of ops
	untidy   bool // live bodies may be left that nothing names
}

// New loads the store: until it is loaded nobody is served, and after that
// everyone is served what the store says, with or without Git.
func New(opts Options) (*Loop, error) {
	if opts.Poll <= 0 {
		opts.Poll = 15 * time.Second
	}
	if opts.Patience <= 0 {
		opts.Patience = 30 * time.Second
	}
	if opts.FilesPause <= 0 {
		opts.FilesPause = 15 * time.Second
	}
	if opts.Plan == nil {
		opts.Plan = planner.NewPath
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Around == nil {
		opts.Around = func(g ads.Guide) ads.Guide { return g }
	}
	if opts.Compile == nil {
		cache := compile.NewCache("")
		opts.Compile = func(ctx context.Context, tree fs.FS, commit string) (*schema.Fleet, error) {
			return compile.Fleet(ctx, tree, compile.Options{Path: opts.Path, Commit: commit, Cache: cache, Salvage: true})
		}
	}
	l := &Loop{opts: opts, guide: newGuide(opts.Plan), hints: make(chan struct{}, 1), groups: map[string]*group{}}
	st, err := opts.Store.Load()
	if err != nil {
		return nil, err
	}
	around := opts.Around(l.guide)
	l.server = ads.New(around, opts.Log)
	if opts.Files != nil {
		l.files = files.NewWalker(opts.Files, l.server, around, opts.FilesPause, opts.Log)
	}
	l.events, l.asks, l.ops = newEvents(time.Now()), make(chan ask), st.Operators
	l.live = st.Live
	l.server.Live(st.Live)
	now := time.Now()
	for name, g := range st.Groups {
		l.groups[name] = &group{GroupState: g, asking: asking{ops: &l.ops}, written: g.Generation, opened: now, cut: g.Target != nil, awaited: awaited(g.Nodes, now.Add(opts.Patience))}
	}
	if len(l.groups) > 0 {
		l.assign()
	}
	l.publish()
	return l, nil
}

// Server is the xDS side.
func (l *Loop) Server() *ads.Server { return l.server }

// Sync has Git polled now.
func (l *Loop) Sync() {
	select {
	case l.hints <- struct{}{}:
	default:
	}
}

// found is the outcome of one poll.
type found struct {
	rev     Revision
	err     error
	fleet   *schema.Fleet // nil when the commit is the one compiled last
	invalid error
	at      time.Time
	spent   Spent
}

// Run drives the fleet until ctx ends. It owns two goroutines, one that polls and
// compiles and one that writes files, and waits for them.
func (l *Loop) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	polls := make(chan found)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.poll(ctx, polls)
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if l.files != nil {
			l.files.Run(ctx)
		}
	}()
	defer func() { cancel(); <-done; <-written; l.server.Close() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.look()
			l.repair()
		case <-ctx.Done():
			return nil
		case f := <-polls:
			l.take(f)
		case a := <-l.asks:
			l.hear(a)
		case <-l.server.Changes():
			l.look()
		}
		l.publish()
	}
}

// poll asks Git again and again, and compiles what is new.
func (l *Loop) poll(ctx context.Context, out chan<- found) {
	last := ""
	for {
		f := l.pollOnce(ctx, last)
		if f.rev.Commit != "" && f.err == nil {
			last = f.rev.Commit
		}
		select {
		case out <- f:
		case <-ctx.Done():
			return
		}
		wait := time.NewTimer(time.Duration(float64(l.opts.Poll) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-wait.C:
		case <-l.hints:
			wait.Stop()
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}

func (l *Loop) pollOnce(ctx context.Context, last string) found {
	began := time.Now()
	rev, err := l.opts.Source.Poll(ctx)
	if rewritten := new(HistoryRewritten); l.opts.AllowRewrite && errors.As(err, &rewritten) {
		l.opts.Log.Warn("history rewritten: followed", "branch", rewritten.Branch, "old", rewritten.Old, "new", rewritten.New)
		err = l.opts.Source.Accept(rev.Commit)
	}
	f := found{rev: rev, err: err, at: began}
	f.spent.Fetch = time.Since(began)
	l.stats.Polls.Observe(f.spent.Fetch)
	if err != nil {
		l.stats.PollErrors.Add(1)
	}
	l.opts.Log.Debug("polled", "commit", rev.Commit, "seconds", f.spent.Fetch.Seconds())
	if err != nil || rev.Commit == last {
		return f
	}
	began = time.Now()
	f.fleet, f.invalid = l.compile(ctx, rev.FS, rev.Commit)
	f.spent.Compile = time.Since(began)
	l.stats.Compiles.Observe(f.spent.Compile)
	if f.invalid != nil {
		l.stats.Rejected.Add(1)
	}
	l.opts.Log.Debug("compiled", "commit", rev.Commit, "seconds", f.spent.Compile.Seconds())
	return f
}

// compile survives what a commit does to the compiler: a server that falls over
// it would do so again after each restart.
func (l *Loop) compile(ctx context.Context, tree fs.FS, commit string) (fleet *schema.Fleet, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.opts.Log.Error("the compiler panics", "commit", commit, "why", r, "stack", string(debug.Stack()))
			fleet, err = nil, fmt.Errorf("the compiler panics, which is a bug of sluice: %v", r)
		}
	}()
	return l.opts.Compile(ctx, tree, commit)
}

// take takes in a poll. Whatever went wrong, the fleet keeps what it has.
func (l *Loop) take(f found) {
	if errors.Is(f.err, context.Canceled) || errors.Is(f.invalid, context.Canceled) {
		return
	}
	l.source.PolledAt = f.at
	if f.err != nil {
		if l.source.Error != f.err.Error() {
			l.opts.Log.Error("cannot read Git", "why", f.err.Error())
		}
		l.source.Error = f.err.Error()
		return
	}
	l.source.Error = ""
	if f.fleet == nil && f.invalid == nil {
		return
	}
	l.source.Commit, l.source.Author, l.source.Subject, l.source.SeenAt = f.rev.Commit, f.rev.Author, f.rev.Subject, f.at
	if f.invalid != nil {
		l.rejected = &Rejected{Commit: f.rev.Commit, Why: f.invalid.Error()}
		l.opts.Log.Error("commit rejected: every node keeps what it has", "commit", f.rev.Commit, "why", f.invalid.Error())
		return
	}
	l.rejected = nil
	l.spent = f.spent
	l.enroll(f.rev, f.at)
	l.desire(f.fleet)
	l.proceed()
}
