package ads

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/sluice-xds/sluice/schema"
)

// bodies is a bounded cache of what streams share of their responses.
type bodies struct {
	mu    sync.Mutex
	order *list.List // of *entry, the least recently used last
	by    map[bodyKey]*list.Element
	cost  int // bytes
}

type bodyKey struct {
	of         *variant
	t          schema.Type
	want, set  schema.Sum
	n          int
	label      string
	gone       string
	ttl        time.Duration
	beat, full bool
}

type entry struct {
	key  bodyKey
	body *body
}

// bodiesLimit bounds what the cache costs, in bytes.
const bodiesLimit = 64 << 20

// get finds or makes a body. One that a second stream asks for is put in one
// piece: sending a thousand pieces costs more than copying them once.
func (c *bodies) get(what content) *body {
	if what.hosts != nil {
		return newBody(what)
	}
	key := bodyKey{what.of, what.t, what.want.Sum(), what.set.Sum(), what.set.Len(), what.label, strings.Join(what.gone, "\x00"), what.ttl, what.beat, what.bodies}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.by[key]; ok {
		c.order.MoveToFront(e)
		have := e.Value.(*entry)
		if whole := have.body.joined(); whole != have.body {
			c.cost += whole.cost() - have.body.cost()
			have.body = whole
			c.evict()
		}
		return have.body
	}
	if c.by == nil {
		c.by, c.order = map[bodyKey]*list.Element{}, list.New()
	}
	b := newBody(what)
	c.by[key] = c.order.PushFront(&entry{key, b})
	c.cost += b.cost()
	c.evict()
	return b
}

func (c *bodies) evict() {
	for c.cost > bodiesLimit && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(*entry)
		delete(c.by, last.key)
		c.cost -= last.body.cost()
	}
}

// pieceCost is what a piece of a body costs that the resource owns: a slice and
// its place in the list.
const pieceCost = 48

// cost is what the cache pays for a body, in bytes.
func (b *body) cost() int {
	if len(b.chunks) == 1 {
		return b.size
	}
	return pieceCost * len(b.chunks)
}

// joined is the body in one piece.
func (b *body) joined() *body {
	if len(b.chunks) == 1 || b.size > bodiesLimit/4 {
		return b
	}
	whole := *b
	whole.chunks = mem.BufferSlice{mem.SliceBuffer(b.chunks.Materialize())}
	return &whole
}
