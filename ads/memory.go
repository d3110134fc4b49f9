package ads

import (
	"slices"
	"sync"

	"github.com/sluice-xds/sluice/schema"
)

// memory is what outlives a session: which nodes this server has spoken to, what
// they were left with, and of which types it cannot tell that. It is bounded: a node
// that is forgotten is a stranger when it comes back, as after a restart.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*remembered
	gone  []string // nodes, in the order in which sessions left something
}

type remembered struct {
	doubts [schema.NumTypes]doubt
	open   int // sessions
	newest *session
	left   *left
	lefts  int // in gone
}

// doubt is why a client's word for what it holds of a type proves nothing: parts
// of a response that it refused may have been applied (rule D9).
type doubt uint8

const (
	noDoubt doubt = iota
	// unmet: this server has not sent it anything yet, and another may have.
	unmet
	// wanting: its stream ended before it was sent what it waits for. What it says
	// that it holds is true, and must be sent again.
	wanting
	// unanswered: whether it refused its last response was never heard.
	unanswered
	refused
)

// leftLimit is of how many sessions that ended it is remembered what they left:
// that may be of releases which nobody else remembers.
const leftLimit = 1 << 14

// memoryLimit is how many nodes are remembered, besides those that are connected.
const memoryLimit = 1 << 17

// meet reports whether a node is new to this server, and remembers it until
// leave was called as often.
// was is what the node was left with: also by a session of which the server has not
// noticed yet that it is over.
func (m *memory) meet(node string, sess *session) (was *left, stranger bool) {
	before, was, stranger := m.greet(node, sess)
	if before == nil {
		return was, stranger
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	before.unheard(schema.Endpoints)
	return before.leaves(), stranger
}

// newest reports whether a session is the newest of its node.
func (m *memory) newest(sess *session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[sess.node.ID].newest == sess
}

func (m *memory) greet(node string, sess *session) (before *session, was *left, stranger bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nodes[node]
	if stranger = r == nil; stranger {
		if len(m.nodes) >= memoryLimit {
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
	}
	r.open++
	before, r.newest = r.newest, sess
	return before, r.left, stranger
}

// leave is the end of a session.
func (m *memory) leave(node string, sess *session, with *left) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nodes[node]
	if r.open--; r.newest == sess {
		r.newest = nil
	}
	if with == nil {
		return
	}
	r.left = with
	r.lefts++
	m.gone = append(m.gone, node)
	if len(m.gone) <= leftLimit {
		return
	}
	oldest := m.nodes[m.gone[0]]
	m.gone = m.gone[1:]
	if oldest == nil {
		return // forgotten altogether
	}
	if oldest.lefts--; oldest.lefts == 0 {
		oldest.left = nil
	}
}

// forget drops nodes that are away until few are left: at first those of which
// nothing is to be known but that they were there. The caller holds m.mu.
func (m *memory) forget(few int) {
	for _, all := range [...]bool{false, true} {
		for id, r := range m.nodes {
			if len(m.nodes) <= few {
				return
			}
			if r.open == 0 && (all || slices.Max(r.doubts[:]) <= unmet) {
				delete(m.nodes, id)
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
