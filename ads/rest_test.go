package ads

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-xds/sluice/schema"
)

// poller is a node that polls. Each method is one poll.
type poller struct {
	t       *testing.T
	url     string
	node    string
	version map[string]string // by type and names
	last    map[string]string // what was given, and is not yet reported
}

func (f *fleet) polling(hold time.Duration) (*rest, *httptest.Server) {
	f.t.Helper()
	h := f.srv.RESTHandler(hold).(*rest)
	web := httptest.NewServer(h)
	f.t.Cleanup(web.Close)
	return h, web
}

func newPoller(t *testing.T, web *httptest.Server, node string) *poller {
	return &poller{t: t, url: web.URL, node: node, version: map[string]string{}, last: map[string]string{}}
}

func pathOf(t schema.Type) string {
	for name, of := range pollTypes {
		if of == t {
			return pollPath + name
		}
	}
	panic("no path")
}

// send posts a request and returns the status and the response.
func (p *poller) send(t schema.Type, req *discoveryv3.DiscoveryRequest) (int, *discoveryv3.DiscoveryResponse) {
	p.t.Helper()
	req.Node = &corev3.Node{Id: p.node}
	b, err := protojson.Marshal(req)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.Post(p.url+pathOf(t), "application/json", bytes.NewReader(b))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	out := &discoveryv3.DiscoveryResponse{}
	if resp.StatusCode == http.StatusOK {
		if err := protojson.Unmarshal(body, out); err != nil {
			p.t.Fatalf("%v in %s", err, body)
		}
	}
	return resp.StatusCode, out
}

// expect polls, as an ACK of what was given last, and wants resources.
func (p *poller) expect(t schema.Type, names []string, want ...string) {
	p.t.Helper()
	key := fmt.Sprint(t, names)
	if v, ok := p.last[key]; ok {
		p.version[key] = v
	}
	status, resp := p.send(t, &discoveryv3.DiscoveryRequest{TypeUrl: t.URL(), ResourceNames: names, VersionInfo: p.version[key]})
	if status != http.StatusOK {
		p.t.Fatalf("%s %v: status %d, want %v", t, names, status, want)
	}
	var got []string
	for _, r := range resp.Resources {
		m, err := r.UnmarshalNew()
		if err != nil {
			p.t.Fatal(err)
		}
		switch m := m.(type) {
		case *clusterv3.Cluster:
			got = append(got, m.Name+"@"+m.AltStatName)
		case *endpointv3.ClusterLoadAssignment:
			got = append(got, m.ClusterName)
		case *listenerv3.Listener:
			got = append(got, m.Name+"@"+m.StatPrefix)
		case *routev3.RouteConfiguration:
			got = append(got, m.Name+"@"+m.InternalOnlyHeaders[0])
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Fatalf("%s %v: got %v, want %v", t, names, got, want)
	}
	p.last[key] = resp.VersionInfo
}

// quiet polls, and wants 304.
func (p *poller) quiet(t schema.Type, names ...string) {
	p.t.Helper()
	key := fmt.Sprint(t, names)
	if v, ok := p.last[key]; ok {
		p.version[key] = v
	}
	if status, resp := p.send(t, &discoveryv3.DiscoveryRequest{ResourceNames: names, VersionInfo: p.version[key]}); status != http.StatusNotModified {
		p.t.Fatalf("%s %v: status %d, %v", t, names, status, resp)
	}
}

// real messages, whose content is a word in some field.
func realCluster(name, word string) *schema.Resource {
	return message(cds, name, &clusterv3.Cluster{
		Name: name, AltStatName: word, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
	}, ref(edsT, name, schema.Child))
}

func realEndpoints(name string) *schema.Resource {
	r := message(edsT, name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
	r.Usable = true
	return r
}

func realListener(word string) *schema.Resource {
	return message(lds, "l", &listenerv3.Listener{Name: "l", StatPrefix: word}, ref(rds, "r", schema.Child))
}

func realRoutes(word, cluster string) *schema.Resource {
	return message(rds, "r", &routev3.RouteConfiguration{Name: "r", InternalOnlyHeaders: []string{word}}, ref(cds, cluster, schema.Traffic))
}

func realFirst() []*schema.Resource {
	return []*schema.Resource{realCluster("a", "1"), realEndpoints("a"), realListener("1"), realRoutes("1", "a")}
}

func (p *poller) up() {
	p.t.Helper()
	p.expect(cds, nil, "a@1")
	p.expect(edsT, []string{"a"}, "a")
	p.quiet(edsT, "a")
	p.quiet(cds)
	p.expect(lds, nil, "l@1")
	p.expect(rds, []string{"r"}, "r@1")
	p.quiet(rds, "r")
	p.quiet(lds)
}

func done(s *schema.SessionRow) bool { return s.Step.Verdict == schema.Done }

// The order across types holds for a node that polls, each cluster's endpoints
// by themselves as Envoy does.
func TestRESTMakeBeforeBreak(t *testing.T) {
	f := newFleet(t, realFirst()...)
	_, web := f.polling(time.Millisecond)
	p := newPoller(t, web, "n")
	p.up()
	f.settled("n", done)
	f.set(schema.Envoy, realCluster("b", "1"), realEndpoints("b"), realListener("1"), realRoutes("2", "b"))
	p.quiet(rds, "r") // routes wait
	p.expect(cds, nil, "a@1", "b@1")
	p.quiet(rds, "r")
	p.quiet(cds) // the ACK
	p.quiet(rds, "r")
	p.expect(edsT, []string{"b"}, "b")
	p.quiet(rds, "r")
	p.quiet(edsT, "b")
	p.quiet(edsT, "a")
	p.quiet(edsT, "b")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Step.Cause == schema.Unacked && s.Step.On.Type == rds })
	p.expect(rds, []string{"r"}, "r@2")
	p.quiet(cds) // not pruned before the routes are acknowledged
	p.quiet(rds, "r")
	p.expect(cds, nil, "b@1")
	p.quiet(cds)
	f.settled("n", done)
	if n := f.sessions("n"); n != 1 {
		t.Errorf("the polls made %d sessions", n)
	}
}

func TestRESTHeldPollGetsNews(t *testing.T) {
	f := newFleet(t, realFirst()...)
	_, web := f.polling(30 * time.Second)
	p := newPoller(t, web, "n")
	p.expect(cds, nil, "a@1")
	got := make(chan *discoveryv3.DiscoveryResponse)
	go func() {
		_, resp := p.send(cds, &discoveryv3.DiscoveryRequest{VersionInfo: p.last[fmt.Sprint(cds, []string(nil))]})
		got <- resp
	}()
	f.typed("n", cds, func(r *schema.TypeRow) bool { return r.Held == 1 && !r.InFlight }) // its ACK
	f.set(schema.Envoy, realCluster("a", "2"), realEndpoints("a"), realListener("1"), realRoutes("1", "a"))
	if r := <-got; len(r.Resources) != 1 {
		t.Errorf("got %v", r)
	}
}

func TestRESTNack(t *testing.T) {
	f := newFleet(t, realFirst()...)
	_, web := f.polling(time.Millisecond)
	p := newPoller(t, web, "n")
	p.up()
	f.set(schema.Envoy, realCluster("a", "2"), realEndpoints("a"), realListener("1"), realRoutes("1", "a"))
	key := fmt.Sprint(cds, []string(nil))
	old := p.last[key]
	p.expect(cds, nil, "a@2")
	for range 5 {
		if status, _ := p.send(cds, &discoveryv3.DiscoveryRequest{VersionInfo: old, ErrorDetail: &rpcstatus.Status{Code: 3, Message: "no"}}); status != http.StatusNotModified {
			t.Fatalf("a NACK is answered with %d", status)
		}
	}
	if row := f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil }); row.Nack.Words != "no" || row.Nack.Names[0] != "a" {
		t.Errorf("recorded %+v", row.Nack)
	}
	p.last[key] = old
	p.quiet(cds) // not again, nor with another poll
	f.set(schema.Envoy, realCluster("a", "3"), realEndpoints("a"), realListener("1"), realRoutes("1", "a"))
	p.expect(cds, nil, "a@3")
	p.quiet(cds)
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack == nil })
}

// A node that does not report what it was given refused it, or never got it: it
// is given again, after a pause that grows.
func TestRESTLostOrRefused(t *testing.T) {
	f := newFleet(t, realFirst()...)
	h, web := f.polling(time.Millisecond)
	p := newPoller(t, web, "n")
	p.up()
	f.set(schema.Envoy, realCluster("a", "2"), realEndpoints("a"), realListener("2"), realRoutes("1", "a"))
	key := fmt.Sprint(cds, []string(nil))
	old := p.last[key]
	p.expect(cds, nil, "a@2")
	m := &h.nodes["n"].mux[cds]
	for i := range 4 {
		for range 10 {
			p.last[key] = old
			p.quiet(cds) // no tight loop
		}
		p.quiet(lds) // and what follows waits
		m.mu.Lock()
		for _, x := range m.polls {
			x.at = x.at.Add(-max(x.pause, firstPause))
		}
		m.mu.Unlock()
		p.last[key] = old
		p.expect(cds, nil, "a@2")
		m.mu.Lock()
		for _, x := range m.polls {
			if want := firstPause << (i + 1); x.pause != want {
				t.Errorf("the pause is %s, want %s", x.pause, want)
			}
		}
		m.mu.Unlock()
	}
	p.quiet(cds)                       // the ACK at last
	p.expect(edsT, []string{"a"}, "a") // again, behind its cluster (rule O5)
	p.quiet(lds)
	p.quiet(edsT, "a")
	p.expect(lds, nil, "l@2")
}

func TestRESTResume(t *testing.T) {
	f := newFleet(t, realFirst()...)
	h, web := f.polling(time.Millisecond)
	p := newPoller(t, web, "n")
	p.up()
	f.settled("n", done)
	ps := h.nodes["n"]
	h.expire(ps) // as after a silence
	if n := f.sessions("n"); n != 0 {
		t.Fatalf("%d sessions after the silence", n)
	}
	p.quiet(cds)
	p.quiet(edsT, "a")
	p.quiet(lds)
	p.quiet(rds, "r")
	f.settled("n", done)
	// A process that begins anew holds nothing.
	fresh := newPoller(t, web, "n")
	fresh.up()
	f.settled("n", done)
	if n := f.sessions("n"); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestRESTMistakes(t *testing.T) {
	f := newFleet(t, realFirst()...)
	_, web := f.polling(time.Millisecond)
	ok := `{"node":{"id":"n"},"type_url":"` + cds.URL() + `"}`
	for _, c := range []struct {
		method, path, content, body string
		status                      int
		words                       string
	}{
		{"GET", "/v3/discovery:clusters", "application/json", "", 405, "POST a DiscoveryRequest"},
		{"POST", "/v3/discovery:clusters", "text/plain", ok, 415, "must be application/json"},
		{"POST", "/v3/discovery:clusters", "application/json", "{", 400, "not a DiscoveryRequest as JSON"},
		{"POST", "/v3/discovery:clusters", "application/json", "{}", 400, "must carry node.id"},
		{"POST", "/v3/discovery:endpoints", "application/json", ok, 400, "this path serves"},
		{"POST", "/v3/discovery:clusters", "application/json", `{"node":{"id":"n"},"type_url":"type.googleapis.com/envoy.api.v2.Cluster"}`, 400, "transport_api_version to V3"},
		{"POST", "/v2/discovery:clusters", "application/json", ok, 404, "transport_api_version to V3"},
		{"POST", "/v3/discovery:virtual_hosts", "application/json", ok, 404, "incremental"},
		{"POST", "/metrics", "application/json", ok, 404, "polls go to"},
		{"POST", "/v3/discovery:clusters", "application/json", `{"node":{"id":"` + strings.Repeat("x", maxPoll) + `"}}`, 413, "bytes"},
		{"POST", "/v3/discovery:clusters", "application/json; charset=utf-8", ok, 200, "resources"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, web.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.content)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		words, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(words), c.words) {
			t.Errorf("%s %s: %d %.200q, want %d %q", c.method, c.path, resp.StatusCode, words, c.status, c.words)
		}
	}
	for err, want := range map[error]int{ErrNotReady: 503, errors.New("no group matches"): 403} {
		f.refuse = err
		if status, _ := newPoller(t, web, "other").send(cds, &discoveryv3.DiscoveryRequest{}); status != want {
			t.Errorf("%v: status %d, want %d", err, status, want)
		}
	}
}
