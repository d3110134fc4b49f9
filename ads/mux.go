package ads

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/schema"
)

// A response whose version a node does not report was refused, or lost on the
// way: who polls cannot say which. It is sent again after a pause, which doubles
// with each time.
const (
	firstPause = 2 * time.Second
	lastPause  = time.Minute
)

// mux stands for a client of one type that polls. Nodes poll each cluster's
// endpoints and each route table by themselves, with versions of their own. To
// the session they are one subscription: the mux holds what was sent to it, gives
// each poll its part, and acknowledges a response once every poll that it
// concerns has reported it.
type mux struct {
	turn sync.Mutex // of who speaks to the session

	mu     sync.Mutex
	stream *stream
	got    schema.Set
	flight *response
	polls  map[digest]*poll
}

// poll is what asks again and again for the same names.
type poll struct {
	names   []string // empty: everything
	version string   // that the node reported last
	due     bool     // it is to be given its part, whatever version it has
	given   string   // the version of what it was given and has not reported
	refused string   // the version of what it refused: not given again (rule S15)
	at      time.Time
	pause   time.Duration
	wait    *pollWait // nil between polls
	seen    time.Time
}

// pollWait is a poll that waits.
type pollWait struct{ news, replaced chan struct{} }

// pollAnswer is what a poll is given.
type pollAnswer struct {
	t       schema.Type
	version schema.Version
	set     schema.Set
}

// pollStream is where the session sends to a mux.
type pollStream struct {
	grpc.ServerStream // nil: a session only sends
	mux               *mux
}

// SendMsg takes a response in, for the polls that it concerns.
func (s pollStream) SendMsg(msg any) error {
	m, r := s.mux, msg.(*response)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flight = r
	if r.body.whole() {
		m.got = r.body.set
	} else {
		m.got = m.got.Union(r.body.set)
	}
	for _, p := range m.polls {
		if !r.body.whole() && !slices.ContainsFunc(p.names, func(n string) bool { return r.body.set.Get(n) != nil }) {
			continue
		}
		if p.due = string(m.part(p).Version()) != p.refused; p.due && p.wait != nil {
			p.wait.notify()
		}
	}
	return nil
}

func (w *pollWait) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// part is what a poll is about. The caller holds m.mu.
func (m *mux) part(p *poll) schema.Set {
	if len(p.names) == 0 {
		return m.got
	}
	return m.got.Only(p.names)
}

// hear takes a poll in, and tells the session what it says: of what it asks for,
// and of the response in flight.
func (m *mux) hear(sess *session, t schema.Type, req *request, now time.Time) (*poll, *pollWait, error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	p, fresh := m.find(req, now)
	p.wait = &pollWait{news: make(chan struct{}, 1), replaced: make(chan struct{})}
	wait := p.wait
	say := &request{of: sotw, version: req.version, names: m.names(t, now)}
	switch {
	case fresh:
	case req.refusal != nil && p.given != "":
		p.refused, p.given, p.due = p.given, "", false
		if m.flight != nil {
			say.nonce, say.refusal = []byte(formatNonce(m.flight.nonce)), req.refusal
			m.flight = nil
		}
	default:
		p.hear(string(m.part(p).Version()), req.version, now)
	}
	m.acknowledge(say)
	st := m.stream
	if st == nil {
		st = &stream{grpc: pollStream{mux: m}, of: sotw, ending: &ending{ctx: context.Background()}, session: sess}
		m.stream = st
	}
	m.mu.Unlock()

	say.digest = digestOf(say.names)
	sess.mu.Lock()
	if err := sess.within(t, say); err != nil {
		sess.mu.Unlock()
		m.forget(req.digest)
		return nil, nil, err
	}
	if len(say.nonce) == 0 && !sess.facts.Types[t].InFlight && sess.types[t].nonce != 0 {
		say.nonce = []byte(formatNonce(sess.types[t].nonce)) // nothing is answered; the names count at once
	}
	sess.request(st, t, say, now)
	acked := sess.facts.Types[t].Acked
	sess.release(st)
	if fresh {
		m.begin(p, acked, req.version)
	}
	return p, wait, nil
}

// hear is what a poll says that is not its first: that it holds its part, or the
// part that it was given, or neither.
func (p *poll) hear(part, version string, now time.Time) {
	p.version = version
	switch {
	case p.given == "" && !p.due && version != part && version != p.refused && part != p.refused:
		p.due = true // it holds something else than it said
	case p.given == "":
	case version == p.given:
		p.given, p.pause = "", 0
	case now.Sub(p.at) >= max(p.pause, firstPause):
		p.due = true
		p.pause = min(2*max(p.pause, firstPause), lastPause)
	}
}

// begin takes a new poll for what it says that it holds, if that is what the
// session thinks too.
func (m *mux) begin(p *poll, acked schema.Set, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(p.names) > 0 {
		acked = acked.Only(p.names)
	}
	m.got = acked.Union(m.got)
	part := m.part(p)
	if string(part.Version()) == version {
		p.due = false
	} else if part.Len() > 0 {
		p.due = true
	}
}

// find finds or makes the poll of a request's names, and ends one that waits.
func (m *mux) find(req *request, now time.Time) (p *poll, fresh bool) {
	p = m.polls[req.digest]
	if p == nil {
		p, fresh = &poll{version: req.version}, true
		for _, n := range req.names {
			p.names = append(p.names, string(n))
		}
		if m.polls == nil {
			m.polls = map[digest]*poll{}
		}
		m.polls[req.digest] = p
	}
	if p.wait != nil {
		close(p.wait.replaced)
	}
	p.seen = now
	return p, fresh
}

func (m *mux) forget(d digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.polls, d)
}

// names is what all polls ask for. Those that have not come for long are
// dropped: their cluster or listener is gone.
func (m *mux) names(t schema.Type, now time.Time) [][]byte {
	seen := map[string]bool{}
	var out [][]byte
	add := func(n string) {
		if !seen[n] {
			seen[n] = true
			out = append(out, []byte(n))
		}
	}
	for d, p := range m.polls {
		if p.wait == nil && now.Sub(p.seen) > silence {
			delete(m.polls, d)
			continue
		}
		for _, n := range p.names {
			add(n)
		}
		if len(p.names) == 0 && t.HasWildcard() {
			add("*")
		}
	}
	return out
}

// acknowledge makes say the ACK of the response in flight, if no poll is still to
// report it.
func (m *mux) acknowledge(say *request) {
	if m.flight == nil {
		return
	}
	for _, p := range m.polls {
		if p.due || p.given != "" {
			return
		}
	}
	say.nonce, say.version = []byte(formatNonce(m.flight.nonce)), string(m.flight.body.version)
	m.flight = nil
}

// give gives a poll what is due to it.
func (m *mux) give(p *poll, mine *pollWait) *pollAnswer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.due || p.wait != mine {
		return nil
	}
	part := m.part(p)
	p.due, p.given, p.wait = false, string(part.Version()), nil
	p.at = time.Now()
	return &pollAnswer{version: part.Version(), set: part}
}

// rest is a poll that is answered without news.
func (m *mux) rest(p *poll, mine *pollWait) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.wait == mine {
		p.wait = nil
	}
}

// accepted reports whether some poll has reported a version that it was given.
func (m *mux) accepted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.polls {
		if p.version != "" {
			return true
		}
	}
	return false
}
