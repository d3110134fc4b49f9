package ads

import (
	"cmp"
	"context"
	"slices"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sluice-xds/sluice/schema"
)

// RegisterStatus adds the client status discovery service. It tells what every
// node holds, so it belongs where operators are served, and not where nodes are.
// What secrets hold it never tells.
func (s *Server) RegisterStatus(g grpc.ServiceRegistrar) {
	statusv3.RegisterClientStatusDiscoveryServiceServer(g, &statusService{srv: s})
}

type statusService struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
	srv *Server
}

// FetchClientStatus answers one request.
func (c *statusService) FetchClientStatus(_ context.Context, req *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	return c.srv.clientStatus(req)
}

// StreamClientStatus answers each request of a stream.
func (c *statusService) StreamClientStatus(g statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	end, err := c.srv.endings.begin(g.Context(), c.srv.limits.Load().Open)
	if err != nil {
		return err
	}
	defer c.srv.endings.finish(end)
	for {
		req, err := g.Recv()
		if err != nil {
			return err
		}
		resp, err := c.srv.clientStatus(req)
		if err != nil {
			return err
		}
		if err := g.Send(resp); err != nil {
			return err
		}
	}
}

func (s *Server) clientStatus(req *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	match, err := nodeMatchers(req.GetNodeMatchers())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	sessions := s.all()
	slices.SortFunc(sessions, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	resp := &statusv3.ClientStatusResponse{}
	for _, sess := range sessions {
		if match(&sess.node) {
			resp.Config = append(resp.Config, sess.holding().config(!req.GetExcludeResourceContents()))
		}
	}
	return resp, nil
}

// holding is what a session held at one moment: enough to say it all later,
// without its lock.
type holding struct {
	node   schema.Node
	target *schema.Target
	live   *schema.Snapshot
	types  [schema.NumTypes]heldType
}

type heldType struct {
	schema.TypeFacts
	sub     *subscription
	unknown schema.Set
	refused refusal
}

// holding copies what the owner has: a few words a type.
func (s *session) holding() *holding {
	h := &holding{node: s.node, live: s.srv.live.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.target = s.target
	for t := range s.types {
		h.types[t] = heldType{s.facts.Types[t], s.types[t].sub, s.types[t].unknown, s.types[t].refused}
	}
	return h
}

func (h *holding) config(contents bool) *statusv3.ClientConfig {
	c := &statusv3.ClientConfig{Node: nodeMessage(&h.node)}
	for _, t := range schema.AllTypes() {
		ht := &h.types[t]
		if ht.sub == nil {
			continue
		}
		want := h.target.Snapshot.Of(t)
		if t.Live() {
			want = h.live.Of(t)
		}
		want = ht.sub.Select(want)
		for r := range want.Union(ht.Acked).All() {
			c.GenericXdsConfigs = append(c.GenericXdsConfigs, ht.resource(t, r.Name, want.Get(r.Name), contents && t != schema.Secrets))
		}
	}
	return c
}

// resource is the status of one name. What is to be taken away has no wanted
// resource.
func (ht *heldType) resource(t schema.Type, name string, want *schema.Resource, contents bool) *statusv3.ClientConfig_GenericXdsConfig {
	acked, flight := ht.Acked.Get(name), ht.Flight.Get(name)
	c := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: t.URL(), Name: name}
	show := want
	switch {
	case want != nil && ht.refused.nack != nil && ht.refused.versions[name] == want.Version:
		c.ConfigStatus, show = statusv3.ConfigStatus_ERROR, acked
		c.LastUpdated = moment(ht.AckedAt)
		c.ErrorState = &adminv3.UpdateFailureState{
			VersionInfo: string(want.Version), Details: ht.refused.nack.Words, LastUpdateAttempt: moment(ht.refused.nack.At),
		}
		if contents {
			c.ErrorState.FailedConfiguration = redacted(want)
		}
	case want != nil && acked != nil && acked.Version == want.Version && ht.unknown.Get(name) == nil:
		c.ConfigStatus, c.LastUpdated = statusv3.ConfigStatus_SYNCED, moment(ht.AckedAt)
	case want != nil && flight != nil && flight.Version == want.Version,
		want == nil && ht.InFlight && flight == nil && t.FullState():
		c.ConfigStatus, c.LastUpdated = statusv3.ConfigStatus_STALE, moment(ht.SentAt)
	default:
		c.ConfigStatus = statusv3.ConfigStatus_NOT_SENT
	}
	if want == nil {
		show = acked
	}
	if show != nil {
		c.VersionInfo = string(show.Version)
		if contents {
			c.XdsConfig = redacted(show)
		}
	}
	return c
}

// moment is a time of a type's responses, which all of its resources share.
func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func nodeMessage(n *schema.Node) *corev3.Node {
	m := &corev3.Node{Id: n.ID, Cluster: n.Cluster, UserAgentName: n.UserAgent}
	if n.Zone != "" {
		m.Locality = &corev3.Locality{Zone: n.Zone}
	}
	for k, v := range n.Metadata {
		if m.Metadata == nil {
			m.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		m.Metadata.Fields[k] = structpb.NewStringValue(v)
	}
	return m
}
