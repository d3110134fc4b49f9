package ads

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/sluice-xds/sluice/schema"
)

// Pace is how often the ledger is written while sessions change: for people,
// summaries and gates between groups, never for the step of a session.
const Pace = 100 * time.Millisecond

// livePace is how often sessions are written of which nothing but live types
// changed: endpoints come and go all the time, and hold up nobody.
const livePace = time.Second

// ledger keeps what people and gates may know of nodes and sessions, in rows
// that are never changed. Sessions are collected as they change and written by
// one goroutine.
type ledger struct {
	db      *memdb.MemDB
	changes chan struct{}

	mu      sync.Mutex
	pending []*session
	live    []*session // written at the pace of live types
	nodes   int        // rows; of who holds the write transaction
	most    int        // rows
	wake    chan struct{}
	loads   loads
}

const (
	nodeTable    = "node"
	sessionTable = "session"
	typeTable    = "type"
	loadTable    = "load"
)

func newLedger() *ledger {
	table := func(name string, id memdb.Indexer) *memdb.TableSchema {
		return &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{"id": {Name: "id", Unique: true, Indexer: id}}}
	}
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		nodeTable:    table(nodeTable, stringIndex(func(row any) string { return row.(*schema.NodeRow).ID })),
		sessionTable: table(sessionTable, numberIndex(func(row any) uint64 { return uint64(row.(*schema.SessionRow).ID) })),
		typeTable: table(typeTable, numberIndex(func(row any) uint64 {
			r := row.(*schema.TypeRow)
			return uint64(r.Session)<<8 | uint64(r.Type)
		})),
		loadTable: table(loadTable, stringIndex(func(row any) string { return row.(*loadRow).node })),
	}})
	if err != nil {
		panic(fmt.Sprintf("ads: the ledger's schema is wrong: %v", err)) // a bug, found by any test
	}
	return &ledger{db: db, most: memoryLimit, changes: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// stringIndex and numberIndex are hand-written indexers: twice as fast as the
// ones that reflect (rule H6).
type stringIndex func(row any) string

func (f stringIndex) FromObject(row any) (bool, []byte, error) {
	s := f(row)
	return s != "", append([]byte(s), 0), nil
}

func (f stringIndex) FromArgs(args ...any) ([]byte, error) {
	return append([]byte(args[0].(string)), 0), nil
}

type numberIndex func(row any) uint64

func (f numberIndex) FromObject(row any) (bool, []byte, error) {
	return true, binary.BigEndian.AppendUint64(nil, f(row)), nil
}

func (f numberIndex) FromArgs(args ...any) ([]byte, error) {
	return binary.BigEndian.AppendUint64(nil, args[0].(uint64)), nil
}

// PrefixFromArgs selects the types of a session: its id is all but the last byte
// of theirs.
func (f numberIndex) PrefixFromArgs(args ...any) ([]byte, error) {
	return binary.BigEndian.AppendUint64(nil, args[0].(uint64)<<8)[:7], nil
}

// add queues a session for the next write. The caller owns the session.
func (l *ledger) add(s *session, live bool) {
	l.mu.Lock()
	first := !live && len(l.pending) == 0
	if live {
		l.live = append(l.live, s)
	} else {
		l.pending = append(l.pending, s)
	}
	l.mu.Unlock()
	if first {
		l.kick()
	}
}

func (l *ledger) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// queue is how many sessions wait to be written.
func (l *ledger) queue() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) + len(l.live)
}

// run writes what is queued: at once after a quiet time, else at the pace.
func (l *ledger) run(stop <-chan struct{}) {
	pace := time.NewTimer(0)
	defer pace.Stop()
	live := time.NewTicker(livePace)
	defer live.Stop()
	for {
		select {
		case <-stop:
			return
		case <-live.C:
			l.mu.Lock()
			l.pending = append(l.pending, l.live...)
			l.live = nil
			empty := len(l.pending) == 0
			l.mu.Unlock()
			if empty {
				continue
			}
		case <-l.wake:
		}
		select {
		case <-stop:
			return
		case <-pace.C:
		}
		l.write()
		pace.Reset(Pace)
	}
}

func (l *ledger) write() {
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	l.mu.Unlock()
	txn := l.db.Txn(true)
	for _, s := range batch {
		row, types := s.newRows()
		if row != nil {
			must(txn.Insert(sessionTable, row))
		}
		for _, t := range types {
			must(txn.Insert(typeTable, t))
		}
	}
	l.loads.write(txn, windowsInAll)
	txn.Commit()
	l.announce()
}

func (l *ledger) announce() {
	select {
	case l.changes <- struct{}{}:
	default:
	}
}

// update changes the row of a node at once.
func (l *ledger) update(node schema.Node, change func(*schema.NodeRow)) {
	txn := l.db.Txn(true)
	row := schema.NodeRow{}
	if old, err := txn.First(nodeTable, "id", node.ID); err == nil && old != nil {
		row = *old.(*schema.NodeRow)
	} else if l.nodes++; l.nodes > l.most {
		l.nodes -= forget(txn, l.most/4)
	}
	row.Node = node
	change(&row)
	must(txn.Insert(nodeTable, &row))
	txn.Commit()
	l.announce()
}

// forget drops the rows of n nodes that are away, those first that were not seen
// for the longest, and returns how many there were.
func forget(txn *memdb.Txn, n int) int {
	it, err := txn.Get(nodeTable, "id")
	must(err)
	var away []*schema.NodeRow
	for row := it.Next(); row != nil; row = it.Next() {
		if r := row.(*schema.NodeRow); r.Sessions == 0 {
			away = append(away, r)
		}
	}
	slices.SortFunc(away, func(a, b *schema.NodeRow) int { return a.SeenAt.Compare(b.SeenAt) })
	away = away[:min(n, len(away))]
	for _, r := range away {
		must(txn.Delete(nodeTable, r))
	}
	return len(away)
}

// remove drops the rows of a session that has ended.
func (l *ledger) remove(id schema.SessionID) {
	txn := l.db.Txn(true)
	_, err := txn.DeleteAll(sessionTable, "id", uint64(id))
	must(err)
	_, err = txn.DeleteAll(typeTable, "id_prefix", uint64(id))
	must(err)
	txn.Commit()
	l.announce()
}

// must holds what can only fail if a table or index has no such name.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("ads: the ledger's schema is wrong: %v", err))
	}
}

// newRows are the session's rows that differ from those written last. A session
// that has ended has none: its rows are gone, or will be when its handler returns.
func (s *session) newRows() (row *schema.SessionRow, types []*schema.TypeRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = [2]bool{}
	if s.closed {
		return nil, nil
	}
	if now := (sessionMark{s.target, s.path, s.at, s.step, s.ackedAt(), s.refusal(), s.strays()}); now != s.written.session {
		s.written.session = now
		row = s.row()
	}
	for t := range s.types {
		ts, f := &s.types[t], &s.facts.Types[t]
		now := typeMark{ts.sub, f.Acked, s.desired(schema.Type(t)), ts.flight, ts.offered, f.InFlight, f.Ignored, f.Nack}
		if now != s.written.types[t] {
			s.written.types[t] = now
			types = append(types, s.typeRow(schema.Type(t)))
		}
	}
	return row, types
}

// written is what the ledger's rows of a session were made of.
type written struct {
	session sessionMark
	types   [schema.NumTypes]typeMark
}

type sessionMark struct {
	target *schema.Target
	path   *schema.Path
	at     int
	step   schema.Step
	acked  time.Time
	nack   *schema.Nack
	strays bool
}

type typeMark struct {
	sub               *subscription
	acked, desired    schema.Set
	flight            *body
	offered           *schema.Set
	inFlight, ignored bool
	nack              *schema.Nack
}

// ackedAt is the newest ACK of a type that is not live: those are acknowledged
// all the time, and have it in their own rows.
func (s *session) ackedAt() (at time.Time) {
	for t := range s.facts.Types {
		if a := s.facts.Types[t].AckedAt; !schema.Type(t).Live() && a.After(at) {
			at = a
		}
	}
	return at
}

// refusal is the NACK that stands, if any.
func (s *session) refusal() *schema.Nack {
	for t := range s.facts.Types {
		if n := s.facts.Types[t].Nack; n != nil {
			return n
		}
	}
	return nil
}

func (s *session) row() *schema.SessionRow {
	r := &schema.SessionRow{
		ID: s.id, Node: s.node, Group: s.target.Group, Peer: s.peer, Connected: s.connected,
		Commit: s.target.Commit, Generation: s.target.Generation, Step: s.step, At: s.at,
		AckedAt: s.ackedAt(), Nack: s.refusal(),
	}
	if s.path != nil {
		r.Planned = true
		r.Converged = s.step.Verdict == schema.Done || len(s.path.Stages) > 0 && r.Through(s.path.Converged-1) && !s.strays()
		for _, st := range s.path.Stages {
			r.Stages = append(r.Stages, st.Kind)
		}
	}
	return r
}

func (s *session) typeRow(t schema.Type) *schema.TypeRow {
	ts, f := &s.types[t], &s.facts.Types[t]
	r := &schema.TypeRow{
		Session: s.id, Type: t, Held: f.Acked.Len(), Acked: f.Acked.Version(), Desired: s.desired(t).Version(),
		AckedSet: f.Acked, ServedSet: s.served(t),
		InFlight: f.InFlight, Ignored: f.Ignored, SentAt: f.SentAt, AckedAt: f.AckedAt, Nack: f.Nack,
	}
	if r.Served = r.Acked; !r.ServedSet.Equal(r.AckedSet) {
		r.Served = r.ServedSet.Version()
	}
	if ts.sub != nil {
		r.Names, r.Wildcard = len(ts.sub.Names), ts.sub.Wildcard
	}
	return r
}

// View is the ledger at one moment. It does not change.
type View struct{ txn *memdb.Txn }

func rows[T any](v View, table, index string, args ...any) []T {
	it, err := v.txn.Get(table, index, args...)
	must(err)
	var out []T
	for row := it.Next(); row != nil; row = it.Next() {
		out = append(out, row.(T))
	}
	return out
}

// Nodes lists every node that was seen since the start, by id.
func (v View) Nodes() []*schema.NodeRow { return rows[*schema.NodeRow](v, nodeTable, "id") }

// Sessions lists the open sessions, the oldest first.
func (v View) Sessions() []*schema.SessionRow { return rows[*schema.SessionRow](v, sessionTable, "id") }

// Types lists the types that a session asked for.
func (v View) Types(id schema.SessionID) []*schema.TypeRow {
	return rows[*schema.TypeRow](v, typeTable, "id_prefix", uint64(id))
}
