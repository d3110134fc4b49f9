package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"
)

// client is one node. Its run is the one that talks and judges; others look at it
// under mu.
type client struct {
	f      *Fleet
	node   *corev3.Node
	delta  bool
	script Script
	chance *rand.Rand

	mu      sync.Mutex
	j       *judge
	talk    talk
	heard   bool          // any response
	changed chan struct{} // closed, and made anew, when the client took something in

	w     wire
	named bool             // this stream was told the node
	acked [kinds]string    // the nonce answered last on this stream
	due   [kinds]time.Time // when the response in flight is to be answered
}

// errAnew asks for a new connection.
var errAnew = errors.New("the client connects anew")

// retry bounds the pause after a stream that the server ended.
const (
	retryLeast = 50 * time.Millisecond
	retryMost  = 2 * time.Second
)

// run connects again and again until ctx ends.
func (c *client) run(ctx context.Context) {
	pause := retryLeast
	for {
		responses, err := c.stream(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errAnew):
			pause = retryLeast
			continue
		case responses > 0:
			pause = retryLeast
		}
		if bad, ok := errors.AsType[malformed](err); ok {
			c.mu.Lock()
			c.breach(Malformed, bad.Error())
			c.mu.Unlock()
		} else {
			why := status.Convert(err)
			c.f.tally.count(func(r *Report) { r.Ended[fmt.Sprintf("%s: %s", why.Code(), why.Message())]++ })
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMost)
	}
}

func (c *client) breach(code, words string) {
	c.f.tally.breach(Breach{Code: code, Node: c.node.Id, Words: words, Talk: c.talk.text()})
}

// received is what the reader of a stream hands on.
type received struct {
	r     *response
	bytes int
	err   error
}

// stream is one connection, from dial to end.
func (c *client) stream(parent context.Context) (responses int, err error) {
	again := c.f.again()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if err := c.f.enter(ctx); err != nil {
		return 0, err
	}
	conn, err := c.f.dial()
	if err != nil {
		c.f.exit()
		return 0, err
	}
	defer conn.Close()
	if c.w, err = open(ctx, conn, c.delta); err == nil {
		err = c.begin()
	}
	c.f.exit()
	if errors.Is(err, io.EOF) { // the server ended the stream: this says why
		_, _, err = c.w.recv(&c.f.library)
	}
	if err != nil {
		return 0, err
	}
	in := make(chan received)
	var reader sync.WaitGroup
	reader.Go(func() { c.read(ctx, in) })
	defer reader.Wait()
	defer cancel()
	var life <-chan time.Time
	if c.script.Life > 0 {
		life = time.After(c.script.Life)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case m := <-in:
			if m.r != nil {
				responses++
			}
			if m.err != nil {
				return responses, m.err
			}
			err = c.take(m)
		case now := <-timer.C:
			err = c.answerDue(now)
		case <-again:
			return responses, errAnew
		case <-life:
			return responses, errAnew
		case <-ctx.Done():
			return responses, ctx.Err()
		}
		if err != nil {
			return responses, err
		}
		if next := c.nextDue(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// read hands on what the server sends, as slowly as the script says.
func (c *client) read(ctx context.Context, in chan<- received) {
	for {
		if c.script.Pause > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(c.script.Pause):
			}
		}
		r, bytes, err := c.w.recv(&c.f.library)
		select {
		case in <- received{r, bytes, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// begin opens the conversation: a new process asks for clusters first, one that
// holds something for all that it holds, with its versions.
func (c *client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.f.tally.count(func(r *Report) { r.Streams++ })
	c.named, c.acked, c.due = false, [kinds]string{}, [kinds]time.Time{}
	c.j.connect()
	if err := c.ask(clusters, nil, ""); err != nil {
		return err
	}
	for _, k := range [...]kind{endpoints, listeners, routes} {
		var err error
		switch {
		case k == listeners:
			err = c.proceed()
		case len(c.j.wants(k)) > 0:
			err = c.ask(k, nil, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask sends what the client wants of a kind, and so answers a response if there is
// one: words make that a refusal.
func (c *client) ask(k kind, to *response, words string) error {
	st := c.j.of[k]
	q := request{k: k, nonce: c.acked[k], version: st.accepted, words: words}
	verb := "ask"
	switch {
	case words != "":
		verb, q.nonce = "NACK", to.nonce
	case to != nil:
		verb, q.nonce = "ACK", to.nonce
	case c.delta:
		q.nonce = "" // an old one would mean nothing
	}
	c.acked[k] = q.nonce
	if !c.named {
		q.node, c.named = c.node, true
	}
	if !st.asked && c.delta {
		q.initial = map[string]string{}
		for n, h := range st.held {
			q.initial[n] = h.version
		}
	}
	q.names = c.j.wants(k)
	q.added, q.dropped = c.j.ask(k, q.names)
	l := line{at: time.Since(c.f.began), out: true, k: k, verb: verb, nonce: q.nonce, version: q.version, names: q.names, removed: q.dropped}
	if c.delta {
		l.names = q.added
	}
	c.talk.add(l)
	return c.w.send(q)
}

// take judges a response and answers it, now or later.
func (c *client) take(m received) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := m.r
	l := line{at: time.Since(c.f.began), k: r.k, nonce: r.nonce, version: r.version, removed: r.removed}
	for _, h := range r.items[:min(len(r.items), maxNames)] {
		l.names = append(l.names, h.name)
	}
	l.more = len(r.items) - len(l.names)
	c.talk.add(l)
	c.f.tally.count(func(t *Report) {
		t.Responses++
		t.Resources += len(r.items)
		t.Bytes += m.bytes
		if !c.heard {
			t.Answered++
		}
	})
	c.heard = true
	c.j.receive(r)
	if c.script.Never && c.j.complete {
		return nil
	}
	c.due[r.k] = time.Now().Add(c.script.Delay)
	if c.script.Delay > 0 {
		return nil
	}
	return c.answer(r.k)
}

func (c *client) answerDue(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range kinds {
		if at := c.due[k]; !at.IsZero() && !at.After(now) {
			if err := c.answer(k); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *client) nextDue() (next time.Time) {
	for _, at := range c.due {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// answer applies the response in flight, asks for what follows from it and then
// acknowledges it, as Envoy does; or refuses it.
func (c *client) answer(k kind) error {
	r := c.j.of[k].unanswered
	words := r.bad
	if c.script.Nack > 0 && c.chance.Float64() < c.script.Nack {
		words = fmt.Sprintf("%s %s: refused by the script", k, r.version)
	}
	if words != "" {
		c.j.refuse(k)
	} else {
		c.j.apply(k)
		if err := c.follow(k); err != nil {
			return err
		}
	}
	c.due[k] = time.Time{}
	err := c.ask(k, r, words)
	c.f.tally.count(func(t *Report) {
		if words == "" {
			t.ACKs++
		} else {
			t.NACKs++
		}
	})
	if err != nil {
		return err
	}
	if err := c.proceed(); err != nil {
		return err
	}
	if !c.j.complete && c.j.missing() == "" {
		c.j.complete = true
		c.f.tally.count(func(t *Report) { t.Complete++ })
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

// follow asks for what a kind that was applied refers to.
func (c *client) follow(k kind) error {
	next := map[kind]kind{clusters: endpoints, listeners: routes}
	of, ok := next[k]
	if !ok {
		return nil
	}
	want, st := c.j.wants(of), c.j.of[of]
	if len(want) == 0 && !st.asked || st.asked && slices.Equal(want, slices.Sorted(maps.Keys(st.sub))) {
		return nil
	}
	return c.ask(of, nil, "")
}

// proceed asks for listeners once clusters and their endpoints have been dealt with,
// on this stream or before.
func (c *client) proceed() error {
	dealt := func(k kind) bool {
		st := c.j.of[k]
		return (st.taken || st.answered) && st.unanswered == nil
	}
	if c.j.of[listeners].asked || !dealt(clusters) || len(c.j.wants(endpoints)) > 0 && !dealt(endpoints) {
		return nil
	}
	return c.ask(listeners, nil, "")
}
