package ads

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-xds/sluice/schema"
)

// silence is how long a node may not poll before its session is over, and how
// long one of its polls may not come back before its names are dropped.
const silence = 2 * time.Minute

// rest is what nodes that poll have in common.
type rest struct {
	srv  *Server
	hold time.Duration

	mu     sync.Mutex
	nodes  map[string]*pollSession
	closed bool
}

// pollSession is the session of one node's polls.
type pollSession struct {
	sess *session
	mux  [schema.NumTypes]mux

	// Of rest.mu:
	waiting  int // polls that are being answered
	expiry   *time.Timer
	requests bucket
}

// poll answers one: with what its names hold, or with nothing after the hold.
func (h *rest) poll(ctx context.Context, t schema.Type, req *request) (*pollAnswer, error) {
	now := time.Now()
	h.srv.stats.Types[t].Requests.Add(1)
	ps, err := h.enter(ctx, t, req, now)
	if err != nil {
		return nil, err
	}
	defer h.exit(ps)
	m := &ps.mux[t]
	p, mine, err := m.hear(ps.sess, t, req, now)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(h.hold)
	defer timer.Stop()
	for {
		if a := m.give(p, mine); a != nil {
			return a, nil
		}
		select {
		case <-mine.news:
		case <-timer.C:
			a := m.give(p, mine)
			m.rest(p, mine)
			return a, nil
		case <-mine.replaced:
			return nil, nil
		case <-ctx.Done():
			m.rest(p, mine)
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// enter finds or makes the session of a node's poll.
func (h *rest) enter(ctx context.Context, t schema.Type, req *request, now time.Time) (*pollSession, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.srv.endings.closed.Load() {
		return nil, errGoingAway
	}
	ps := h.nodes[req.node.ID]
	if ps != nil && t.FullState() && req.version == "" && req.refusal == nil && ps.mux[t].accepted() {
		// The subscription to clusters or listeners lives as long as the
		// process: this is a new one, that holds nothing.
		h.end(ps)
		ps = nil
	}
	if ps == nil {
		if err := h.srv.welcome(now); err != nil {
			return nil, err
		}
		if limit := h.srv.limits.Load().Open; len(h.nodes) >= limit {
			return nil, part(Crowded, codes.ResourceExhausted, "%d nodes poll already, and no more may", limit)
		}
		sess, err := h.srv.open(ctx, h.srv.NewSession(), *req.node, aggregated)
		if err != nil {
			return nil, err
		}
		ps = &pollSession{sess: sess}
		h.nodes[req.node.ID] = ps
		ps.expiry = time.AfterFunc(silence, func() { h.expire(ps) })
	}
	limits := h.srv.limits.Load()
	before := ps.requests
	if ps.requests.take(now, limits.Requests, limits.Burst) > 0 {
		ps.requests = before
		h.srv.stats.Delayed.Add(1)
		return nil, part(Crowded, codes.ResourceExhausted, "more than %d polls a second: poll more slowly", limits.Requests)
	}
	ps.waiting++
	return ps, nil
}

func (h *rest) exit(ps *pollSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ps.waiting--
	if h.nodes[ps.sess.node.ID] == ps {
		ps.expiry.Reset(silence)
	}
}

func (h *rest) expire(ps *pollSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ps.waiting == 0 && h.nodes[ps.sess.node.ID] == ps {
		h.end(ps)
	}
}

// end ends a session. The caller holds h.mu.
func (h *rest) end(ps *pollSession) {
	ps.expiry.Stop()
	delete(h.nodes, ps.sess.node.ID)
	h.srv.leave(ps.sess, aggregated)
}

// close ends all sessions. The http.Server was stopped before.
func (h *rest) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, ps := range h.nodes {
		h.end(ps)
	}
}
