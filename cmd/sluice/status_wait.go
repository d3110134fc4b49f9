package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
)

// waitDefault is how long --wait waits without --timeout.
const waitDefault = 10 * time.Minute

// waitFor waits until the fleet has converged: at a commit, or at the newest that
// the server has read. The commit may be one that it has not seen yet.
func (a *app) waitFor(ctx context.Context, c *adminClient, rev string) error {
	limit := a.timeout
	if limit <= 0 {
		limit = waitDefault
	}
	want, err := wantedCommit(rev)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said := "the server has not answered"
	for first := true; ; first = false {
		st, err := c.status(ctx)
		var away *unreachable
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return &exitError{exitTimedOut, fmt.Sprintf("timed out after %v: %s", limit, said)}
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (first || !errors.As(err, &away)):
			return err
		case err != nil:
			a.tell(&said, "the server is away: it is waited for")
		default:
			o := outcomeOf(st, want)
			if st.Stopping && !o.refused { // of the nodes that it sends away it knows nothing
				o = outcome{said: "the server is stopping: it is waited for"}
			}
			if o.lost {
				return fmt.Errorf("rollout %s is too long ago to be known: see sluice history %[1]s", want.number)
			}
			if o.done {
				a.say("%s", o.said)
				return nil
			}
			if o.refused {
				for _, t := range troubles(st) {
					a.say("%s", t)
				}
				return &exitError{exitRefused, o.said}
			}
			a.tell(&said, o.said)
		}
		select {
		case <-time.After(statusEvery):
		case <-ctx.Done():
		}
	}
}

// tell says what is new.
func (a *app) tell(said *string, now string) {
	if *said != now {
		*said = now
		a.say("%s", now)
	}
}

// wanted is the commit that is waited for; the zero wanted is the newest.
type wanted struct {
	commit   string                            // in full, or the digits that were given
	descends func(commit string) (bool, error) // whether a commit comes after it
	number   reconcile.Number                  // of its rollout, if that was given
}

// in is what is wanted by what a status knows of rollouts: of a number, its
// commit, and that later ones come after it. It is false if the status does not
// know the number.
func (w wanted) in(st *reconcile.Status) (wanted, bool) {
	if w.number == 0 {
		return w, true
	}
	r := st.RolloutAt(w.number)
	if r == nil {
		return w, false
	}
	w.commit = r.Commit
	w.descends = func(commit string) (bool, error) { return st.NumberOf(commit) >= w.number, nil }
	return w, true
}

var hexDigits = regexp.MustCompile(`^[0-9a-f]{7,40}$`)

// wantedCommit finds a revision in the repository around the working directory.
// A hash need not be there: the server's own says it all.
func wantedCommit(rev string) (wanted, error) {
	if rev == "" {
		return wanted{}, nil
	}
	if n, ok := reconcile.ParseNumber(rev); ok {
		return wanted{number: n}, nil
	}
	repo, err := reconcile.OpenWorkRepo(".")
	if err == nil {
		var found reconcile.Revision
		if found, err = repo.Resolve(rev); err == nil {
			return wanted{commit: found.Commit, descends: func(commit string) (bool, error) {
				base, err := repo.MergeBase(found.Commit, commit)
				return base == found.Commit, err
			}}, nil
		}
	}
	if hexDigits.MatchString(rev) {
		return wanted{commit: rev}, nil
	}
	return wanted{}, err
}

// reached reports whether a commit is the one wanted, or comes after it. One that
// is not here cannot be told to, and is not.
func (w *wanted) reached(commit string) bool {
	if commit == "" || w.commit == "" {
		return commit != ""
	}
	if strings.HasPrefix(commit, w.commit) {
		return true
	}
	if w.descends == nil {
		return false
	}
	ok, err := w.descends(commit)
	return err == nil && ok
}

// outcome is what a status means for who waits.
type outcome struct {
	done, refused bool
	said          string
	lost          bool // what is wanted is too long ago to be known
}

func outcomeOf(st *reconcile.Status, want wanted) outcome {
	want, known := want.in(st)
	if !known {
		return outcome{said: fmt.Sprintf("the server has not seen rollout %s yet", want.number), lost: len(st.Rollouts) > 0 && want.number < st.Rollouts[len(st.Rollouts)-1].Number}
	}
	if r := st.Rejected; r != nil && want.reached(r.Commit) && (want.commit == "" || strings.HasPrefix(r.Commit, want.commit)) {
		return outcome{refused: true, said: fmt.Sprintf("commit %s is rejected", short(r.Commit))}
	}
	if !want.reached(st.Source.Commit) {
		if want.commit == "" {
			return outcome{said: "the server has read no commit yet"}
		}
		return outcome{said: fmt.Sprintf("the server has not seen commit %s yet", short(want.commit))}
	}
	at, nodes, waiting := 0, 0, ""
	for i := range st.Groups {
		g := &st.Groups[i]
		to := g.Target
		if to == "" {
			to = g.Next
		}
		switch {
		case g.State == reconcile.Gone:
			continue
		case g.State == reconcile.Halted && walksBack(g) && want.reached(g.Parked.Commit):
			return outcome{refused: true, said: fmt.Sprintf("group %s: commit %s was aborted by %s, and the walk back to %s halted", g.Name, short(g.Parked.Commit), g.Parked.By, short(g.Target))}
		case g.State == reconcile.Halted && want.reached(g.Halt.Commit):
			return outcome{refused: true, said: fmt.Sprintf("group %s halted at commit %s", g.Name, short(g.Halt.Commit))}
		case g.Parked != nil && want.reached(g.Parked.Commit):
			return outcome{refused: true, said: fmt.Sprintf("group %s: commit %s was aborted by %s", g.Name, short(g.Parked.Commit), g.Parked.By)}
		case g.Frozen != nil && want.reached(g.Frozen.Commit):
			return outcome{refused: true, said: fmt.Sprintf("group %s is frozen: its part of commit %s does not compile", g.Name, short(g.Frozen.Commit))}
		case g.State == reconcile.Unsupported && want.reached(to):
			return outcome{refused: true, said: fmt.Sprintf("group %s is not rolled out: %s", g.Name, g.Why)}
		case g.State == reconcile.Converged && want.reached(g.Base):
			at, nodes = at+g.AtTarget, nodes+g.Connected
		case st.Rejected != nil && to == "" && want.reached(st.Rejected.Commit):
			// The commit was never served: one that came with it is wrong.
			return outcome{refused: true, said: fmt.Sprintf("commit %s is rejected", short(st.Rejected.Commit))}
		case waiting == "":
			waiting = fmt.Sprintf("group %s is %s at %s: ", g.Name, g.State, commitCell(g))
			if s := stageCell(g); s != "-" {
				waiting += s + ", "
			}
			waiting += atWords(g)
		}
	}
	switch {
	case waiting != "":
		return outcome{said: waiting}
	case len(st.Groups) == 0:
		return outcome{said: "the server has no groups yet"}
	}
	said := fmt.Sprintf("converged: %s, %s at target", count(len(st.Groups), "group"), count(at, "node"))
	if at < nodes { // connected since, or refused it since
		said += fmt.Sprintf(", %d not: see sluice nodes", nodes-at)
	}
	return outcome{done: true, said: said}
}
