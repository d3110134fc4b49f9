package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// The verbs of an Intent (rule R7).
const (
	Pause   = "pause"   // nothing new is served; live types go on
	Resume  = "resume"  // the end of a pause
	Abort   = "abort"   // walk back to the base, and park the commit
	Retry   = "retry"   // forget what was refused, and try again
	Promote = "promote" // do not wait any longer
)

// Verbs lists them all.
var Verbs = []string{Pause, Resume, Promote, Abort, Retry}

// Intent is what an operator asks for.
type Intent struct {
	Verb  string `json:"verb"`
	Group string `json:"group,omitempty"` // "" is every group where it makes sense
	// Commit is what the operator saw, or the first digits of it, or the number
	// of its rollout: groups that are about another are left alone. The number
	// may stand for Group too.
	Commit string `json:"commit,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"` // say what it would do
	// Plan is what the operator has read, by group: if a group would do something
	// else by now, nothing is done (rule R7).
	Plan map[string]Ends `json:"plan,omitempty"`
	By   string          `json:"-"`
}

// Outcome is what an intent does, or would do.
type Outcome struct {
	Verb   string         `json:"verb"`
	DryRun bool           `json:"dry_run,omitempty"`
	Groups []GroupOutcome `json:"groups"`
}

// GroupOutcome is what it does to one group.
type GroupOutcome struct {
	Group  string `json:"group"`
	Commit string `json:"commit"` // that it is about
	// Rollout is the commit's number.
	Rollout Number `json:"rollout,omitzero"`
	Nodes   int    `json:"nodes"`
	Words   string `json:"words"`
}

// IntentError says why an intent makes no sense now, and what does.
type IntentError struct{ Why string }

func (e *IntentError) Error() string { return e.Why }

// Mark is who asked, and when.
type Mark struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Parked is a commit that is not rolled out until it changes, or somebody says so.
type Parked struct {
	Mark
	Commit string `json:"commit"`
	// Content tells a commit that changes something from one that does not.
	Content schema.Version `json:"content"`
}

// Asked is what operators have asked of a group. It is kept.
type Asked struct {
	Paused *Mark   `json:"paused,omitempty"`
	Parked *Parked `json:"parked,omitempty"`
}

// Operators is what they have asked of all groups, and what was done: by them, and
// by the rollouts.
type Operators struct {
	Paused   *Mark     `json:"paused,omitempty"`
	History  []Act     `json:"history,omitempty"`
	Rollouts []Rollout `json:"rollouts,omitempty"`
}

// asking is what a group remembers of intents, beside what is kept.
type asking struct {
	ops *Operators
	// shelf is the release that is parked, once it was read again.
	shelf *Release
}

type askingFace struct{ held bool }

func (g *group) askingFace() askingFace { return askingFace{g.pausedBy() != nil} }

// pausedBy is who paused the group, alone or with all others.
func (g *group) pausedBy() *Mark {
	if g.ops != nil && g.ops.Paused != nil {
		return g.ops.Paused
	}
	return g.Paused
}

// heldBack reports whether some sessions have their reason not to be given the
// target.
func (g *group) heldBack() bool { return g.Halt != nil || g.pausedBy() != nil }

// parks reports whether a release is the parked one, and takes it as that.
func (g *group) parks(r *Release) bool {
	if g.Parked == nil {
		return false
	}
	if contentOf(r) != g.Parked.Content {
		g.Parked, g.shelf = nil, nil
		return false
	}
	p := *g.Parked
	p.Commit = r.Commit
	g.Parked, g.shelf = &p, r
	return true
}

// ask is an intent on its way to the loop.
type ask struct {
	intent Intent
	answer chan<- answer
}

type answer struct {
	outcome Outcome
	err     error
}

// Do has the loop do what an operator asks for. A *IntentError says that it makes
// no sense now, a *StaleError that its plan no longer holds. The loop must run.
func (l *Loop) Do(ctx context.Context, in Intent) (Outcome, error) {
	got := make(chan answer, 1)
	select {
	case l.asks <- ask{in, got}:
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}
	select {
	case a := <-got:
		return a.outcome, a.err
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}
}

func (l *Loop) hear(a ask) {
	out, err := l.do(a.intent)
	if err == nil && !a.intent.DryRun {
		l.proceed()
		l.publish()
		if l.failing != "" {
			err = fmt.Errorf("it is noted, and does not outlive a restart until the store can be written: %s", l.failing)
		}
	}
	a.answer <- answer{out, err}
}

func (l *Loop) do(in Intent) (Outcome, error) {
	out := Outcome{Verb: in.Verb, DryRun: in.DryRun, Groups: []GroupOutcome{}}
	in, err := l.named(in)
	if err != nil {
		return out, err
	}
	names, err := l.meant(in)
	if err != nil {
		return out, err
	}
	if in.Plan != nil {
		if err := l.stale(in.Plan, l.plannedNames(in, names), in.Group == "" && in.Commit == ""); err != nil {
			return out, err
		}
	}
	if in.Verb == Promote {
		return out, &IntentError{"nothing waits for a promotion: every group is one wave, and goes on by itself"}
	}
	f := l.facts()
	var why []string
	for _, name := range names {
		g := l.groups[name]
		words, no := l.weigh(in, name, g)
		if no != "" {
			why = append(why, no)
			continue
		}
		out.Groups = append(out.Groups, GroupOutcome{name, g.about(), numberOf(l.ops.Rollouts, g.about()), l.size(name, g, f), words})
	}
	if len(out.Groups) == 0 {
		return out, &IntentError{strings.Join(why[:min(len(why), 3)], "; ")}
	}
	if in.DryRun {
		return out, nil
	}
	now := time.Now()
	whole := in.Group == "" && in.Commit == ""
	for _, o := range out.Groups {
		l.apply(in, whole, o, now, f)
		l.note(Act{At: now, What: in.Verb, Group: o.Group, Commit: o.Commit, By: in.By, Nodes: o.Nodes, Words: o.Words})
		l.opts.Log.Info("intent", "verb", in.Verb, "group", o.Group, "commit", o.Commit, "by", in.By)
	}
	return out, nil
}

// meant lists the groups that an intent is about.
func (l *Loop) meant(in Intent) ([]string, error) {
	all := sortedKeys(l.groups)
	switch {
	case !slices.Contains(Verbs, in.Verb):
		return nil, &IntentError{fmt.Sprintf("unknown intent %q: want %s", in.Verb, strings.Join(Verbs, ", "))}
	case len(all) == 0:
		return nil, &IntentError{"there are no groups yet"}
	case in.Group != "" && l.groups[in.Group] == nil:
		return nil, &IntentError{fmt.Sprintf("there is no group %q: there are %s", in.Group, strings.Join(all, ", "))}
	case in.Group != "":
		all = []string{in.Group}
	}
	if in.Commit == "" {
		return all, nil
	}
	found := map[string]bool{}
	at := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		commit := l.groups[name].about()
		if back := l.groups[name].back(); back != nil && strings.HasPrefix(back.Commit, in.Commit) {
			commit = back.Commit
		}
		if strings.HasPrefix(commit, in.Commit) {
			found[commit] = true
			return false
		}
		return true
	})
	switch {
	case len(found) > 1:
		return nil, &IntentError{fmt.Sprintf("revision %s is ambiguous: it may be %s; give more digits", in.Commit, strings.Join(sortedKeys(found), " or "))}
	case len(at) == 0 && in.Group != "":
		return nil, &IntentError{fmt.Sprintf("group %s is at %s by now, and not at %s: look again", in.Group, abbreviated(l.groups[in.Group].about()), abbreviated(in.Commit))}
	case len(at) == 0:
		return nil, &IntentError{fmt.Sprintf("no group is at commit %s: look again", abbreviated(in.Commit))}
	}
	return at, nil
}

// about is the commit that an intent for the group is about.
func (g *group) about() string {
	switch {
	case g.Parked != nil:
		return g.Parked.Commit
	case g.Target != nil:
		return g.Target.Commit
	case g.next != nil:
		return g.next.Commit
	case g.Base != nil:
		return g.Base.Commit
	}
	return ""
}

// back is what the group walks back to after an abort, or nil.
func (g *group) back() *Release {
	if g.Parked == nil {
		return nil
	}
	return g.Target
}

func (l *Loop) size(name string, g *group, f *facts) int {
	if g == nil {
		return 0
	}
	missing, _ := g.missing(name, f, l.opts.Patience)
	return len(newest(f.sessions[name])) + len(missing)
}

// weigh says what an intent does to a group, or why that makes no sense now.
func (l *Loop) weigh(in Intent, name string, g *group) (words, no string) {
	whole := in.Group == "" && in.Commit == ""
	by := g.pausedBy()
	switch in.Verb {
	case Pause:
		if by != nil && (!whole || l.ops.Paused != nil) {
			return "", fmt.Sprintf("group %s is paused already, by %s", name, by.By)
		}
		return "nothing new is served, endpoints go on", ""
	case Resume:
		switch {
		case by == nil:
			return "", fmt.Sprintf("group %s is not paused", name)
		case !whole && l.ops.Paused != nil:
			return "", fmt.Sprintf("group %s is paused with all others, by %s: resume all of them", name, by.By)
		}
		return g.weighResume(), ""
	}
	if l.ops.Paused != nil || by != nil && in.Verb == Retry {
		return "", fmt.Sprintf("group %s is paused by %s: resume first", name, by.By)
	}
	if in.Verb == Abort {
		return g.weighAbort(name)
	}
	return g.weighRetry(name)
}

// weighResume says what the end of a pause brings about.
func (g *group) weighResume() string {
	switch {
	case g.next == nil && g.Halt != nil:
		return fmt.Sprintf("the pause ends; %s stays halted: it waits for a fix, or a retry", abbreviated(g.Target.Commit))
	case g.back() != nil:
		return "goes on with the walk back to " + abbreviated(g.Target.Commit)
	case g.Parked != nil:
		return fmt.Sprintf("the pause ends; %s stays parked", abbreviated(g.Parked.Commit))
	case g.next != nil:
		return "goes on at " + abbreviated(g.next.Commit)
	}
	return "goes on at " + abbreviated(g.about())
}

func (g *group) weighAbort(name string) (words, no string) {
	switch {
	case g.back() != nil && g.Halt != nil:
		return "", fmt.Sprintf("commit %s of group %s is parked already, and the walk back to %s is halted: sluice retry %[2]s tries that again, or merge a fix",
			abbreviated(g.Parked.Commit), name, abbreviated(g.Target.Commit))
	case g.back() != nil:
		return "", fmt.Sprintf("group %s walks back to %s already", name, abbreviated(g.Target.Commit))
	case g.Parked != nil:
		return "", fmt.Sprintf("commit %s of group %s is parked already", abbreviated(g.Parked.Commit), name)
	case g.Target == nil && g.next == nil && g.Base != nil:
		return "", fmt.Sprintf("group %s has finished %s: undo that in Git, with git revert %s", name, abbreviated(g.Base.Commit), abbreviated(g.Base.Commit))
	case g.Base == nil:
		return "", fmt.Sprintf("group %s has not finished any commit yet, so there is nothing to walk back to: merge a fix", name)
	case g.Target == nil:
		words = fmt.Sprintf("%s is parked before it began; %s stays", abbreviated(g.next.Commit), abbreviated(g.Base.Commit))
		if g.Paused != nil {
			words += ", and so does the pause by " + g.Paused.By
		}
		return words, ""
	}
	words = fmt.Sprintf("%s is parked, and every node walks back to %s", abbreviated(g.Target.Commit), abbreviated(g.Base.Commit))
	if g.Paused != nil {
		words += fmt.Sprintf("; that ends the pause by %s, and the next commit is rolled out", g.Paused.By)
	}
	return words, ""
}

func (g *group) weighRetry(name string) (words, no string) {
	switch {
	case g.Halt != nil && g.back() != nil:
		return fmt.Sprintf("the walk back to %s is tried again: what was refused is forgotten; %s stays parked", abbreviated(g.Target.Commit), abbreviated(g.Parked.Commit)), ""
	case g.Halt != nil:
		return fmt.Sprintf("%s is tried again: what was refused is forgotten", abbreviated(g.Target.Commit)), ""
	case g.Parked != nil && g.shelf != nil:
		return fmt.Sprintf("%s is no longer parked, and tried again", abbreviated(g.Parked.Commit)), ""
	case g.Parked != nil:
		return "", fmt.Sprintf("commit %s of group %s has not been read again since the restart: try in a moment", abbreviated(g.Parked.Commit), name)
	case g.Target != nil:
		return "", fmt.Sprintf("group %s is on its way to %s, and nothing stands against it", name, abbreviated(g.Target.Commit))
	}
	return "", fmt.Sprintf("group %s is neither halted nor parked: there is nothing to try again", name)
}

// apply does what weigh said. The caller delivers it.
func (l *Loop) apply(in Intent, whole bool, o GroupOutcome, now time.Time, f *facts) {
	g, mark := l.groups[o.Group], Mark{in.By, now}
	switch in.Verb {
	case Pause:
		if whole {
			l.ops.Paused = &mark
			return
		}
		g.Paused = &mark
	case Resume:
		if whole {
			l.ops.Paused = nil
		}
		g.Paused = nil
	case Abort:
		g.abort(mark)
	case Retry:
		g.retry()
	}
}

// abort parks what is under way, and walks back: as a rollout of the base, which
// ends a pause, since a paused group goes nowhere. Where nobody has to move the
// pause stays (rule R7).
func (g *group) abort(by Mark) {
	r := g.Target
	if g.next != nil {
		r = g.next
	}
	g.shelf, g.Parked = r, &Parked{by, r.Commit, contentOf(r)}
	g.next = nil
	if g.Target != nil {
		back := *g.Base
		g.next, g.Paused = &back, nil
		g.begin(by.At)
		g.spent = Spent{}
	}
}

// retry tries the target or the parked commit again. The target's new generation
// has every session forget what its client refused.
func (g *group) retry() {
	if g.Halt == nil {
		g.next, g.Parked, g.shelf = g.shelf, nil, nil
		return
	}
	again := *g.Target
	g.next = &again
	g.begin(time.Now())
}

// asked adds to a group's status what operators have asked of it.
func (l *Loop) asked(st *GroupStatus, g *group) {
	st.Paused, st.Parked = g.pausedBy(), g.Parked
	switch {
	case g.Halt != nil:
		if g.back() != nil {
			st.Why += fmt.Sprintf("; this is the walk back from %s, which was aborted by %s", abbreviated(st.Parked.Commit), st.Parked.By)
		}
		if st.Paused != nil {
			st.Why += "; paused by " + st.Paused.By
		}
	case g.back() != nil && st.Paused != nil:
		st.State, st.Why = PausedState, fmt.Sprintf("by %s: %s was aborted by %s, and the walk back to %s waits", st.Paused.By, abbreviated(st.Parked.Commit), st.Parked.By, abbreviated(st.Base))
	case g.back() != nil:
		st.Why = fmt.Sprintf("%s was aborted by %s: walks back to %s", abbreviated(st.Parked.Commit), st.Parked.By, abbreviated(st.Base))
	case st.Parked != nil && g.next == nil:
		st.State, st.Why = ParkedState, fmt.Sprintf("%s was aborted by %s: it waits for a commit that changes it, or a retry", abbreviated(st.Parked.Commit), st.Parked.By)
		if st.Paused != nil {
			st.Why += "; paused by " + st.Paused.By
		}
	case st.Paused != nil && (g.Target != nil || g.next != nil):
		st.State, st.Why = PausedState, "by "+st.Paused.By
	case st.Paused != nil:
		st.Why = "paused by " + st.Paused.By + ": the next commit waits"
	}
}

// States that an operator brings about.
const (
	PausedState = "paused" // somebody stopped it; see Paused
	ParkedState = "parked" // the commit was aborted; see Parked
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
