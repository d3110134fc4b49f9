package ads

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/sluice-xds/sluice/schema"
)

// Guide answers what this package does not decide. Its methods are called by
// the owners of sessions, many at once, and must not block.
type Guide interface {
	// Admit gives a node its target. present is the target that its session
	// already has, nil for a new one. An error refuses a new session, in the
	// words that its client will log; a session that exists keeps its target.
	Admit(node schema.Node, present *schema.Target) (*schema.Target, error)
	// Path plans the way of a session in a given state to a target.
	Path(from schema.State, to *schema.Target) *schema.Path
	// Step decides what to do with a session at one stage of a path.
	Step(p *schema.Path, at int, f *schema.Facts, now time.Time) schema.Step
}

// ErrNotReady is returned by Admit while nothing can be served yet: the client
// is told to come back.
var ErrNotReady = errors.New("the server has not yet loaded its configuration")

// Server is the xDS side of the control plane. Make it with New, register it
// with a grpc.Server made with ServerOptions, and Close it.
type Server struct {
	guide      Guide
	log        *slog.Logger
	ledger     *ledger
	memory     memory
	bodies     bodies
	subs       [schema.NumTypes]interner
	vhosts     hostIndex
	isolations isolations
	live       atomic.Pointer[schema.Snapshot]
	ids        atomic.Uint64
	rounds     atomic.Uint64 // of Refresh

	limits    atomic.Pointer[Limits]
	admission admission
	stats     Stats
	endings   endings

	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	sessions map[schema.SessionID]*session
	nodes    map[string][]*session // sessions, by node
	apart    map[string]*session   // the newest that is made of one stream a type, by node
	twins    map[string][]string   // hosts of node ids that more than one node uses
	// reporters are the streams of load reports, by node.
	reporters map[string]int
	closers   []func()
}

// New starts a server. Its goroutines, the ledger's writer and the sweep for
// clients that do not read, end with Close.
func New(g Guide, log *slog.Logger) *Server {
	s := &Server{guide: g, log: log, ledger: newLedger(), stop: make(chan struct{}), sessions: map[schema.SessionID]*session{}, nodes: map[string][]*session{}, reporters: map[string]int{}, apart: map[string]*session{}, twins: map[string][]string{}}
	s.endings.limited = make(chan struct{}, 1)
	s.Limit(Limits{})
	s.live.Store(&schema.Snapshot{})
	for t := range s.subs {
		s.subs[t].stars = schema.Type(t).HasWildcard()
		if schema.Type(t) == schema.VirtualHosts {
			s.subs[t].hosts = &s.vhosts
		}
	}
	s.done.Go(func() { s.ledger.run(s.stop) })
	s.done.Go(func() { s.sweep(s.stop) })
	return s
}

// Close stops the server's goroutines and ends the sessions of nodes that poll.
// Streams end with their grpc.Server, which is stopped before.
func (s *Server) Close() {
	s.mu.Lock()
	closers := s.closers
	s.mu.Unlock()
	for _, end := range closers {
		end()
	}
	close(s.stop)
	s.done.Wait()
}

// MaxRequest is the largest request that is read, in bytes (rule X5).
const MaxRequest = 32 << 20

// maxStreams is how many streams one connection may have: a type of a node
// each, or a node each behind a relay.
const maxStreams = 1 << 10

// A connection that is silent for pingAfter is probed, and closed if nothing
// comes within pingTimeout: its peer is gone without a word. Clients may probe as
// often as pingMost; gRPC's own default, five minutes, would have it close the
// connections of proxies that follow Envoy's advice.
const (
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second
	pingMost    = 5 * time.Second
)

// A connection has dialTime to become one, and idleTime to open a stream.
const (
	dialTime = 20 * time.Second
	idleTime = 5 * time.Minute
)

// maxHeader bounds the headers of a stream, in bytes.
const maxHeader = 64 << 10

// ServerOptions are what a grpc.Server needs to carry xDS: windows of a fixed
// size, so that no pings probe for one, the codec that shares bodies, and the
// limits of connections.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec()),
		grpc.MaxRecvMsgSize(MaxRequest),
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(1 << 20),
		grpc.WriteBufferSize(128 << 10),
		grpc.UnknownServiceHandler(unserved),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.ConnectionTimeout(dialTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMost, PermitWithoutStream: true}),
	}
}

func (s *Server) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*session, 0, len(s.sessions))
	for _, sess := range s.sessions {
		out = append(out, sess)
	}
	return out
}

// of are the sessions of a node.
func (s *Server) of(node string) []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.nodes[node])
}

// Refresh asks the Guide for every session's target again and sets those that
// changed on their way.
func (s *Server) Refresh() {
	s.rounds.Add(1) // before the sessions are listed: see open
	for _, sess := range s.all() {
		sess.mu.Lock()
		present := sess.target
		sess.mu.Unlock()
		if target, err := s.guide.Admit(sess.node, present); err == nil {
			sess.assign(target, time.Now())
		}
	}
}

// Live replaces bodies of live types and adds new ones. What it does not name
// stays: absence is never deletion. Retain is.
func (s *Server) Live(bodies schema.Snapshot) {
	s.setLive(s.live.Load().Union(bodies))
}

// Retain drops the live bodies that keep refuses. Nothing is sent for it.
func (s *Server) Retain(keep func(schema.Key) bool) {
	live := *s.live.Load()
	for _, t := range [...]schema.Type{schema.Endpoints, schema.Secrets} {
		live = live.Replace(t, live.Of(t).Filter(func(r *schema.Resource) bool { return keep(r.Key) }))
	}
	s.setLive(live)
}

// setLive has one caller at a time.
func (s *Server) setLive(live schema.Snapshot) {
	if live.Equal(*s.live.Load()) {
		return
	}
	s.live.Store(&live)
	for _, sess := range s.all() {
		sess.poke()
	}
}

// View is what the ledger says now.
func (s *Server) View() View { return View{s.ledger.db.Txn(false)} }

// Changes delivers a signal after the View has changed. Signals are merged.
func (s *Server) Changes() <-chan struct{} { return s.ledger.changes }
