package ads

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ending lets a stream be ended from outside of its handler, which waits for the
// client. It needs no goroutine: the status that it writes cancels the stream.
type ending struct {
	ctx  context.Context
	once sync.Once
	why  atomic.Uint32 // the Reason, once it was ended from outside

	// What the sweep looks at. Of other services' streams, stream is nil.
	stream *stream
	at     uint64 // the nonce whose send was blocked when it last looked; 0 for none
}

// end tells the client why its stream is over. The handler then finds the
// stream cancelled, and returns.
func (e *ending) end(reason Reason, why *status.Status) {
	e.once.Do(func() {
		e.why.Store(uint32(reason))
		if w, ok := grpc.ServerTransportStreamFromContext(e.ctx).(interface {
			WriteStatus(*status.Status) error
		}); ok {
			_ = w.WriteStatus(why) // fails if the stream is over already
		}
	})
}

// wait lets a time pass, unless the stream ends before.
func (e *ending) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// endings are the open streams of a server, of every service.
type endings struct {
	closed  atomic.Bool
	limited chan struct{} // the limits have changed

	mu   sync.Mutex
	open map[*ending]struct{}
	none chan struct{} // closed when a draining server has no stream left
}

var errGoingAway = part(Drained, codes.Unavailable, "the server is going away: connect to another, or come back")

// begin registers a stream, if fewer than limit are open. Its handler calls finish
// at the end.
func (e *endings) begin(ctx context.Context, limit int) (*ending, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return nil, errGoingAway
	}
	if len(e.open) >= limit {
		return nil, part(Crowded, codes.ResourceExhausted, "%d streams are open already, and no more may", limit)
	}
	if e.open == nil {
		e.open = map[*ending]struct{}{}
	}
	x := &ending{ctx: ctx}
	e.open[x] = struct{}{}
	return x, nil
}

func (e *endings) finish(x *ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, x)
	if e.none != nil && len(e.open) == 0 {
		close(e.none)
		e.none = nil
	}
}

// watch has the sweep look at a stream.
func (e *endings) watch(st *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st.ending.stream = st
}

// sweep ends the streams whose client has read nothing for between one and two
// times the limit: a send is blocked, and was the last time. It runs until stop.
func (s *Server) sweep(stop <-chan struct{}) {
	for {
		every := s.limits.Load().Stall
		timer := time.NewTimer(every)
		select {
		case <-stop:
			timer.Stop()
			return
		case <-s.endings.limited:
			timer.Stop()
			continue
		case <-timer.C:
		}
		for _, st := range s.endings.stuck() {
			s.log.Warn("stream ended", "node", st.session.node.ID, "peer", st.session.peer, "why", "its client does not read", "for", every.String())
			st.end(Stalled, status.Newf(codes.Aborted, "the client has not read what was sent for %s", every))
		}
	}
}

// stuck lists the streams that are blocked in the same send as at the last call.
func (e *endings) stuck() (out []*stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := range e.open {
		if x.stream == nil {
			continue
		}
		now := x.stream.blocked()
		if now != 0 && now == x.at {
			out = append(out, x.stream)
		}
		x.at = now
	}
	return out
}

// blocked is the nonce of the response that is being sent, or 0.
func (st *stream) blocked() uint64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.busy {
		return 0
	}
	return st.sending
}

// drainTime is how long Drain takes without a deadline.
const drainTime = 10 * time.Second

// Drain refuses new streams and ends the open ones with UNAVAILABLE, spread over
// most of the time that ctx leaves, so that their clients do not all arrive
// elsewhere at once. It returns when no stream is left or ctx is done. To have
// connections closed too, call GracefulStop of the grpc.Server beside it: that
// sends GOAWAY first, and returns when Drain has ended the streams.
func (s *Server) Drain(ctx context.Context) error {
	e := &s.endings
	e.mu.Lock()
	e.closed.Store(true)
	open := make([]*ending, 0, len(e.open))
	for x := range e.open {
		open = append(open, x)
	}
	none := e.none
	if none == nil && len(open) > 0 {
		none = make(chan struct{})
		e.none = none
	}
	e.mu.Unlock()
	if len(open) == 0 {
		return nil
	}
	over := drainTime
	if deadline, ok := ctx.Deadline(); ok {
		over = time.Until(deadline) * 4 / 5
	}
	s.log.Info("draining", "streams", len(open), "over", over.Round(time.Millisecond).String())
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, x := range open {
		// One at a random moment of each slice of the time.
		at := time.Duration((float64(i) + rand.Float64()) / float64(len(open)) * float64(over))
		timer.Reset(time.Until(start.Add(at)))
		select {
		case <-timer.C:
			x.end(Drained, status.Convert(errGoingAway))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
