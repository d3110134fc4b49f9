package ads

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// A cluster is not removed while the node says that requests go to it (rule R10):
// its load reports are facts of its sessions, as ACKs are.

// reportSlack is how much later than it is due a load report may come.
const reportSlack = 2 * time.Second

// reporting counts a node's streams of load reports. It returns what ends one.
func (s *Server) reporting(node string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reporters[node]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reporters[node]--; s.reporters[node] == 0 {
			delete(s.reporters, node)
		}
	}
}

// loadOf are the clusters that a node reports on: those of its target, and what
// its sessions may hold beside.
func (s *Server) loadOf(node string, target *schema.Target) schema.Set {
	clusters := target.Snapshot.Of(schema.Clusters)
	for _, sess := range s.of(node) {
		sess.mu.Lock()
		if sess.path != nil {
			clusters = sess.path.At(sess.at).Of(schema.Clusters).Union(clusters)
		}
		sess.mu.Unlock()
	}
	return clusters
}

// reported tells a node's sessions of a load report. It covers the time since from,
// which is zero for a stream that only begins; the next is due in every.
func (s *Server) reported(node string, ws []LoadWindow, from, now time.Time, every time.Duration) {
	sent := requestsOf(ws)
	until := now.Add(every + reportSlack)
	for _, sess := range s.of(node) {
		sess.mu.Lock()
		if !sess.closed {
			sess.facts.Load = schema.Load{From: from, Until: until, Sent: sess.busy(sent, from, now, until)}
		}
		if !sess.closed && sess.path != nil {
			sess.advance(now)
		}
		sess.release(nil)
	}
}

// busy lists the clusters that the session's path removes and that requests were
// sent to. What another stream of the node has reported stands until its next
// report is overdue.
func (s *session) busy(sent map[string]uint64, from, now, until time.Time) []schema.Sent {
	if s.path == nil || len(s.path.Stages) == 0 {
		return nil
	}
	out := slices.DeleteFunc(slices.Clone(s.facts.Load.Sent), func(old schema.Sent) bool {
		return sent[old.Cluster] > 0 || !now.Before(old.Until)
	})
	for _, k := range s.path.Stages[len(s.path.Stages)-1].Unused {
		if n := sent[k.Name]; k.Type == schema.Clusters && n > 0 {
			out = append(out, schema.Sent{Cluster: k.Name, Requests: n, From: from, Until: until})
		}
	}
	return out
}

// ClusterLoad is what the nodes of a group sent to a cluster.
type ClusterLoad struct {
	Group    string `json:"group"`
	Cluster  string `json:"cluster"`
	Requests uint64 `json:"requests"`
	Nodes    int    `json:"nodes"` // that sent some
}

// Requests adds up the newest load report of each node that came since a time, by
// group and cluster. Clusters without requests are left out.
func (v View) Requests(since time.Time) []ClusterLoad {
	type of struct{ group, cluster string }
	sum := map[of]*ClusterLoad{}
	for _, n := range v.Nodes() {
		for _, row := range rows[*loadRow](v, loadTable, "id", n.ID) {
			last := row.reports[len(row.reports)-1]
			if !last[0].To.After(since) {
				continue
			}
			for cluster, requests := range requestsOf(last) {
				k := of{n.Group, cluster}
				if sum[k] == nil {
					sum[k] = &ClusterLoad{Group: n.Group, Cluster: cluster}
				}
				sum[k].Requests += requests
				sum[k].Nodes++
			}
		}
	}
	out := make([]ClusterLoad, 0, len(sum))
	for _, c := range sum {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b ClusterLoad) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Cluster, b.Cluster))
	})
	return out
}

// requestsOf are the requests of one report, by cluster: those that were sent or
// dropped in its time, or else open at its end.
func requestsOf(ws []LoadWindow) map[string]uint64 {
	sent := map[string]uint64{}
	for _, w := range ws {
		if n := w.Dropped + max(w.Issued, w.Succeeded+w.Failed, w.InProgress); n > 0 {
			sent[w.Cluster] += n
		}
	}
	return sent
}
