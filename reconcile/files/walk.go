package files

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/schema"
)

// Walker leads the files of groups along the paths of rollouts, each as a node of
// its group that acknowledges what it is given once a time has passed.
type Walker struct {
	dir   *Dir
	srv   *ads.Server
	guide ads.Guide
	log   *slog.Logger
	pause time.Duration

	wake chan struct{}

	mu     sync.Mutex
	groups []string
	live   schema.Snapshot
	walks  map[string]*walk // each is Run's once it was made
}

// NewWalker makes a Walker for a folder. Guide says what each group is to hold, and
// srv takes in how far its files are. Nodes are given pause to take in a stage:
// files acknowledge nothing.
func NewWalker(dir *Dir, srv *ads.Server, guide ads.Guide, pause time.Duration, log *slog.Logger) *Walker {
	return &Walker{dir: dir, srv: srv, guide: guide, log: log, pause: pause, wake: make(chan struct{}, 1), walks: map[string]*walk{}}
}

// Serve says which groups there are, and how the live types are served now. The
// files of a group that is not named any more stay as they are. When it returns
// the View has a session for each, so that no rollout ends without it.
func (w *Walker) Serve(groups []string, live schema.Snapshot) {
	w.mu.Lock()
	w.groups, w.live = groups, live
	for _, name := range groups {
		if w.walks[name] == nil {
			w.walks[name] = w.begin(name)
		}
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes files until ctx ends.
func (w *Walker) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		w.mu.Lock()
		live := w.live
		var walks []*walk
		for _, name := range w.groups {
			walks = append(walks, w.walks[name])
		}
		w.mu.Unlock()
		var due time.Time
		for _, k := range walks {
			if at := k.look(live); !at.IsZero() && (due.IsZero() || at.Before(due)) {
				due = at
			}
			if ctx.Err() != nil {
				return
			}
		}
		if !due.IsZero() {
			timer.Reset(time.Until(due))
		}
	}
}

// NodeID is by which the files of a group are known among its nodes.
func NodeID(group string) string { return "files:" + group }

// How often what failed is tried again, and how often live types are written.
const (
	again    = 5 * time.Second
	livePace = time.Second
)

// everything is what files ask for.
var everything = &schema.Subscription{Wildcard: true}

// walk is one group's files on their way. It mirrors what package ads does for a
// session, with files in place of a stream.
type walk struct {
	*Walker
	row    schema.SessionRow
	group  *Group // nil until the files were read
	target *schema.Target
	path   *schema.Path
	at     int
	facts  schema.Facts
	ready  time.Time // when nodes have taken in what was written last
	failed time.Time
	lived  time.Time // when live types were written last
}

func (w *Walker) begin(name string) *walk {
	k := &walk{Walker: w}
	k.row = schema.SessionRow{
		ID: w.srv.NewSession(), Node: schema.Node{ID: NodeID(name), UserAgent: "files", Pinned: name},
		Group: name, Peer: w.dir.at(fileName(name)), Connected: time.Now(), At: schema.Before,
	}
	row := k.row
	w.srv.Report(&row, nil, true)
	return k
}

// look does what is due, and says when to look again.
func (k *walk) look(live schema.Snapshot) (due time.Time) {
	now := time.Now()
	target, err := k.guide.Admit(k.row.Node, k.target)
	if err != nil {
		if k.target != nil {
			target = k.target
		} else {
			return time.Time{} // it is woken when there is something
		}
	}
	k.retarget(target)
	if k.row.Nack != nil && now.Before(k.failed.Add(again)) {
		k.report()
		return k.failed.Add(again)
	}
	due, err = k.proceed(live, now)
	if err != nil {
		k.fail(err, now)
		due = now.Add(again)
	} else if k.row.Nack != nil {
		k.log.Info("files are written again", "group", target.Group)
		k.row.Nack = nil
	}
	k.report()
	return due
}

// retarget takes another target in. What was planned for the same content stays.
func (k *walk) retarget(to *schema.Target) {
	if k.target == to || k.target != nil && to.Generation < k.target.Generation {
		return
	}
	if k.target != nil && k.target.Generation != to.Generation {
		k.facts.StageAt = time.Now() // tried again
		if k.row.Nack != nil {
			k.row.Nack, k.group, k.path = nil, nil, nil
		}
	}
	if k.target == nil || !k.target.Snapshot.Equal(to.Snapshot) || k.target.Drain != to.Drain {
		k.path = nil
	}
	k.target, k.facts.Hold = to, to.Hold
	k.row.Group, k.row.Commit, k.row.Generation = to.Group, to.Commit, to.Generation
}

// proceed reads the files if they were not, plans, and writes stages for as long
// as they may be.
func (k *walk) proceed(live schema.Snapshot, now time.Time) (due time.Time, err error) {
	if k.row.Nack != nil {
		k.group, k.path = nil, nil
	}
	if k.group == nil {
		if k.group, err = k.dir.Group(k.target.Group); err != nil {
			return due, err
		}
	}
	if k.path == nil {
		if err := k.plan(live, now); err != nil {
			return due, err
		}
	}
	for {
		if now.Before(k.ready) {
			k.row.Step = schema.Step{Verdict: schema.Wait, Cause: schema.Unacked, On: k.row.Step.On, Until: k.ready}
			due = k.ready
			break
		}
		step := k.guide.Step(k.path, k.at, &k.facts, now)
		k.row.Step, due = step, step.Until
		if step.Verdict == schema.Halt && k.at < k.path.Converged {
			k.facts.Hold = true
		}
		if step.Verdict != schema.Serve {
			break
		}
		if err := k.open(step.Stage, live, now); err != nil {
			return due, err
		}
	}
	return k.follow(live, now, due)
}

// plan puts the walk at the start of a path from what the files hold. Nodes that
// were given something lately are given the time to take it in.
func (k *walk) plan(live schema.Snapshot, now time.Time) error {
	held := keysOf(k.group.Held())
	k.path = k.guide.Path(schema.State{Acked: held, Blank: held.Len() == 0}, k.target)
	k.at = schema.Before
	k.facts = schema.Facts{Hold: k.target.Hold, StageAt: now}
	if k.ready.IsZero() && held.Len() > 0 {
		// Whatever wrote the files last may have done so just before it ended.
		k.ready = now.Add(k.pause)
	}
	k.learn(now)
	k.row.Planned, k.row.Stages = true, nil
	for _, st := range k.path.Stages {
		k.row.Stages = append(k.row.Stages, st.Kind)
	}
	if len(k.path.Stages) == 0 && !k.facts.Hold {
		return k.open(0, live, now)
	}
	return nil
}

// open writes a stage.
func (k *walk) open(stage int, live schema.Snapshot, now time.Time) error {
	to := k.bodies(k.path.At(stage), live)
	before := k.group.Held()
	if err := k.group.Write(to); err != nil {
		return err
	}
	k.at, k.facts.StageAt = stage, now
	if !before.Equal(to) {
		k.ready = time.Now().Add(k.pause)
		for _, t := range schema.AllTypes() {
			if !before.Of(t).Equal(to.Of(t)) {
				k.row.Step.On = schema.Key{Type: t}
			}
		}
		k.log.Info("files written", "group", k.target.Group, "commit", k.target.Commit, "stage", k.stage())
	}
	k.learn(k.ready)
	return nil
}

func (k *walk) stage() string {
	if k.at >= 0 && k.at < len(k.path.Stages) {
		return k.path.Stages[k.at].Kind.String()
	}
	return "all"
}

// learn takes what the files hold for acknowledged at a time.
func (k *walk) learn(at time.Time) {
	held := k.group.Held()
	for _, t := range schema.AllTypes() {
		f := &k.facts.Types[t]
		if f.Sub == nil || !f.Acked.Equal(held.Of(t)) {
			f.AckedAt = at
		}
		f.Sub, f.Acked = everything, held.Of(t)
	}
}

// follow writes live types that have changed, also in the middle of a stage and
// while the group is held. Nothing waits for it.
func (k *walk) follow(live schema.Snapshot, now, due time.Time) (time.Time, error) {
	to := k.bodies(keysOf(k.group.Held()), live)
	if to.Equal(k.group.Held()) {
		return due, nil
	}
	if next := k.lived.Add(livePace); now.Before(next) {
		if due.IsZero() || next.Before(due) {
			due = next
		}
		return due, nil
	}
	k.lived = now
	err := k.group.Write(to)
	k.learn(now)
	return due, err
}

// bodies gives the live resources of a snapshot their bodies: the newest, or those
// that the files hold.
func (k *walk) bodies(s schema.Snapshot, live schema.Snapshot) schema.Snapshot {
	held := k.group.Held()
	for _, t := range schema.AllTypes() {
		if !t.Live() {
			continue
		}
		var full []*schema.Resource
		for r := range s.Of(t).All() {
			for _, from := range [...]schema.Snapshot{live, held} {
				if b := from.Get(r.Key); b != nil {
					r = b
					break
				}
			}
			full = append(full, r)
		}
		s = s.Replace(t, schema.SetOf(full...))
	}
	return s
}

// keysOf is a snapshot with the keys alone of live types, as paths have them.
func keysOf(s schema.Snapshot) schema.Snapshot {
	for _, t := range schema.AllTypes() {
		if !t.Live() {
			continue
		}
		var keys []*schema.Resource
		for r := range s.Of(t).All() {
			keys = append(keys, schema.NewLive(r.Key))
		}
		s = s.Replace(t, schema.SetOf(keys...))
	}
	return s
}

// fail takes an error for a refusal, in its own words: the group halts where it
// is, and the files are tried again in a while.
func (k *walk) fail(err error, now time.Time) {
	k.failed = now
	if k.row.Nack == nil || k.row.Nack.Words != err.Error() {
		k.log.Error("files are not written", "group", k.target.Group, "why", err.Error())
		k.row.Nack = &schema.Nack{Words: err.Error(), At: now, Version: k.target.Snapshot.Version()}
	}
	k.row.Planned = true
	k.row.Step = schema.Step{Verdict: schema.Halt, Cause: schema.Refused}
}

// report tells the ledger how far the files are.
func (k *walk) report() {
	row := k.row
	row.At = k.at
	row.Converged = row.Nack == nil && k.path != nil &&
		(row.Step.Verdict == schema.Done || len(row.Stages) > 0 && row.Through(k.path.Converged-1))
	var types []*schema.TypeRow
	for _, t := range schema.AllTypes() {
		f := &k.facts.Types[t]
		if k.path == nil || f.Sub == nil || f.Acked.Len() == 0 {
			continue
		}
		want := k.bodies(k.path.At(k.at), schema.Snapshot{}).Of(t)
		types = append(types, &schema.TypeRow{
			Session: row.ID, Type: t, Wildcard: true, Held: f.Acked.Len(), Acked: f.Acked.Version(), Served: f.Acked.Version(),
			Desired: want.Version(), SentAt: f.AckedAt, AckedAt: f.AckedAt, AckedSet: f.Acked, ServedSet: f.Acked,
		})
		if !t.Live() && f.AckedAt.After(row.AckedAt) {
			row.AckedAt = f.AckedAt
		}
	}
	k.srv.Report(&row, types, false)
}
