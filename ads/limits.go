package ads

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/sluice-xds/sluice/schema"
)

// Limits bound what clients may ask of a server (rule X5). A zero field has its
// default.
type Limits struct {
	// Names is how many names one subscription may hold: 100,000. A stream
	// that asks for more is closed.
	Names int
	// Requests is how many requests a second a stream may send, 1,000, and
	// Burst how many at once, 10,000. The rest waits in the client's own
	// connection.
	Requests, Burst int
	// Streams is how many streams a second may begin, 2,000, and StreamBurst
	// how many at once, 20,000. The rest is told to come back.
	Streams, StreamBurst int
	// PerNode is how many sessions one node id may have open: 32.
	PerNode int
	// Open is how many streams may be open in all, and how many nodes may poll:
	// 100,000 each.
	Open int
	// First is how long a new stream may take to send its first request: 30
	// seconds.
	First time.Duration
	// Stall is how long a client may leave its window full without reading, 10
	// minutes, before its stream is closed.
	Stall time.Duration
	// Twins is how long two sessions of one node id from different addresses
	// may overlap, a minute, before they are reported as two nodes.
	Twins time.Duration
	// LoadEvery is how often nodes are asked to report their load: 10 seconds.
	LoadEvery time.Duration
}

func (l Limits) withDefaults() Limits {
	for _, f := range [...]struct {
		at *int
		is int
	}{{&l.Names, 100_000}, {&l.Requests, 1_000}, {&l.Burst, 10_000}, {&l.Streams, 2_000}, {&l.StreamBurst, 20_000}, {&l.PerNode, 32}, {&l.Open, 100_000}} {
		if *f.at == 0 {
			*f.at = f.is
		}
	}
	for _, f := range [...]struct {
		at *time.Duration
		is time.Duration
	}{{&l.First, 30 * time.Second}, {&l.Stall, 10 * time.Minute}, {&l.LoadEvery, 10 * time.Second}, {&l.Twins, time.Minute}} {
		if *f.at == 0 {
			*f.at = f.is
		}
	}
	return l
}

// Limit sets the limits. It is called before the server is registered.
func (s *Server) Limit(l Limits) {
	l = l.withDefaults()
	s.limits.Store(&l)
	select {
	case s.endings.limited <- struct{}{}:
	default:
	}
}

// bucket is a token bucket, kept as the time at which it will be full.
type bucket struct{ full time.Time }

// take takes one token and returns how long to wait for it.
func (b *bucket) take(now time.Time, rate, burst int) time.Duration {
	every := time.Second / time.Duration(rate)
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(every)
	return b.full.Sub(now) - every*time.Duration(burst)
}

// admission is the bucket of new streams.
type admission struct {
	mu     sync.Mutex
	bucket bucket
}

// welcome refuses a new stream if too many begin. It costs the server nothing
// but the message that names the node; a reconnect that is let in and reports
// what it holds is sent nothing.
func (s *Server) welcome(now time.Time) error {
	if s.endings.closed.Load() {
		return errGoingAway
	}
	a := &s.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.bucket
	if a.bucket.take(now, s.limits.Load().Streams, s.limits.Load().StreamBurst) <= 0 {
		return nil
	}
	a.bucket = before
	return part(Crowded, codes.Unavailable, "more than %d streams a second: come back later", s.limits.Load().Streams)
}

// pace delays the requests of a stream that sends too many. Only that stream
// waits: its client is held back by its own flow-control window.
func (st *stream) pace(now time.Time) error {
	s := st.session.srv
	wait := st.requests.take(now, s.limits.Load().Requests, s.limits.Load().Burst)
	if wait <= 0 {
		return nil
	}
	if s.stats.Delayed.Add(1); !st.paced {
		st.paced = true
		s.log.Warn("requests delayed", "node", st.session.node.ID, "peer", st.session.peer, "why", "more than the limit a second", "limit", s.limits.Load().Requests)
	}
	return st.wait(wait)
}

// crowded refuses the newest session of a node that has too many, and looks
// again later at one that has more than one.
func (s *Server) crowded(sess *session, only schema.Type, open int) error {
	switch {
	case open > s.limits.Load().PerNode:
		s.leave(sess, only)
		return part(Crowded, codes.ResourceExhausted, "node %q has %d sessions open already", sess.node.ID, s.limits.Load().PerNode)
	case open > 1:
		s.suspect(sess)
	}
	return nil
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// maxName is how long one name of a subscription may be, in bytes. Names of the
// xdstp form, with their parameters, are a few hundred.
const maxName = 4 << 10

// within reports a request that asks for too many names, or for too long ones.
// The caller holds s.mu.
func (s *session) within(t schema.Type, req *request) error {
	limit := s.srv.limits.Load().Names
	n := max(len(req.names), len(req.initial))
	if old := s.types[t].sub; req.of == delta && old != nil && n+len(old.Names) > limit {
		n = len(old.Names)
		for _, name := range req.names {
			if !old.Lists(string(name)) {
				n++
			}
		}
		n = max(n, len(req.names), len(req.drop))
	}
	if n > limit {
		return part(Greedy, codes.ResourceExhausted, "a subscription to %d %s: the limit is %d names", n, t, limit)
	}
	for _, name := range req.names {
		if len(name) > maxName {
			return part(Greedy, codes.ResourceExhausted, "a name of %d bytes among the %s: the limit is %d", len(name), t, maxName)
		}
	}
	return nil
}
