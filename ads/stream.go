package ads

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-xds/sluice/schema"
)

// stream is one gRPC stream of a session. Nonces count over all its types, so
// that the nonce of one is never one of another's. The session's owner posts
// responses and counts; whoever is free delivers them.
type stream struct {
	grpc   grpc.ServerStream
	of     *variant
	nonces uint64
	features
	unacked int // bytes
	newest  int // bytes of the response that was posted last

	mu      sync.Mutex
	box     []*response // posted and not yet sent: at most one a type
	busy    bool        // somebody sends
	sending uint64      // the nonce of what is sent, or was last
	ended   bool

	*ending
	session  *session
	requests bucket
	paced    bool // and said so
}

// window is how many un-ACKed bytes a stream may have while others than its own
// handler send on it: gRPC's write quota of a stream, below which a send never
// blocks.
const window = 64 << 10

// post queues a response and returns its nonce. The caller owns the session.
func (st *stream) post(b *body) uint64 {
	st.nonces++
	st.unacked += b.size
	st.newest = b.size
	st.mu.Lock()
	st.box = append(st.box, &response{body: b, nonce: st.nonces})
	st.mu.Unlock()
	return st.nonces
}

// deliver sends what is posted, in order, unless somebody does already: that one
// will find it. It may block as long as the client does not read, and returns
// when the stream has ended.
func (st *stream) deliver() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.busy {
		return
	}
	st.busy = true
	for len(st.box) > 0 && !st.ended {
		next := st.box[0]
		st.box = slices.Delete(st.box, 0, 1)
		st.sending = next.nonce
		st.mu.Unlock()
		err := st.grpc.SendMsg(next)
		st.mu.Lock()
		st.ended = err != nil // the handler sees the same, and says so
	}
	st.busy = false
}

// aggregated is the type of a stream that carries all of them.
const aggregated = schema.Type(schema.NumTypes)

// serve is the life of one stream: of all types, or of one.
func (s *Server) serve(g grpc.ServerStream, of *variant, only schema.Type) error {
	id := s.NewSession() // of two generations the older opened its stream first, whichever speaks first
	s.stats.Begun.Add(1)
	limits := s.limits.Load()
	end, err := s.endings.begin(g.Context(), limits.Open)
	if err != nil {
		s.over(nil, "", peerOf(g.Context()), err)
		return err
	}
	defer s.endings.finish(end)
	// Until the first request there is nothing but a timer to watch over it.
	first := time.AfterFunc(limits.First, func() {
		end.end(Silent, status.Newf(codes.DeadlineExceeded, "the stream has sent no request for %s", limits.First))
	})
	defer first.Stop()
	req := request{of: of}
	defer req.free()
	node := ""
	if err = g.RecvMsg(&req); err == nil && first.Stop() {
		if req.node != nil {
			node = req.node.ID
		}
		err = s.converse(g, id, &req, only, end)
	}
	s.over(end, node, peerOf(g.Context()), err)
	return err
}

// converse answers a stream whose first request was read.
func (s *Server) converse(g grpc.ServerStream, id schema.SessionID, req *request, only schema.Type, end *ending) error {
	if req.node == nil || req.node.ID == "" {
		return part(Mistaken, codes.InvalidArgument, "the first request of a stream must carry node.id")
	}
	if err := s.welcome(time.Now()); err != nil {
		return err
	}
	sess, err := s.open(g.Context(), id, *req.node, only)
	if err != nil {
		return err
	}
	defer s.leave(sess, only)
	st := &stream{grpc: g, of: req.of, features: req.can, ending: end, session: sess}
	s.endings.watch(st)
	for {
		now := time.Now()
		if err := st.pace(now); err != nil {
			return err
		}
		if req.node != nil && req.node.ID != sess.node.ID {
			return part(Mistaken, codes.InvalidArgument, "node.id changed from %q to %q in mid-stream", sess.node.ID, req.node.ID)
		}
		t, ok := schema.TypeOf(req.typeURL)
		switch {
		case only != aggregated && req.typeURL == "":
			t, ok = only, true
		case only != aggregated && t != only:
			return part(Mistaken, codes.InvalidArgument, "this stream carries %s, and not %s", only.URL(), req.typeURL)
		}
		if ok {
			s.stats.Types[t].Requests.Add(1)
			sess.mu.Lock()
			err := sess.within(t, req)
			if err == nil {
				sess.request(st, t, req, now)
			}
			sess.release(st)
			if err != nil {
				return err
			}
		} else if err := s.strange(sess, req.typeURL); err != nil {
			return err
		}
		req.free()
		if err := g.RecvMsg(req); err != nil {
			return err
		}
	}
}

// strange handles a type that this server does not know. A client that asks for
// it gets nothing, but for one of the withdrawn second version of the API: that
// one can be told what to change.
func (s *Server) strange(sess *session, url string) error {
	if isV2(url) {
		return part(Mistaken, codes.InvalidArgument, "%s is of the v2 API, which is not served: set resource_api_version and transport_api_version to V3", url)
	}
	s.log.Warn("unknown resource type", "node", sess.node.ID, "type", url)
	return nil
}

// open finds or makes the session of a stream's first request. Streams of one
// type each make up one session of their node; a second stream of a type is a
// new generation of it.
func (s *Server) open(ctx context.Context, id schema.SessionID, node schema.Node, only schema.Type) (*session, error) {
	if only != aggregated {
		if sess := s.join(node, only, peerOf(ctx)); sess != nil {
			return sess, nil
		}
	}
	round := s.rounds.Load()
	target, err := s.guide.Admit(node, nil)
	if errors.Is(err, ErrNotReady) {
		return nil, part(Unready, codes.Unavailable, "%s", err.Error())
	}
	now := time.Now()
	if err != nil {
		s.ledger.update(node, func(r *schema.NodeRow) {
			if r.Refusal != err.Error() { // a client that tries again and again is logged once
				s.log.Warn("node refused", "node", node.ID, "why", err.Error())
			}
			r.Group, r.Refusal, r.SeenAt = "", err.Error(), now
		})
		return nil, part(Unplaced, codes.FailedPrecondition, "%s", err.Error())
	}
	sess := &session{
		srv: s, id: id, node: node, connected: now, target: target, streams: 1,
	}
	sess.was = s.memory.meet(node.ID)
	sess.peer = peerOf(ctx)
	s.mu.Lock()
	if only != aggregated {
		// Another stream of the node may have made the session meanwhile.
		if other := s.joined(node, only, sess.peer); other != nil {
			s.mu.Unlock()
			s.memory.leave(node.ID, sess, nil)
			return other, nil
		}
	}
	s.sessions[sess.id] = sess
	s.nodes[node.ID] = append(s.nodes[node.ID], sess)
	if s.reporters[node.ID] > 0 {
		sess.facts.Load.Until = now.Add(s.limits.Load().LoadEvery + reportSlack)
	}
	if only != aggregated {
		s.apart[node.ID] = sess
		sess.opened[only] = true
	}
	s.mu.Unlock()
	open := 0
	s.ledger.update(node, func(r *schema.NodeRow) {
		r.Group, r.Refusal, r.SeenAt = target.Group, "", now
		r.Sessions++
		open = r.Sessions
	})
	if s.rounds.Load() != round {
		// A Refresh since may have passed this session over.
		if again, err := s.guide.Admit(node, target); err == nil {
			sess.assign(again, now)
		}
	}
	return sess, s.crowded(sess, only, open)
}

// join adds a stream of one type to the node's newest session, if that has none
// of this type.
func (s *Server) join(node schema.Node, only schema.Type, peer string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined(node, only, peer)
}

// joined is join for a caller that holds s.mu. Streams from another host belong
// to another node, whatever it calls itself.
func (s *Server) joined(node schema.Node, only schema.Type, peer string) *session {
	sess := s.apart[node.ID]
	if sess == nil || hostOf(sess.peer) != hostOf(peer) {
		return nil
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.closed || sess.opened[only] {
		return nil
	}
	sess.opened[only] = true
	sess.streams++
	return sess
}

// leave takes a stream out of its session, and ends the session with its last.
func (s *Server) leave(sess *session, only schema.Type) {
	sess.mu.Lock()
	sess.streams--
	if sess.streams > 0 {
		sess.unheard(only)
		sess.keep(only)
		sess.types[only] = typeState{}
		sess.facts.Types[only] = schema.TypeFacts{}
		sess.opened[only] = false
		sess.touch(false)
		sess.mu.Unlock()
		return
	}
	sess.closed = true
	if s.memory.speaksFor(sess) {
		sess.unheardAll()
	}
	left := sess.leaves()
	for _, t := range [...]*time.Timer{sess.timer, sess.twin} {
		if t != nil {
			t.Stop()
		}
	}
	sess.mu.Unlock()
	s.mu.Lock()
	delete(s.sessions, sess.id)
	s.nodes[sess.node.ID] = slices.DeleteFunc(slices.Clone(s.nodes[sess.node.ID]), func(o *session) bool { return o == sess })
	if len(s.nodes[sess.node.ID]) == 0 {
		delete(s.nodes, sess.node.ID)
	}
	if s.apart[sess.node.ID] == sess {
		delete(s.apart, sess.node.ID)
	}
	s.mu.Unlock()
	s.memory.leave(sess.node.ID, sess, left)
	s.ledger.remove(sess.id)
	s.ledger.update(sess.node, func(r *schema.NodeRow) {
		r.Sessions--
		r.SeenAt = time.Now()
	})
	s.parted(sess.node)
}
