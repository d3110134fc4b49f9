package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// held is a resource that a client applied. Its version is of delta alone.
type held struct {
	*content
	version string
}

// response is one that a client received.
type response struct {
	k       kind
	nonce   string
	version string
	items   []held
	removed []string
	bad     string // why it cannot be taken in
}

// judge is what one client holds and was promised, and so what its server may
// send. It does no I/O and has one owner.
type judge struct {
	delta    bool
	restarts bool                    // the server may have forgotten what it knew of a node
	varies   func(kind, string) bool // there is more than one resource of a name
	breach   func(code, words string)
	of       [kinds]*state
	nonces   map[string]bool
	dangles  map[string]bool // what was found to
	complete bool            // the client once held all that it asked for
	refusals bool            // it refused clusters or endpoints
}

// state is a judge's of one kind. What concerns a stream is made anew with it.
type state struct {
	held       map[string]held
	unsure     bool            // refused, or lost with its stream, and not sent since
	record     record          // what the server may have on record of a refusal
	told       map[string]bool // names that this stream said are not there
	sub        map[string]bool // names; of a kind that is asked for whole, nil
	ever       map[string]bool // all that this stream asked for
	due        map[string]bool // names that may come though they are held
	owed       map[string]bool // endpoints that must come again: their cluster changed
	waits      map[string]bool // endpoints that may come again on the next stream: they were owed
	last       []string        // of these, what the last response brought: its ACK may be lost
	asked      bool
	answered   bool              // this stream got a response
	presented  string            // the version that this stream began with
	unanswered *response         // the response in flight
	refused    map[string]string // of the last refusal: name to version and content
	accepted   string            // the version acknowledged last
	taken      bool              // any was acknowledged
}

// record is what a server may remember of a client's refusal when it comes back.
type record int

const (
	clean   record = iota
	refused        // and not accepted since
	perhaps        // accepted since, but the ACK may have been lost with its stream
)

func newJudge(delta, restarts bool, varies func(kind, string) bool, breach func(code, words string)) *judge {
	j := &judge{delta: delta, restarts: restarts, varies: varies, breach: breach}
	for k := range j.of {
		j.of[k] = &state{held: map[string]held{}, waits: map[string]bool{}}
	}
	return j
}

// connect begins a stream. What was in flight is lost: it was not applied.
func (j *judge) connect() {
	j.nonces = map[string]bool{}
	for _, st := range j.of {
		st.unsure = st.unsure || st.unanswered != nil || st.record != clean
		st.unanswered, st.refused = nil, nil
		st.sub, st.asked, st.answered, st.presented = nil, false, false, ""
		maps.Copy(st.waits, st.owed)
		st.last = nil
		st.ever, st.due, st.owed, st.told = map[string]bool{}, maps.Clone(st.waits), map[string]bool{}, map[string]bool{}
		if st.unsure { // the server cannot know what of it is held
			for n := range st.held {
				st.due[n] = true
			}
		}
	}
}

// ask notes a subscription: what it names anew may be sent, and what it no longer
// names is no longer held. It returns what changed.
func (j *judge) ask(k kind, names []string) (added, dropped []string) {
	st := j.of[k]
	sub := map[string]bool{}
	for _, n := range names {
		sub[n] = true
		if !st.sub[n] {
			added = append(added, n)
			st.ever[n] = true
			if st.asked { // what the first request names comes with what is held of it
				st.due[n] = true
			}
		}
	}
	for n := range st.sub {
		if !sub[n] {
			dropped = append(dropped, n)
		}
	}
	slices.Sort(dropped)
	if !k.whole() {
		st.sub = sub
		maps.DeleteFunc(st.held, func(n string, _ held) bool { return !sub[n] })
		maps.DeleteFunc(st.owed, func(n string, _ bool) bool { return !sub[n] })
	}
	if !st.asked {
		st.asked, st.presented = true, st.accepted
	}
	return added, dropped
}

// receive judges a response before it is applied.
func (j *judge) receive(r *response) {
	st := j.of[r.k]
	switch {
	case r.nonce == "":
		j.breach(Nonce, fmt.Sprintf("a response of %s has no nonce", r.k))
	case j.nonces[r.nonce]:
		j.breach(Nonce, fmt.Sprintf("nonce %s of %s was used before on this stream", r.nonce, r.k))
	}
	j.nonces[r.nonce] = true
	if st.unanswered != nil {
		j.breach(InFlight, fmt.Sprintf("%s nonce %s came before nonce %s was answered", r.k, r.nonce, st.unanswered.nonce))
	}
	if st.record == perhaps && st.answered {
		st.record = clean // it answers an ACK of this stream
	}
	if r.bad != "" {
		j.breach(Malformed, fmt.Sprintf("%s nonce %s: %s", r.k, r.nonce, r.bad))
	}
	j.names(r)
	if j.again(r) {
		j.breach(Refused, fmt.Sprintf("%s nonce %s brings what was refused before", r.k, r.nonce))
	} else if why := j.needless(r); why != "" {
		j.breach(Resent, fmt.Sprintf("%s nonce %s: %s", r.k, r.nonce, why))
	}
	j.order(r)
	j.promise(r)
	st.unanswered, st.answered = r, true
}

// names judges which resources a response names.
func (j *judge) names(r *response) {
	st := j.of[r.k]
	once := map[string]bool{}
	for _, h := range r.items {
		if once[h.name] {
			j.breach(Malformed, fmt.Sprintf("%s nonce %s holds %s twice", r.k, r.nonce, h.name))
		}
		once[h.name] = true
	}
	for _, n := range r.removed {
		if once[n] {
			j.breach(Malformed, fmt.Sprintf("%s nonce %s brings and removes %s", r.k, r.nonce, n))
		}
		once[n] = true
	}
	if !st.asked {
		j.breach(Unasked, fmt.Sprintf("%s nonce %s came before the type was asked for", r.k, r.nonce))
		return
	}
	if r.k.whole() {
		return
	}
	for n := range once {
		if !st.ever[n] {
			j.breach(Unasked, fmt.Sprintf("%s nonce %s names %s, which was never asked for", r.k, r.nonce, n))
		}
	}
}

func (h held) mark() string { return fmt.Sprintf("%s %p", h.version, h.content) }

// again reports whether a response brings what the client refused last, and
// nothing else has come of the kind since.
func (j *judge) again(r *response) bool {
	st := j.of[r.k]
	if len(st.refused) == 0 {
		return false
	}
	if r.k.whole() && !j.delta {
		now := map[string]string{}
		for _, h := range r.items {
			now[h.name] = h.mark()
		}
		return maps.Equal(now, st.refused)
	}
	return slices.ContainsFunc(r.items, func(h held) bool { return st.refused[h.name] == h.mark() })
}

// needless says what of a response is sent again without a reason.
func (j *judge) needless(r *response) string {
	st := j.of[r.k]
	if j.restarts && !st.answered {
		return ""
	}
	if !st.answered && !j.delta && r.version != st.presented {
		return "" // what the version means may not be known
	}
	if r.k.whole() && !j.delta {
		if !st.unsure && len(r.items) == len(st.held) && !slices.ContainsFunc(r.items, func(h held) bool { return st.held[h.name] != h }) &&
			(st.answered || st.presented != "") {
			return "it is what is held already"
		}
		return ""
	}
	var same []string
	for _, h := range r.items {
		// Another of the name may have been under way when the last stream ended:
		// whether its good parts were applied, the server cannot know.
		lost := j.delta && r.k.whole() && !st.answered && j.varies(r.k, h.name)
		if st.held[h.name] == h && !st.due[h.name] && !lost {
			same = append(same, h.name)
		}
	}
	for _, n := range r.removed {
		// A name may be reported as missing once, and again when it was asked for.
		if _, ok := st.held[n]; !ok && st.told[n] && !st.due[n] {
			same = append(same, n)
		}
	}
	if len(same) > 0 {
		names, more := first(same)
		return fmt.Sprintf("%d of %d are held already: %s%s", len(same), len(r.items)+len(r.removed), strings.Join(names, " "), and(more))
	}
	if len(r.items)+len(r.removed) == 0 && st.answered {
		return "it is empty"
	}
	return ""
}

func and(more int) string {
	if more == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", more)
}

// promise notes what a response makes due: endpoints follow each cluster that is
// new or changed, and all of a stream's first clusters.
func (j *judge) promise(r *response) {
	st := j.of[r.k]
	for _, n := range st.last { // this response answers the ACK
		delete(st.waits, n)
	}
	st.last = nil
	for _, h := range r.items {
		if st.owed[h.name] || st.waits[h.name] {
			st.waits[h.name] = true
			st.last = append(st.last, h.name)
		}
		delete(st.due, h.name)
		delete(st.owed, h.name)
		delete(st.told, h.name)
	}
	for _, n := range r.removed {
		delete(st.due, n)
		delete(st.owed, n)
		st.told[n] = true
	}
	unsure := st.unsure
	st.unsure = false
	if r.k != clusters {
		return
	}
	eds := j.of[endpoints]
	for _, h := range r.items {
		switch {
		case h.eds == "":
		case st.held[h.name].content != h.content:
			eds.due[h.eds] = true
			if eds.sub[h.eds] {
				eds.owed[h.eds] = true
			}
		case !st.answered, unsure:
			eds.due[h.eds] = true
		}
	}
}

// apply takes a response in, as the client does right before it acknowledges it.
func (j *judge) apply(k kind) {
	st := j.of[k]
	r := st.unanswered
	st.unanswered, st.refused, st.accepted, st.taken = nil, nil, r.version, true
	if st.record == refused {
		st.record = perhaps
	}
	if k.whole() && !j.delta {
		clear(st.held)
	}
	for _, h := range r.items {
		if k.whole() || st.sub[h.name] {
			st.held[h.name] = h
		}
	}
	for _, n := range r.removed {
		delete(st.held, n)
	}
	if k == endpoints && len(r.removed) == 0 {
		return // nothing can have come to dangle
	}
	before, excused := j.dangles, j.excused()
	j.dangles = nil
	for name, l := range j.of[listeners].held {
		for _, to := range j.uses(listeners, l.content) {
			why := j.lacking(to)
			if why == "" {
				continue
			}
			if j.dangles == nil {
				j.dangles = map[string]bool{}
			}
			if !j.dangles[to] && !before[to] && !excused { // each is said once
				j.breach(Dangling, fmt.Sprintf("after %s nonce %s, listener %s goes to %s, and %s", k, r.nonce, name, to, why))
			}
			j.dangles[to] = true
		}
	}
}

// refuse leaves a response out.
func (j *judge) refuse(k kind) {
	st := j.of[k]
	st.refused = map[string]string{}
	for _, h := range st.unanswered.items {
		st.refused[h.name] = h.mark()
		st.due[h.name] = true // what was held before may be sent again
	}
	if k == clusters { // their endpoints need not come
		for _, h := range st.unanswered.items {
			delete(j.of[endpoints].owed, h.eds)
		}
	}
	st.unanswered, st.unsure, st.record = nil, true, refused
	j.refusals = j.refusals || k == clusters || k == endpoints
}

// wants are the names that a client asks for after what it holds of another kind.
func (j *judge) wants(k kind) []string {
	names := map[string]bool{}
	switch k {
	case endpoints:
		for _, c := range j.of[clusters].held {
			names[c.eds] = true
		}
	case routes:
		for _, l := range j.of[listeners].held {
			for _, t := range l.tables {
				names[t] = true
			}
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// missing says what a client was not sent of what it asked for, or nothing.
func (j *judge) missing() string {
	for _, k := range [...]kind{clusters, listeners} {
		if !j.of[k].taken {
			return fmt.Sprintf("%s: nothing was accepted yet", k)
		}
	}
	for _, k := range [...]kind{endpoints, routes} {
		for n := range j.of[k].sub {
			if _, ok := j.of[k].held[n]; !ok {
				return fmt.Sprintf("%s: %s was asked for and has not come", k, n)
			}
		}
	}
	for n := range j.of[endpoints].owed {
		return fmt.Sprintf("EDS: %s did not come again after its cluster changed", n)
	}
	return ""
}
