package ads

import (
	"container/list"
	"slices"
	"sync"

	"github.com/sluice-xds/sluice/schema"
)

// memory is what outlives a session: which nodes this server has spoken to, what
// they were left with, and of which types it cannot tell that. It is bounded: a node
// that is forgotten is a stranger when it comes back, as after a restart. Its lock is
// taken by whoever owns a session, and never held while another is waited for.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*remembered
	away  int       // nodes without a session
	lefts list.List // of *remembered with a left, the one that left it first in front
}

type remembered struct {
	doubts [schema.NumTypes]doubt
	open   int           // sessions
	spoken []*session    // of these, those that have a path, the newest last
	left   *left         // by the session that has ended which was heard last
	place  *list.Element // in lefts
}

// leftLimit is of how many nodes it is remembered what they were left with: that may
// be of releases which nobody else remembers.
const leftLimit = 1 << 14

// memoryLimit is how many nodes are remembered, besides those that are connected.
const memoryLimit = 1 << 17

// meet remembers a node until leave was called as often, and returns what it was
// left with by its session that was heard last: also by one of which the server has
// not noticed yet that its client is gone. What was under way on that, nobody heard.
func (m *memory) meet(node string) (was *left) {
	others, was := m.greet(node)
	for _, o := range others {
		o.mu.Lock()
		if l := o.leaves(); was == nil || !l.heard.Before(was.heard) {
			was = l
			o.unheardAll()
		}
		o.mu.Unlock()
	}
	return was
}

func (m *memory) greet(node string) (spoken []*session, was *left) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nodes[node]
	switch {
	case r == nil:
		if m.away >= memoryLimit {
			m.forget(memoryLimit * 3 / 4)
		}
		if m.nodes == nil {
			m.nodes = map[string]*remembered{}
		}
		r = &remembered{}
		for t := range r.doubts {
			r.doubts[t] = unmet
		}
		m.nodes[node] = r
	case r.open == 0:
		m.away--
	}
	r.open++
	return slices.Clone(r.spoken), r.left
}

// speaks takes note that a session has been put on a path: from then on it may say
// what becomes of its node.
func (m *memory) speaks(sess *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nodes[sess.node.ID]
	r.spoken = append(r.spoken, sess)
}

// speaksFor reports whether what a session has not heard is its node's: no other has
// taken over since, and asked again. The caller owns the session.
func (m *memory) speaksFor(sess *session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nodes[sess.node.ID]
	n := len(r.spoken)
	return n > 0 && r.spoken[n-1] == sess && (r.left == nil || !sess.heard.Before(r.left.heard))
}

// leave is the end of a session. One that never spoke leaves nothing.
func (m *memory) leave(node string, sess *session, with *left) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nodes[node]
	if r.open--; r.open == 0 {
		m.away++
	}
	r.spoken = slices.DeleteFunc(r.spoken, func(o *session) bool { return o == sess })
	if with == nil || r.left != nil && with.heard.Before(r.left.heard) {
		return
	}
	if r.left = with; r.place != nil {
		m.lefts.MoveToBack(r.place)
		return
	}
	r.place = m.lefts.PushBack(r)
	if m.lefts.Len() > leftLimit {
		m.drop(m.lefts.Front().Value.(*remembered))
	}
}

// drop forgets what a node was left with. The caller holds m.mu.
func (m *memory) drop(r *remembered) {
	if r.place != nil {
		m.lefts.Remove(r.place)
		r.left, r.place = nil, nil
	}
}

// forget drops nodes that are away until few are: at first those of which nothing is
// to be known but that they were there. The caller holds m.mu.
func (m *memory) forget(few int) {
	for _, all := range [...]bool{false, true} {
		for id, r := range m.nodes {
			if m.away <= few {
				return
			}
			if r.open == 0 && (all || slices.Max(r.doubts[:]) <= unmet) {
				m.drop(r)
				delete(m.nodes, id)
				m.away--
			}
		}
	}
}

// size is how many nodes are remembered.
func (m *memory) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.nodes)
}

func (m *memory) record(node string, t schema.Type, d doubt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[node].doubts[t] = d
}

func (m *memory) doubt(node string, t schema.Type) doubt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[node].doubts[t]
}
