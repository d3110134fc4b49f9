package reconcile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Number counts rollouts up, also over restarts. People read and write r-42.
type Number uint64

func (n Number) String() string { return "r-" + strconv.FormatUint(uint64(n), 10) }

// MarshalText writes the number as people do.
func (n Number) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (n *Number) UnmarshalText(b []byte) error {
	got, ok := ParseNumber(string(b))
	if !ok {
		return fmt.Errorf("%q is no number of a rollout: want r-42", b)
	}
	*n = got
	return nil
}

// ParseNumber reads r-42; ok is false if it is anything else.
func ParseNumber(s string) (n Number, ok bool) {
	digits, ok := strings.CutPrefix(s, "r-")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(digits, 10, 63)
	return Number(v), err == nil && v > 0
}

// Rollout is one commit's journey over all its groups. Every commit that can be
// served has a number, also one that changes nothing.
type Rollout struct {
	Number  Number    `json:"rollout"`
	Commit  string    `json:"commit"`
	Author  string    `json:"author,omitempty"`
	Subject string    `json:"subject,omitempty"`
	At      time.Time `json:"at"` // when the commit was first read
}

// rolloutLimit bounds the rollouts that are remembered, beside those that some
// group is still at.
const rolloutLimit = 50

// enroll gives a commit its number. After a restart the commit that is read again
// has it already.
func (l *Loop) enroll(r Revision, at time.Time) {
	all, last := l.ops.Rollouts, Rollout{}
	if len(all) > 0 {
		last = all[len(all)-1]
	}
	if last.Commit == r.Commit {
		return
	}
	named := map[string]bool{}
	for _, g := range l.groups {
		for _, release := range [...]*Release{g.Base, g.Target, g.next, g.shelf} {
			if release != nil {
				named[release.Commit] = true
			}
		}
	}
	kept := []Rollout{} // readers may have what is there
	for i, old := range all {
		if named[old.Commit] || len(all)-i < rolloutLimit {
			kept = append(kept, old)
		}
	}
	l.ops.Rollouts = append(kept, Rollout{last.Number + 1, r.Commit, r.Author, r.Subject, at})
	l.unsaved = true
}

// numberOf is the number of a commit's newest rollout, or 0.
func numberOf(all []Rollout, commit string) Number {
	for _, r := range slices.Backward(all) {
		if r.Commit == commit {
			return r.Number
		}
	}
	return 0
}

// NumberOf is the number of a commit's newest rollout, or 0.
func (st *Status) NumberOf(commit string) Number { return numberOf(st.Rollouts, commit) }

// RolloutAt is the rollout with a number, or nil if it is not known (any more).
func (st *Status) RolloutAt(n Number) *Rollout { return rolloutAt(st.Rollouts, n) }

func rolloutAt(all []Rollout, n Number) *Rollout {
	for i := range all {
		if all[i].Number == n {
			return &all[i]
		}
	}
	return nil
}

// named takes an intent's number of a rollout, given as its commit or in the
// place of a group, for that rollout's commit.
func (l *Loop) named(in Intent) (Intent, error) {
	said := in.Commit
	if _, ok := ParseNumber(in.Group); ok && l.groups[in.Group] == nil {
		said, in.Group = in.Group, ""
	}
	n, ok := ParseNumber(said)
	if !ok {
		return in, nil
	}
	r := rolloutAt(l.ops.Rollouts, n)
	switch {
	case r == nil && len(l.ops.Rollouts) == 0:
		return in, &IntentError{fmt.Sprintf("there is no rollout %s: no commit was rolled out yet", n)}
	case r == nil:
		return in, &IntentError{fmt.Sprintf("there is no rollout %s any more, or yet: the newest is %s; see sluice history", n, l.ops.Rollouts[len(l.ops.Rollouts)-1].Number)}
	case in.Commit != said && !strings.HasPrefix(r.Commit, in.Commit):
		return in, &IntentError{fmt.Sprintf("rollout %s is of commit %s, and not of %s: look again", n, abbreviated(r.Commit), abbreviated(in.Commit))}
	}
	in.Commit = r.Commit
	return in, nil
}
