package ads

import (
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/sluice-xds/sluice/schema"
)

// subscription is an interned subscription: equal ones of a server are one
// pointer, so that what was selected for one session serves the others.
type subscription struct {
	schema.Subscription
	digest digest
	hosts  *hostIndex // nil but for virtual hosts

	// What was lately worked out for one session, and serves the others.
	mu       sync.Mutex
	picks    recent[schema.Set]
	batches  recent[[2]schema.Set]
	advances recent[step]
}

// recent remembers the last few results by their arguments.
type recent[K comparable] struct {
	keys [4]K
	sets [4]schema.Set
	next int
}

func (r *recent[K]) get(k K) (schema.Set, bool) {
	for i := range r.keys {
		if r.keys[i] == k {
			return r.sets[i], true
		}
	}
	return schema.Set{}, false
}

func (r *recent[K]) put(k K, set schema.Set) {
	r.keys[r.next], r.sets[r.next] = k, set
	r.next = (r.next + 1) % len(r.keys)
}

// step is an ACK: what was held before, and what was sent.
type step struct {
	acked schema.Set
	sent  *body
}

// Select is the part of a set that the subscription asks for.
func (s *subscription) Select(set schema.Set) schema.Set {
	if s.hosts != nil {
		return s.hosts.pick(set, s.Names)
	}
	return s.Subscription.Select(set)
}

// find is what of a set a name asks for.
func (s *subscription) find(set schema.Set, name string) []*schema.Resource {
	if s.hosts == nil {
		return answers(set, name)
	}
	if r := s.hosts.of(set).find(name); r != nil {
		return []*schema.Resource{r}
	}
	return nil
}

// answers is what of a set a name asks for: the resource of that name, or the
// members of a collection (rule D13).
func answers(want schema.Set, name string) []*schema.Resource {
	if r := want.Get(name); r != nil {
		return []*schema.Resource{r}
	}
	if !schema.IsGlob(name) {
		return nil
	}
	var members []*schema.Resource
	for r := range want.All() {
		if schema.GlobOf(r.Name) == name {
			members = append(members, r)
		}
	}
	return members
}

// pick is Select, remembered.
func (s *subscription) pick(set schema.Set) schema.Set {
	if s.Wildcard || set.Len() == 0 {
		return set
	}
	if len(s.Names) == 0 {
		return schema.Set{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got, ok := s.picks.get(set)
	if !ok {
		// The pair before this one: of two that are put, the first.
		last := (s.picks.next + len(s.picks.keys) - 2) % len(s.picks.keys)
		got = s.follow(s.picks.keys[last], s.picks.sets[last], set)
		s.picks.put(set, got)
		s.picks.put(got, got)
	}
	return got
}

// follow is what is picked of set, given what was picked of a set before: of one
// that differs little, what differs is enough to look at. Names of hosts on demand
// are not those of resources.
func (s *subscription) follow(before, picked, set schema.Set) schema.Set {
	if s.hosts != nil {
		return s.Select(set)
	}
	left := 16
	for old, now := range schema.Diff(before, set) {
		switch {
		case left == 0:
			return s.Select(set)
		case now == nil:
			picked = picked.Without(old.Name)
		case s.Covers(now.Name):
			picked = picked.With(now)
		}
		left--
	}
	return picked
}

// news is what want has and acked has not, or otherwise, and can be sent.
func (s *subscription) news(acked, want schema.Set) schema.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]schema.Set{acked, want}
	got, ok := s.batches.get(key)
	if !ok {
		if got = want; acked.Len() > 0 {
			var news []*schema.Resource
			for _, r := range schema.Diff(acked, want) {
				if r != nil {
					news = append(news, r)
				}
			}
			got = schema.SetOf(news...)
		}
		got = got.Filter(sendable)
		s.batches.put(key, got)
	}
	return got
}

// accept is what a client holds that held acked and accepts a response (rule S12).
func (s *subscription) accept(acked schema.Set, sent *body) schema.Set {
	if sent.whole() {
		return s.pick(sent.set)
	}
	return s.advance(acked, sent)
}

// advance is ((acked ∪ sent) − gone) ∩ subscribed. When that is what the client
// was to hold, the set that all such sessions share is returned.
func (s *subscription) advance(acked schema.Set, sent *body) schema.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := step{acked, sent}
	got, ok := s.advances.get(key)
	if !ok {
		got = acked.Union(sent.set)
		for _, name := range sent.gone {
			got = got.Without(name)
		}
		if got.Equal(sent.want) {
			got = sent.want
		}
		got = s.Select(got)
		s.advances.put(key, got)
	}
	return got
}

// interner holds the subscriptions of one type that some session uses, and no
// others.
type interner struct {
	stars bool       // "*" asks for everything, and is no name
	hosts *hostIndex // of virtual hosts: names are found by more than themselves

	mu   sync.Mutex
	subs map[digest]weak.Pointer[subscription]
}

// everything is the digest of the legacy wildcard: naming nothing.
var everything = digest{1, 1}

// get finds or makes the subscription of a request's names. Without any it is
// the wildcard, if wildcard says that naming nothing means everything.
func (in *interner) get(names [][]byte, d digest, wildcard bool) *subscription {
	if len(names) == 0 && wildcard {
		return in.intern(everything, nil, true)
	}
	return in.intern(d, func(s *subscription) {
		for _, n := range names {
			in.name(s, string(n))
		}
	}, false)
}

// change finds or makes a subscription with names added to old and others taken
// away. Naming anything ends the legacy wildcard.
func (in *interner) change(old *subscription, add, drop [][]byte) *subscription {
	d := digest{}
	if old != nil && old.digest != everything {
		d = old.digest
	}
	has := func(n []byte) bool {
		if old == nil || old.digest == everything {
			return false
		}
		return in.stars && string(n) == "*" && old.Wildcard || old.Lists(string(n))
	}
	seen := map[string]bool{} // what was added, or taken away, in this request
	for i, n := range add {
		if !has(n) && !seen[string(n)] {
			seen[string(n)] = true
			d = d.plus(digestOf(add[i : i+1]))
		}
	}
	for i, n := range drop {
		if has(n) != seen[string(n)] {
			seen[string(n)] = !seen[string(n)]
			d = d.minus(digestOf(drop[i : i+1]))
		}
	}
	return in.intern(d, func(s *subscription) {
		gone := map[string]bool{}
		for _, n := range drop {
			gone[string(n)] = true
		}
		if old != nil && old.digest != everything {
			s.Wildcard = old.Wildcard && !gone["*"]
			for _, n := range old.Names {
				if !gone[n] {
					s.Names = append(s.Names, n)
				}
			}
		}
		for _, n := range add {
			if !gone[string(n)] {
				in.name(s, string(n))
			}
		}
	}, false)
}

func (in *interner) name(s *subscription, name string) {
	if in.stars && name == "*" {
		s.Wildcard = true
		return
	}
	s.Names = append(s.Names, name)
}

func (in *interner) intern(d digest, fill func(*subscription), wildcard bool) *subscription {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p, ok := in.subs[d]; ok {
		if s := p.Value(); s != nil {
			return s
		}
	}
	s := &subscription{digest: d, hosts: in.hosts}
	s.Wildcard = wildcard
	if fill != nil {
		fill(s)
	}
	slices.Sort(s.Names)
	s.Names = slices.Compact(s.Names)
	s.Globs = slices.ContainsFunc(s.Names, schema.IsGlob)
	if in.subs == nil {
		in.subs = map[digest]weak.Pointer[subscription]{}
	}
	in.subs[d] = weak.Make(s)
	runtime.AddCleanup(s, in.drop, d)
	return s
}

func (in *interner) drop(d digest) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p, ok := in.subs[d]; ok && p.Value() == nil {
		delete(in.subs, d)
	}
}
