package dataplane

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Load sends requests through nodes and judges the answers.
type Load struct {
	Nodes []Node
	// Requests gives the i-th request of the run; nil sends Request{}. It is
	// called concurrently.
	Requests func(i int) Request
	// Rate is requests per second and node. It is kept whatever the latency,
	// as long as a worker is free. 0 is as fast as it goes, but for
	// FailurePause.
	Rate float64
	// Workers is the number of requests that a node has in flight at most;
	// 0 is 1.
	Workers int
	// Allow tells whether label may answer a request that was in flight from
	// sent to done; nil allows all. It is called concurrently.
	Allow func(label string, sent, done time.Time) bool
}

// FailurePause is how long a worker without a rate rests after a failed call.
// Fail-fast calls fail in microseconds: workers that repeat them at once starve
// the client that they wait for, and the rig itself makes the outage longer. So
// failures are about the milliseconds of outage times the workers.
const FailurePause = time.Millisecond

// A Tally counts requests. Every failure has one entry in Errors, and every
// answer one in ByLabel, even if it was not allowed.
type Tally struct {
	Requests int
	Failures int            // failed calls, and answers that were not allowed
	ByLabel  map[string]int // answers
	Errors   map[string]int // failures by text: the most frequent texts and OtherErrors
	P50, P99 time.Duration  // latency of answers, to 1/16
}

// OtherErrors is the key of Errors for all texts beyond the MaxErrors most
// frequent.
const (
	OtherErrors = "other errors"
	MaxErrors   = 16
)

// A Run is a Load that was started. Its workers own one shard each; Tally and
// Mark only read them.
type Run struct {
	load   *Load
	stop   context.CancelFunc
	wg     sync.WaitGroup
	next   atomic.Int64
	shards []*shard

	mu     sync.Mutex
	marked counts
}

type shard struct {
	mu sync.Mutex
	counts
}

// Start starts the workers. They end when ctx does, or with Run.Stop; a request
// in flight is then still awaited and counted.
func (l *Load) Start(ctx context.Context) *Run {
	calls := context.WithoutCancel(ctx)
	ctx, stop := context.WithCancel(ctx)
	r := &Run{load: l, stop: stop, marked: newCounts()}
	begin := time.Now()
	for _, n := range l.Nodes {
		pace := &pacer{begin: begin}
		if l.Rate > 0 {
			pace.interval = time.Duration(float64(time.Second) / l.Rate)
		}
		for range max(1, l.Workers) {
			s := &shard{counts: newCounts()}
			r.shards = append(r.shards, s)
			r.wg.Go(func() {
				for pace.wait(ctx) {
					if ok := r.one(calls, n, s); !ok && pace.interval == 0 {
						pause(ctx, FailurePause)
					}
				}
			})
		}
	}
	return r
}

// one sends one request and counts it. It tells whether it was answered.
func (r *Run) one(ctx context.Context, n Node, s *shard) bool {
	var req Request
	if r.load.Requests != nil {
		req = r.load.Requests(int(r.next.Add(1) - 1))
	}
	sent := time.Now()
	a, err := n.Send(ctx, req)
	done := time.Now()
	allowed := err != nil || r.load.Allow == nil || r.load.Allow(a.Label, sent, done)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if err != nil {
		s.fail(err.Error())
		return false
	}
	s.byLabel[a.Label]++
	s.latency[bucket(done.Sub(sent))]++
	if !allowed {
		s.fail(fmt.Sprintf("%q answered when it must not", a.Label))
	}
	return true
}

// Tally is the tally since Start.
func (r *Run) Tally() Tally {
	c := r.sum()
	return c.tally()
}

// Mark is the tally since the last Mark, or since Start.
func (r *Run) Mark() Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.sum()
	since := newCounts()
	since.add(&now, 1)
	since.add(&r.marked, -1)
	r.marked = now
	return since.tally()
}

// Stop ends the workers, waits for the requests in flight and gives the tally
// since Start.
func (r *Run) Stop() Tally {
	r.stop()
	r.wg.Wait()
	return r.Tally()
}

func (r *Run) sum() counts {
	total := newCounts()
	for _, s := range r.shards {
		s.mu.Lock()
		total.add(&s.counts, 1)
		s.mu.Unlock()
	}
	return total
}

// pacer gives the workers of one node their turns.
type pacer struct {
	begin    time.Time
	interval time.Duration // 0: at once
	turn     atomic.Int64
}

// wait waits for the next turn. It is false when ctx has ended.
func (p *pacer) wait(ctx context.Context) bool {
	if p.interval == 0 {
		return ctx.Err() == nil
	}
	due := p.begin.Add(time.Duration(p.turn.Add(1)-1) * p.interval)
	pause(ctx, time.Until(due))
	return ctx.Err() == nil
}

// pause returns after d or at the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
