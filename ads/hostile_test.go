package ads

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-xds/sluice/schema"
)

// over waits until a stream has ended for a reason. The handler counts after the
// client has seen the end.
func (f *fleet) over(r Reason, want uint64) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for f.srv.Stats().Ended[r].Load() != want {
		if time.Now().After(deadline) {
			f.t.Fatalf("%d streams ended as %s, want %d", f.srv.Stats().Ended[r].Load(), r, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A stream that asks for nothing does not stay.
func TestX05FirstRequestInTime(t *testing.T) {
	log := &logLines{}
	f := newFleetWith(t, setup{limits: Limits{First: 300 * time.Millisecond}, log: log}, res(cds, "a", "1"))
	talks, silent := f.dial("n"), f.dial("silent")
	talks.ask(cds)
	talks.expect(cds, "a@1")
	silent.ends("DeadlineExceeded desc = the stream has sent no request for 300ms")
	f.over(Silent, 1)
	if log.count("reason=silent") != 1 {
		t.Error("it is not in the log")
	}
	talks.quiet() // has sent its first, and may be silent now
	if n := f.srv.Gauges(); n.Streams != 1 || n.Sessions != 1 || n.Nodes != 1 {
		t.Errorf("there are %+v", n)
	}
}

func TestX05StreamsInAll(t *testing.T) {
	f := newFleetWith(t, setup{limits: Limits{Open: 2}}, res(cds, "a", "1"))
	var open []*client
	for i := range 2 {
		c := f.dial(fmt.Sprint("n", i))
		c.ask(cds)
		c.expect(cds, "a@1")
		open = append(open, c)
	}
	f.dial("late").ends("ResourceExhausted desc = 2 streams are open already")
	f.over(Crowded, 1)
	open[0].close()
	f.ended("n0")
	f.over(Left, 1)
	c := f.dial("later")
	c.ask(cds)
	c.expect(cds, "a@1")
	open[1].quiet()
}

func TestX05NodesThatPoll(t *testing.T) {
	f := newFleetWith(t, setup{limits: Limits{Open: 1}})
	h := f.srv.RESTHandler(time.Millisecond)
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		body := fmt.Sprintf(`{"node":{"id":"p%d"}}`, i)
		r := httptest.NewRequest("POST", "/v3/discovery:clusters", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("node %d: %d %s, want %d", i, w.Code, w.Body, want)
		}
	}
	f.over(Crowded, 1)
}

// The first request of a delta client that holds much is 30 MB, and is read; the
// others do not wait for it.
func TestX05LargeFirstRequest(t *testing.T) {
	f := newFleet(t, res(rds, "r", "1"), res(cds, "a", "1"))
	other := f.dial("other")
	other.ask(cds)
	other.expect(cds, "a@1")
	d := f.deltaDial("large")
	holds := map[string]string{}
	for i := range 95_000 {
		holds[fmt.Sprintf("%0300d", i)] = "0123456789abcdef"
	}
	req := &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"r"}, InitialResourceVersions: holds}
	if n := proto.Size(req); n < 29<<20 || n > MaxRequest {
		t.Fatalf("the request has %d bytes", n)
	}
	d.raw(rds, req)
	other.quiet()
	r, err := d.stream.Recv()
	if err != nil || len(r.Resources) != 1 || r.Resources[0].Name != "r" {
		t.Fatalf("%v, %v", r, err)
	}
}

func TestX05NamesAndNodesThatAreTooLong(t *testing.T) {
	f := newFleet(t, res(cds, "a", "1"))
	for name, c := range map[string]struct {
		req  *discoveryv3.DiscoveryRequest
		ends string
		as   Reason
	}{
		"name":    {&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), ResourceNames: []string{strings.Repeat("x", maxName+1)}}, "ResourceExhausted desc = a name of 4097 bytes among the routes", Greedy},
		"node":    {&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), Node: &corev3.Node{Id: "n", Cluster: strings.Repeat("x", maxNode)}}, "the limit is 1048576", Garbage},
		"node id": {&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), Node: &corev3.Node{Id: strings.Repeat("x", maxNodeID+1)}}, "node.id has 1025 bytes", Garbage},
		"no node": {&discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), Node: &corev3.Node{}}, "must carry node.id", Mistaken},
		"v2":      {&discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.api.v2.Cluster"}, "set resource_api_version", Mistaken},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.srv.Stats().Ended[c.as].Load()
			s := f.dial("long")
			s.raw(c.req)
			s.ends(c.ends)
			f.over(c.as, before+1)
		})
	}
}

// A client that reads slowly is sent the newest once it has read, and nothing of
// what lay in between.
func TestX05AClientThatReadsSlowly(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	f := newFleet(t, res(cds, "a", "0"+big))
	slow, other := f.deltaDial("slow"), f.deltaDial("other")
	slow.sub(cds)
	slow.expect(cds, "a@0"+big)
	other.sub(cds)
	other.expect(cds, "a@0"+big)
	other.ack(cds)
	const commits = 10
	for v := 1; v <= commits; v++ {
		f.set(schema.Envoy, res(cds, "a", fmt.Sprint(v)+big))
		other.expect(cds, "a@"+fmt.Sprint(v)+big)
		other.ack(cds)
	}
	before := f.srv.Stats().Types[cds].Responses.Load()
	slow.ack(cds)
	slow.expect(cds, "a@"+fmt.Sprint(commits)+big)
	slow.ack(cds)
	slow.quiet()
	if n := f.srv.Stats().Types[cds].Responses.Load() - before; n != 1 {
		t.Errorf("it was sent %d responses", n)
	}
}

// Ten thousand requests at once delay nobody else.
func TestX05TenThousandRequests(t *testing.T) {
	f := newFleetWith(t, setup{limits: Limits{Requests: 100_000}}, res(rds, "r", "1"), res(cds, "a", "1"))
	flood, other := f.dial("flood"), f.dial("other")
	done := make(chan error, 1)
	go func() {
		for i := range 10_000 {
			req := &discoveryv3.DiscoveryRequest{TypeUrl: rds.URL(), ResourceNames: []string{"r", fmt.Sprint("x", i%7)}}
			if i == 0 {
				req.Node = &corev3.Node{Id: "flood"}
			}
			if err := flood.stream.Send(req); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	other.ask(cds)
	other.expect(cds, "a@1")
	for range 20 {
		other.quiet()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	flood.expect(rds, "r@1") // once, however often it asked
	flood.sent = true
	flood.ask(cds)
	flood.expect(cds, "a@1")
}

// What is remembered of nodes that come once and never again is bounded.
func TestX05NodesThatComeOnce(t *testing.T) {
	var m memory
	m.meet("here")
	m.meet("refused")
	m.record("refused", cds, refused)
	m.leave("refused", nil, nil)
	for i := range 2 * memoryLimit {
		id := fmt.Sprint(i)
		m.meet(id)
		m.leave(id, nil, nil)
	}
	if n := m.size(); n > memoryLimit+1 {
		t.Errorf("%d nodes are remembered, and one is connected", n)
	}
	if m.nodes["here"] == nil {
		t.Error("a connected node is forgotten")
	}
	if r := m.nodes["refused"]; r == nil || r.doubts[cds] != refused {
		t.Error("a refusal is forgotten before nodes of which there is nothing to know")
	}
	for i := range 2 * memoryLimit { // and no more if all have refused
		id := fmt.Sprint("bad", i)
		m.meet(id)
		m.record(id, cds, refused)
		m.leave(id, nil, nil)
	}
	if n := m.size(); n > memoryLimit+1 {
		t.Errorf("%d nodes are remembered, and one is connected", n)
	}
}

// However many nodes are connected, one more is not looked for among all of them.
func TestX05ConnectedNodesDoNotCrowdTheMemory(t *testing.T) {
	var m memory
	for i := range memoryLimit {
		m.meet(fmt.Sprint(i))
	}
	m.meet("away")
	m.leave("away", nil, nil)
	m.meet("one more")
	if m.nodes["away"] == nil {
		t.Error("a node that is away is forgotten, as if the memory were full")
	}
}

// A node that comes and goes takes the place of no other.
func TestX05ANodeThatComesAndGoes(t *testing.T) {
	var m memory
	m.meet("quiet")
	m.leave("quiet", nil, &left{})
	for range leftLimit + 1 {
		m.meet("restless")
		m.leave("restless", nil, &left{})
	}
	if m.meet("quiet") == nil {
		t.Error("what a node was left with is forgotten")
	}
	for i := range leftLimit + 1 {
		id := fmt.Sprint(i)
		m.meet(id)
		m.leave(id, nil, &left{})
	}
	if n := m.lefts.Len(); n != leftLimit || m.meet("0") != nil || m.meet("1") == nil {
		t.Errorf("what %d nodes were left with is remembered, and not of the last", n)
	}
}

func TestX05RowsOfNodesThatComeOnce(t *testing.T) {
	const most = 1000
	l := newLedger()
	l.most = most
	l.update(schema.Node{ID: "here"}, func(r *schema.NodeRow) { r.Sessions = 1 })
	start := time.Now()
	for i := range most + 10 {
		l.update(schema.Node{ID: fmt.Sprint("n", i)}, func(r *schema.NodeRow) { r.SeenAt = start.Add(time.Duration(i)) })
	}
	rows := View{l.db.Txn(false)}.Nodes()
	if n := len(rows); n > most || n != l.nodes {
		t.Errorf("%d rows, counted %d", n, l.nodes)
	}
	left := map[string]bool{}
	for _, r := range rows {
		left[r.ID] = true
	}
	if !left["here"] || left["n0"] || !left[fmt.Sprint("n", most)] {
		t.Error("the rows of the wrong nodes are left")
	}
}

// FuzzPoll reads anything as a poll: what is read is a request that the session
// can be told, or the answer says what is wrong.
func FuzzPoll(f *testing.F) {
	f.Add("/v3/discovery:clusters", []byte(`{"node":{"id":"n"},"version_info":"1","resource_names":["a"]}`))
	f.Add("/v3/discovery:routes", []byte(`{"node":{"id":"n","metadata":{"a":1}},"error_detail":{"code":3,"message":"no"}}`))
	f.Add("/v2/discovery:clusters", []byte(`{`))
	f.Add("/v3/discovery:nothing", []byte(``))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		typ, err := pollType(path)
		if err != nil {
			return
		}
		r := httptest.NewRequest("POST", "/", strings.NewReader(string(body)))
		req, err := readPoll(httptest.NewRecorder(), r, typ)
		switch {
		case err == nil && (req.node == nil || req.node.ID == ""):
			t.Error("a poll without a node is read")
		case err == nil && req.typeURL != "" && req.typeURL != typ.URL():
			t.Errorf("a poll of %s is read as one of %s", req.typeURL, typ)
		case err != nil && err.Error() == "":
			t.Error("the reason is empty")
		}
	})
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, time.Hour} {
		h.Observe(d)
	}
	count, sum, upTo := h.Read()
	if count != 4 || sum != 3600.003 || upTo[0.001] != 2 || upTo[0.0025] != 3 || upTo[900] != 3 {
		t.Errorf("%d, %v, %v", count, sum, upTo)
	}
	if n := testing.AllocsPerRun(100, func() { h.Observe(time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
