package ads

import (
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
	sent := map[string]uint64{}
	for _, w := range ws {
		sent[w.Cluster] += w.Dropped + max(w.Issued, w.Succeeded+w.Failed, w.InProgress)
	}
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
