package schema

import "sync/atomic"

// Memory holds what was computed from something that never changes, and goes with
// it. It holds a bounded number of answers. The zero Memory is empty, and a nil one
// remembers nothing. It may be used from several goroutines at once.
type Memory struct{ newest atomic.Pointer[derivation] }

// derivation is what was computed.
type derivation struct {
	key   any
	value any
	next  *derivation
	n     int // of the chain
}

// maxDerived bounds what is remembered of one thing: a fleet holds a handful of
// versions that a new one replaces.
const maxDerived = 16

// Derive computes something once, under a key that is comparable.
func (m *Memory) Derive(key any, compute func() any) any {
	if m == nil {
		return compute()
	}
	for d := m.newest.Load(); d != nil; d = d.next {
		if d.key == key {
			return d.value
		}
	}
	d := &derivation{key: key, value: compute(), n: 1}
	first := m.newest.Load() // computing may have added some
	if first != nil && first.n < maxDerived {
		d.next, d.n = first, first.n+1
	}
	m.newest.Store(d)
	return d.value
}
