package ads

import (
	"slices"
	"sync"

	"github.com/sluice-xds/sluice/schema"
)

// memory is what outlives a session: which nodes this server has spoken to, and
// of which types it cannot tell what they hold. It is bounded: a node that is
// forgotten is a stranger when it comes back, as after a restart.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*remembered
}

type remembered struct {
	doubts [schema.NumTypes]doubt
	open   int // sessions
}

// doubt is why a client's word for what it holds of a type proves nothing: parts
// of a response that it refused may have been applied (rule D9).
type doubt uint8

const (
	noDoubt doubt = iota
	// unmet: this server has not sent it anything yet, and another may have.
	unmet
	// unanswered: whether it refused its last response was never heard.
	unanswered
	refused
)

// memoryLimit is how many nodes are remembered, besides those that are connected.
const memoryLimit = 1 << 17

// meet reports whether a node is new to this server, and remembers it until
// leave was called as often.
func (m *memory) meet(node string) (stranger bool) {
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
	return stranger
}

// leave is the end of a session.
func (m *memory) leave(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[node].open--
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
