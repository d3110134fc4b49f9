package ads

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
)

// FuzzRequest scans anything, as a request of either variant. What the generated
// code can read must mean the same to the scan.
func FuzzRequest(f *testing.F) {
	for _, m := range []proto.Message{
		&discoveryv3.DiscoveryRequest{
			VersionInfo: "v", Node: &corev3.Node{Id: "n", Cluster: "c"}, ResourceNames: []string{"a", "b"}, TypeUrl: cds.URL(),
			ResponseNonce: "7", ErrorDetail: &status.Status{Code: 3, Message: "no"},
		},
		&discoveryv3.DeltaDiscoveryRequest{
			Node: &corev3.Node{Id: "n"}, TypeUrl: rds.URL(), ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"},
			InitialResourceVersions: map[string]string{"a": "1", "": "x"}, ResponseNonce: "1",
		},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, 0xff))
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &request{of: sotw}
		errS := s.scan(bytes.Clone(b))
		var m discoveryv3.DiscoveryRequest
		if proto.Unmarshal(b, &m) == nil && errS == nil {
			if s.version != m.VersionInfo || string(s.nonce) != m.ResponseNonce || s.typeURL != m.TypeUrl || !slices.Equal(words(s.names), m.ResourceNames) || (s.refusal != nil) != (m.ErrorDetail != nil) {
				t.Errorf("%v is read as %+v", &m, s)
			}
		}
		d := &request{of: delta}
		errD := d.scan(bytes.Clone(b))
		var dm discoveryv3.DeltaDiscoveryRequest
		if proto.Unmarshal(b, &dm) == nil && errD == nil {
			holds := map[string]string{}
			for _, e := range d.initial {
				holds[string(e[0])] = string(e[1])
			}
			if string(d.nonce) != dm.ResponseNonce || !slices.Equal(words(d.names), dm.ResourceNamesSubscribe) || !slices.Equal(words(d.drop), dm.ResourceNamesUnsubscribe) ||
				!maps.Equal(holds, dm.InitialResourceVersions) && len(holds)+len(dm.InitialResourceVersions) > 0 {
				t.Errorf("%v is read as %+v", &dm, d)
			}
		}
	})
}

func words(bs [][]byte) []string {
	var out []string
	for _, b := range bs {
		out = append(out, string(b))
	}
	return out
}

// model is a delta client of one type that does all that the protocol allows, and
// knows what it holds.
type model struct {
	grpc.ServerStream
	t      *testing.T
	sess   *session
	st     *stream
	flight []*response
	nonces map[uint64]bool
	holds  map[string]schema.Version
	doubt  map[string]bool // refused: it may hold either
	asked  map[string]bool
}

// SendMsg is where the session's responses arrive.
func (m *model) SendMsg(msg any) error {
	r := msg.(*response)
	if m.nonces[r.nonce] || r.nonce == 0 {
		m.t.Errorf("nonce %d is used twice", r.nonce)
	}
	m.nonces[r.nonce] = true
	if m.flight = append(m.flight, r); len(m.flight) > 1 {
		m.t.Errorf("%d responses are in flight", len(m.flight))
	}
	return nil
}

func (m *model) say(req *request) {
	req.of = delta
	req.digest = digestOf(req.names)
	m.sess.mu.Lock()
	m.sess.request(m.st, rds, req, time.Now())
	m.sess.release(m.st)
}

// answer accepts or refuses what is in flight.
func (m *model) answer(ok bool, req *request) {
	if len(m.flight) == 0 {
		m.say(req)
		return
	}
	r := m.flight[0]
	m.flight = nil
	req.nonce = []byte(formatNonce(r.nonce))
	if !ok {
		req.refusal = &schema.Nack{Code: 3, Words: "no"}
		for x := range r.body.set.All() {
			m.doubt[x.Name] = true
		}
		for _, n := range r.body.gone { // it holds it still, and need not
			m.doubt[n] = true
		}
	} else {
		for x := range r.body.set.All() {
			if m.asked[x.Name] { // and not dropped since
				m.holds[x.Name] = x.Version
			}
			delete(m.doubt, x.Name)
		}
		for _, n := range r.body.gone {
			delete(m.holds, n)
			delete(m.doubt, n)
		}
	}
	m.say(req)
}

// FuzzDelta holds random conversations with a session. Each byte is one move of
// the client or of the configuration.
func FuzzDelta(f *testing.F) {
	f.Add([]byte{0x00, 0x40, 0x11, 0x40, 0x80, 0x40, 0xc5, 0x40, 0x22, 0x60, 0x83, 0x40})
	f.Add([]byte{0x3f, 0x40, 0xc1, 0x60, 0xc2, 0x40, 0xc0, 0x40})
	f.Add([]byte{0x01, 0x21, 0x01, 0x60, 0xff, 0x40, 0xe1, 0x21, 0x40, 0x02})
	f.Add([]byte("\x990\xdfAA0\xc1a")) // a removal is refused
	f.Fuzz(func(t *testing.T, moves []byte) {
		if len(moves) > 200 {
			return
		}
		fl := &fleet{t: t}
		fl.srv = New(fl, slog.New(slog.NewTextHandler(io.Discard, nil)))
		defer fl.srv.Close()
		m := &model{t: t, nonces: map[uint64]bool{}, holds: map[string]schema.Version{}, doubt: map[string]bool{}, asked: map[string]bool{"r0": true}}
		fl.give(&schema.Target{Snapshot: table(0)})
		sess, err := fl.srv.open(t.Context(), fl.srv.NewSession(), schema.Node{ID: "n"}, aggregated)
		if err != nil {
			t.Fatal(err)
		}
		defer fl.srv.leave(sess, aggregated)
		m.sess = sess
		m.st = &stream{grpc: m, of: delta, ending: &ending{ctx: t.Context()}, session: sess}
		m.say(&request{names: [][]byte{[]byte("r0")}})
		for _, b := range moves {
			name := fmt.Sprint("r", b&7)
			switch b >> 5 {
			case 0:
				m.asked[name] = true
				m.say(&request{names: [][]byte{[]byte(name)}})
			case 1:
				m.say(&request{drop: [][]byte{[]byte(name)}})
				delete(m.asked, name)
				delete(m.holds, name)
				delete(m.doubt, name)
			case 2:
				m.answer(true, &request{})
			case 3:
				m.answer(false, &request{})
			case 4:
				m.answer(true, &request{names: [][]byte{[]byte(name)}})
				m.asked[name] = true
			case 5:
				m.say(&request{nonce: []byte("stale")})
			default:
				fl.give(&schema.Target{Snapshot: table(b & 0x1f)})
			}
			m.check()
		}
		for range 20 {
			m.answer(true, &request{})
		}
		m.check()
	})
}

// table is a configuration whose five bits decide the versions of some route
// tables, and which exist.
func table(bits byte) schema.Snapshot {
	var rs []*schema.Resource
	for i := range 5 {
		if bits>>i&1 == 1 || i == 0 {
			rs = append(rs, route(fmt.Sprint("r", i), fmt.Sprint(bits&3)))
		}
	}
	return schema.SnapshotOf(rs...)
}

// check holds the session against what the client knows.
func (m *model) check() {
	m.t.Helper()
	m.sess.mu.Lock()
	defer m.sess.mu.Unlock()
	f := &m.sess.facts.Types[rds]
	if f.InFlight != (len(m.flight) == 1) {
		m.t.Errorf("in flight is %v, and the client has %d", f.InFlight, len(m.flight))
	}
	for r := range f.Acked.All() {
		if m.holds[r.Name] != r.Version && !m.doubt[r.Name] {
			m.t.Errorf("acked is %s@%s, and the client holds %q", r.Name, r.Version, m.holds[r.Name])
		}
	}
	for n, v := range m.holds {
		r := f.Acked.Get(n)
		if (r == nil || r.Version != v) && !m.doubt[n] {
			m.t.Errorf("the client holds %s@%s, and acked is %v", n, v, r)
		}
		if r == nil && m.sess.types[rds].unknown.Get(n) == nil {
			m.t.Errorf("the client holds %s@%s, and the session has forgotten that it may", n, v)
		}
	}
}
