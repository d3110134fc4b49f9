package ads

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-xds/sluice/schema"
)

// Stats counts what a server did since it started. It may be read at any time;
// counting takes no lock and allocates nothing.
type Stats struct {
	Types [schema.NumTypes]TypeStats
	// Stages are the times from the opening of a stage to its last ACK, by kind;
	// Converged those from a new path to the ACK of its last routes.
	Stages    [schema.NumStages]Histogram
	Converged Histogram
	Begun     atomic.Uint64             // streams
	Ended     [NumReasons]atomic.Uint64 // streams, and polls that were turned away
	Delayed   atomic.Uint64             // requests that waited because their stream sent too many
}

// TypeStats are the Stats of one resource type.
type TypeStats struct {
	Requests  atomic.Uint64
	Responses atomic.Uint64
	Bytes     atomic.Uint64 // of responses
	Nacks     atomic.Uint64
	Acks      Histogram // from a response to its ACK
}

// Gauges are how much there is of something now.
type Gauges struct {
	Streams  int // open ones
	Sessions int
	Queue    int // sessions that the ledger has still to write
	Nodes    int // that are remembered, connected or not
}

// Stats are the server's counters.
func (s *Server) Stats() *Stats { return &s.stats }

// Gauges counts what there is now.
func (s *Server) Gauges() Gauges {
	g := Gauges{Queue: s.ledger.queue(), Nodes: s.memory.size()}
	s.endings.mu.Lock()
	g.Streams = len(s.endings.open)
	s.endings.mu.Unlock()
	s.mu.Lock()
	g.Sessions = len(s.sessions)
	s.mu.Unlock()
	return g
}

// Bounds are the upper bounds of a Histogram's buckets, in seconds: from a
// loopback's round trip to a rollout that drains.
var Bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900}

// Histogram counts times by how long they are. The zero Histogram is ready.
type Histogram struct {
	buckets [len(Bounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

// Observe counts a time.
func (h *Histogram) Observe(d time.Duration) {
	i, seconds := 0, d.Seconds()
	for i < len(Bounds) && seconds > Bounds[i] {
		i++
	}
	h.nanos.Add(int64(d))
	h.buckets[i].Add(1)
}

// Read is how many times were observed, their sum in seconds, and how many were
// at most each of the Bounds.
func (h *Histogram) Read() (count uint64, sum float64, upTo map[float64]uint64) {
	upTo = make(map[float64]uint64, len(Bounds))
	for i, bound := range Bounds {
		count += h.buckets[i].Load()
		upTo[bound] = count
	}
	count += h.buckets[len(Bounds)].Load()
	return count, time.Duration(h.nanos.Load()).Seconds(), upTo
}

// pace is what is counted once of each stage of a path, and of its end.
type pace struct {
	began   time.Time
	counted int // stages
	arrived bool
}

// count takes the open stage for acknowledged. The caller holds s.mu.
func (s *session) count(now time.Time) {
	p := &s.pace
	if s.at < len(s.path.Stages) && s.at >= p.counted {
		p.counted = s.at + 1
		s.srv.stats.Stages[s.path.Stages[s.at].Kind].Observe(now.Sub(s.facts.StageAt))
	}
	if !p.arrived && s.at+1 >= s.path.Converged {
		p.arrived = true
		s.srv.stats.Converged.Observe(now.Sub(p.began))
	}
}

// Reason is why a stream is over.
type Reason uint8

// The reasons.
const (
	Left     Reason = iota // the client ended it, or is gone
	Drained                // the server goes away
	Silent                 // no first request in time
	Stalled                // its client did not read
	Garbage                // a request could not be read
	Mistaken               // a request that the protocol does not allow
	Greedy                 // too many names, or too long ones
	Crowded                // too many streams: a second, of a node, or in all
	Unplaced               // no group takes the node
	Unready                // nothing can be served yet
	NumReasons
)

var reasons = [...]string{"left", "drained", "silent", "stalled", "garbage", "mistaken", "greedy", "crowded", "unplaced", "unready"}

func (r Reason) String() string { return reasons[r] }

// parting is the end of a stream with its reason.
type parting struct {
	reason Reason
	status *status.Status
}

func part(r Reason, c codes.Code, format string, args ...any) error {
	return &parting{r, status.New(c, fmt.Sprintf(format, args...))}
}

func (p *parting) Error() string              { return p.status.Err().Error() }
func (p *parting) GRPCStatus() *status.Status { return p.status }

// over counts the end of a stream, or of a poll that was turned away, and says
// why in the log where the client is to blame.
func (s *Server) over(end *ending, node, peer string, err error) {
	reason := reasonOf(end, err)
	switch reason {
	case Silent, Garbage, Mistaken, Greedy, Crowded:
		s.log.Warn("stream ended", "node", node, "peer", peer, "reason", reason.String(), "why", status.Convert(err).Message())
	}
	s.stats.Ended[reason].Add(1)
}

func reasonOf(end *ending, err error) Reason {
	var p *parting
	switch {
	case end != nil && end.why.Load() != 0:
		return Reason(end.why.Load())
	case errors.As(err, &p):
		return p.reason
	case status.Code(err) == codes.Internal, status.Code(err) == codes.ResourceExhausted:
		return Garbage // gRPC could not read it: damaged, or beyond the limit
	}
	return Left
}
