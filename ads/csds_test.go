package ads

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-xds/sluice/schema"
)

// message makes a resource of a message.
func message(t schema.Type, name string, m proto.Message, refs ...schema.Ref) *schema.Resource {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	if err != nil {
		panic(err)
	}
	return schema.NewResource(schema.Key{Type: t, Name: name}, refs, body)
}

// operator is a stock client of the status service.
func (f *fleet) operator() statusv3.ClientStatusDiscoveryServiceClient {
	f.t.Helper()
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return statusv3.NewClientStatusDiscoveryServiceClient(conn)
}

// statuses reads one node's, as "CDS/a SYNCED version".
func (f *fleet) statuses(req *statusv3.ClientStatusRequest) map[string]*statusv3.ClientConfig_GenericXdsConfig {
	f.t.Helper()
	resp, err := f.operator().FetchClientStatus(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]*statusv3.ClientConfig_GenericXdsConfig{}
	for _, c := range resp.Config {
		for _, g := range c.GenericXdsConfigs {
			t, _ := schema.TypeOf(g.TypeUrl)
			if t != schema.Runtimes {
				out[c.Node.Id+" "+t.Short()+"/"+g.Name] = g
			}
		}
	}
	return out
}

func TestCSDSStatuses(t *testing.T) {
	f := newFleet(t, first()...)
	c := f.envoy("n")
	check := func(key string, want statusv3.ConfigStatus) *statusv3.ClientConfig_GenericXdsConfig {
		t.Helper()
		all := f.statuses(&statusv3.ClientStatusRequest{})
		if all[key].GetConfigStatus() != want {
			t.Fatalf("%s is %v, want %s; of %d", key, all[key], want, len(all))
		}
		return all[key]
	}
	for _, k := range []string{"n CDS/a", "n EDS/a", "n LDS/l", "n RDS/r"} {
		if g := check(k, statusv3.ConfigStatus_SYNCED); g.VersionInfo == "" || g.LastUpdated == nil || g.ErrorState != nil {
			t.Errorf("%s: %v", k, g)
		}
	}
	old := check("n RDS/r", statusv3.ConfigStatus_SYNCED).VersionInfo
	f.set(schema.Envoy, append(first()[:3], route("r", "2", "a"), eds("b", "1"), res(edsT, "b", "1"))...)
	c.expect(cds, "a@1", "b@1")
	check("n CDS/a", statusv3.ConfigStatus_SYNCED)
	if g := check("n CDS/b", statusv3.ConfigStatus_STALE); g.LastUpdated == nil {
		t.Errorf("no time: %v", g)
	}
	check("n RDS/r", statusv3.ConfigStatus_NOT_SENT)
	c.ask(edsT, "a", "b")
	c.expect(edsT, "b@1")
	c.ask(edsT, "a", "b")
	c.ask(cds)
	c.expect(rds, "r@2")
	c.nack(rds, "route r: no such thing", "r")
	f.settled("n", func(s *schema.SessionRow) bool { return s.Nack != nil })
	g := check("n RDS/r", statusv3.ConfigStatus_ERROR)
	if e := g.ErrorState; g.VersionInfo != old || e.Details != "route r: no such thing" || e.VersionInfo == "" || e.VersionInfo == old || e.LastUpdateAttempt == nil {
		t.Errorf("%v", g)
	}
}

func TestCSDSContents(t *testing.T) {
	const planted = "planted-private-key"
	key := &tlsv3.TlsCertificate{PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: planted}}}
	socket, err := anypb.New(&tlsv3.UpstreamTlsContext{Sni: "kept", CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{key}}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t,
		message(cds, "a", &clusterv3.Cluster{Name: "a", TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: socket}}}),
		res(cds, "b", planted), // what cannot be read is not shown
		message(schema.Secrets, "s", &tlsv3.Secret{Name: "s", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: key}}))
	c := f.dial("n")
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: cds.URL()})
	if _, err := c.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: schema.Secrets.URL(), ResourceNames: []string{"s"}})
	sent, err := c.stream.Recv()
	if err != nil || !strings.Contains(prototext.Format(sent), planted) {
		t.Fatalf("the node did not get its secret: %v", err)
	}
	c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: schema.Secrets.URL(), ResourceNames: []string{"s"}, ResponseNonce: sent.Nonce})

	all := f.statuses(&statusv3.ClientStatusRequest{})
	var a clusterv3.Cluster
	if err := all["n CDS/a"].GetXdsConfig().UnmarshalTo(&a); err != nil || a.Name != "a" {
		t.Errorf("cluster a: %v, %v", err, &a)
	}
	if s := prototext.Format(&a); !strings.Contains(s, "kept") {
		t.Errorf("too much is redacted: %s", s)
	}
	for k, g := range all {
		if s := prototext.Format(g); strings.Contains(s, planted) || strings.Contains(string(g.GetXdsConfig().GetValue()), planted) {
			t.Errorf("%s shows a key: %s", k, s)
		}
	}
	if g := all["n SDS/s"]; g == nil || g.XdsConfig != nil || g.VersionInfo == "" {
		t.Errorf("secret: %v", g)
	}
	for k, g := range f.statuses(&statusv3.ClientStatusRequest{ExcludeResourceContents: true}) {
		if g.XdsConfig != nil {
			t.Errorf("%s has contents", k)
		}
	}
}

func TestCSDSMatchers(t *testing.T) {
	f := newFleet(t, res(cds, "a", "1"))
	for _, id := range []string{"web-1", "web-2", "api-1"} {
		c := f.dial(id)
		md, err := structpb.NewStruct(map[string]any{"team": id[:3]})
		if err != nil {
			t.Fatal(err)
		}
		c.raw(&discoveryv3.DiscoveryRequest{TypeUrl: cds.URL(), Node: &corev3.Node{Id: id, Metadata: md}})
		c.expect(cds, "a@1")
	}
	id := func(m *matcherv3.StringMatcher) *matcherv3.NodeMatcher { return &matcherv3.NodeMatcher{NodeId: m} }
	exact := func(s string) *matcherv3.StringMatcher {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
	}
	team := &matcherv3.NodeMatcher{NodeMetadatas: []*matcherv3.StructMatcher{{
		Path:  []*matcherv3.StructMatcher_PathSegment{{Segment: &matcherv3.StructMatcher_PathSegment_Key{Key: "team"}}},
		Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: exact("web")}},
	}}}
	for _, c := range []struct {
		name string
		ms   []*matcherv3.NodeMatcher
		want int
	}{
		{"all", nil, 3},
		{"exact", []*matcherv3.NodeMatcher{id(exact("web-1"))}, 1},
		{"either", []*matcherv3.NodeMatcher{id(exact("web-1")), id(exact("api-1")), id(exact("none"))}, 2},
		{"prefix", []*matcherv3.NodeMatcher{id(&matcherv3.StringMatcher{IgnoreCase: true, MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "WEB"}})}, 2},
		{"regex is of the whole", []*matcherv3.NodeMatcher{id(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "eb-."}}})}, 0},
		{"metadata", []*matcherv3.NodeMatcher{team}, 2},
		{"both", []*matcherv3.NodeMatcher{{NodeId: exact("web-2"), NodeMetadatas: team.NodeMetadatas}}, 1},
	} {
		if got := f.statuses(&statusv3.ClientStatusRequest{NodeMatchers: c.ms}); len(got) != c.want {
			t.Errorf("%s: %d nodes, want %d", c.name, len(got), c.want)
		}
	}
	_, err := f.operator().FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeMetadatas: []*matcherv3.StructMatcher{{}}}}})
	if err == nil || !strings.Contains(err.Error(), "the path must be one key") {
		t.Errorf("a matcher without a path: %v", err)
	}
}

func TestCSDSStream(t *testing.T) {
	f := newFleet(t, res(cds, "a", "1"))
	s, err := f.operator().StreamClientStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for want := range 3 {
		if err := s.Send(&statusv3.ClientStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Recv()
		if err != nil || len(resp.Config) != want {
			t.Fatalf("%d nodes, want %d: %v", len(resp.GetConfig()), want, err)
		}
		c := f.dial(string(rune('a' + want)))
		c.ask(cds)
		c.expect(cds, "a@1")
	}
}
