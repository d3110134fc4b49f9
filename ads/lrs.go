package ads

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/hashicorp/go-memdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-xds/sluice/schema"
)

// sendAll is what a client advertises that can report on all of its clusters
// without a list of them.
const sendAll = "envoy.lrs.supports_send_all_clusters"

// Bounds of the load that the ledger keeps: reports of a node, windows of a
// report, and windows in all, some 200 bytes each.
const (
	reportsPerNode   = 6
	windowsPerReport = 4096
	windowsInAll     = 1 << 18
)

// LoadWindow is what one node sent to one locality of one cluster in a time.
type LoadWindow struct {
	Node     string    `json:"node"`
	Cluster  string    `json:"cluster"`
	Service  string    `json:"service,omitempty"` // the name of the cluster's endpoints, if another
	Locality string    `json:"locality"`          // region/zone/sub-zone; empty for what was dropped before a choice
	Priority uint32    `json:"priority,omitempty"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`

	Issued     uint64 `json:"issued"`
	Succeeded  uint64 `json:"succeeded"`
	Failed     uint64 `json:"failed"`
	InProgress uint64 `json:"in_progress"`
	Dropped    uint64 `json:"dropped,omitempty"`
}

// loadService takes load reports.
type loadService struct {
	loadv3.UnimplementedLoadReportingServiceServer
	srv *Server
}

// StreamLoadStats asks one node for the load of the clusters that its group uses
// and takes what it reports. When the group's clusters change, the next report is
// answered with the new list.
func (l *loadService) StreamLoadStats(g loadv3.LoadReportingService_StreamLoadStatsServer) error {
	s := l.srv
	req, err := g.Recv()
	if err != nil {
		return err
	}
	node, err := reporterOf(req.GetNode())
	if err != nil {
		return err
	}
	if err := s.welcome(time.Now()); err != nil {
		return err
	}
	end, err := s.endings.begin(g.Context(), s.limits.Load().Open)
	if err != nil {
		return err
	}
	defer s.endings.finish(end)
	defer s.reporting(node.ID)()
	all := slices.Contains(req.GetNode().GetClientFeatures(), sendAll)
	every := s.limits.Load().LoadEvery
	var pace bucket
	var before time.Time
	var target *schema.Target
	var asked schema.Set
	for first := true; ; first = false {
		next, err := s.guide.Admit(*node, target)
		switch {
		case errors.Is(err, ErrNotReady):
			return status.Error(codes.Unavailable, err.Error())
		case err != nil && first:
			return status.Error(codes.FailedPrecondition, err.Error())
		case err == nil:
			target = next
		}
		if clusters := s.loadOf(node.ID, target); first || !all && !clusters.Equal(asked) {
			asked = clusters
			if err := g.Send(loadRequest(clusters, all, every)); err != nil {
				return err
			}
		}
		now := time.Now()
		ws := windowsOf(node.ID, req.GetClusterStats(), now, every)
		s.ledger.loads.add(s.ledger, ws)
		s.reported(node.ID, ws, before, now, every)
		before = now
		if err := end.wait(pace.take(now, 2, 2*reportsPerNode)); err != nil {
			return err
		}
		if req, err = g.Recv(); err != nil {
			return err
		}
	}
}

// reporterOf reads the node of a stream's first request.
func reporterOf(n *corev3.Node) (*schema.Node, error) {
	raw, err := proto.Marshal(&corev3.Node{
		Id: n.GetId(), Cluster: n.GetCluster(), Metadata: n.GetMetadata(), Locality: n.GetLocality(),
		UserAgentName: n.GetUserAgentName(), UserAgentVersionType: n.GetUserAgentVersionType(),
	})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	node, _, err := readNode(raw)
	if err != nil || node.ID == "" {
		return nil, status.Error(codes.InvalidArgument, "the first request of a stream must carry node.id")
	}
	return node, nil
}

func loadRequest(clusters schema.Set, all bool, every time.Duration) *loadv3.LoadStatsResponse {
	r := &loadv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(every), SendAllClusters: all}
	if !all {
		for c := range clusters.All() {
			r.Clusters = append(r.Clusters, c.Name)
		}
	}
	return r
}

// windowsOf reads a report that has just arrived.
func windowsOf(node string, stats []*endpointv3.ClusterStats, now time.Time, every time.Duration) []LoadWindow {
	var out []LoadWindow
	for _, c := range stats {
		took := c.GetLoadReportInterval().AsDuration()
		if took <= 0 || took > time.Hour {
			took = every
		}
		w := LoadWindow{Node: node, Cluster: c.GetClusterName(), Service: c.GetClusterServiceName(), From: now.Add(-took), To: now}
		if n := c.GetTotalDroppedRequests(); n > 0 {
			dropped := w
			dropped.Dropped = n
			out = append(out, dropped)
		}
		for _, l := range c.GetUpstreamLocalityStats() {
			w.Locality = localityName(l.GetLocality())
			w.Priority = l.GetPriority()
			w.Issued, w.Succeeded, w.Failed, w.InProgress = l.GetTotalIssuedRequests(), l.GetTotalSuccessfulRequests(), l.GetTotalErrorRequests(), l.GetTotalRequestsInProgress()
			out = append(out, w)
		}
		if len(out) >= windowsPerReport {
			return out[:windowsPerReport]
		}
	}
	return out
}

func localityName(l *corev3.Locality) string {
	return strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
}

// loadRow is the ring of one node.
type loadRow struct {
	node    string
	reports [][]LoadWindow // the oldest first
}

// loads is the part of the ledger that is about load.
type loads struct {
	mu      sync.Mutex
	pending [][]LoadWindow

	// The writer's alone:
	order   []string // the node of each report that is kept, the oldest first
	windows int
}

// add queues a report for the next write. A report of nothing is not kept.
func (l *loads) add(to *ledger, ws []LoadWindow) {
	if len(ws) == 0 {
		return
	}
	l.mu.Lock()
	l.pending = append(l.pending, ws)
	l.mu.Unlock()
	to.kick()
}

func (l *loads) write(txn *memdb.Txn, limit int) {
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, ws := range batch {
		node := ws[0].Node
		l.change(txn, node, func(r *loadRow) { r.reports = append(r.reports, ws) })
		l.order = append(l.order, node)
		l.windows += len(ws)
	}
	for l.windows > limit {
		node := l.order[0]
		l.order = l.order[1:]
		l.change(txn, node, func(r *loadRow) {
			if len(r.reports) > 0 {
				l.windows -= len(r.reports[0])
				r.reports = r.reports[1:]
			}
		})
	}
}

func (l *loads) change(txn *memdb.Txn, node string, change func(*loadRow)) {
	row := loadRow{node: node}
	if old, err := txn.First(loadTable, "id", node); err == nil && old != nil {
		row.reports = slices.Clone(old.(*loadRow).reports)
	}
	change(&row)
	if len(row.reports) > reportsPerNode {
		l.windows -= len(row.reports[0])
		row.reports = row.reports[1:]
		i := slices.Index(l.order, node)
		l.order = slices.Delete(l.order, i, i+1)
	}
	if len(row.reports) == 0 {
		must(txn.Delete(loadTable, &row))
		return
	}
	must(txn.Insert(loadTable, &row))
}

// Loads lists what nodes reported lately of the load that they sent, by node and
// time. An empty node or cluster stands for all.
func (v View) Loads(node, cluster string) []LoadWindow {
	var found []*loadRow
	if node == "" {
		found = rows[*loadRow](v, loadTable, "id")
	} else {
		found = rows[*loadRow](v, loadTable, "id", node)
	}
	var out []LoadWindow
	for _, r := range found {
		for _, ws := range r.reports {
			for _, w := range ws {
				if cluster == "" || w.Cluster == cluster {
					out = append(out, w)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b LoadWindow) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), a.To.Compare(b.To))
	})
	return out
}
