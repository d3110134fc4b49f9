package ads

import (
	"net"
	"slices"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// hostOf is a peer's address without its port: two processes of one host may be
// a hot restart, of two hosts not.
func hostOf(peer string) string {
	if host, _, err := net.SplitHostPort(peer); err == nil {
		return host
	}
	return peer
}

// suspect looks at a node again in a while if it has more sessions than one.
func (s *Server) suspect(sess *session) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.closed {
		return
	}
	sess.twin = time.AfterFunc(s.limits.Load().Twins, func() {
		hosts := s.hosts(sess.node.ID, time.Now())
		if len(hosts) < 2 {
			return
		}
		s.mu.Lock()
		_, told := s.twins[sess.node.ID]
		s.twins[sess.node.ID] = hosts
		s.mu.Unlock()
		if !told {
			s.log.Warn("duplicate node id", "node", sess.node.ID, "hosts", hosts,
				"why", "two nodes with one id overwrite each other's state: give each its own --service-node")
		}
		s.ledger.update(sess.node, func(r *schema.NodeRow) { r.Twins = hosts })
	})
}

// parted brings the mark of a duplicate node id up to date after a session's end.
func (s *Server) parted(node schema.Node) {
	if len(s.Twins(node.ID)) == 0 {
		return
	}
	hosts := s.hosts(node.ID, time.Now())
	if len(hosts) < 2 {
		hosts = nil
	}
	s.mu.Lock()
	s.twins[node.ID] = hosts // never deleted: it is warned of once
	s.mu.Unlock()
	s.ledger.update(node, func(r *schema.NodeRow) { r.Twins = hosts })
}

// hosts are where the long-lived sessions of a node come from.
func (s *Server) hosts(node string, now time.Time) []string {
	var hosts []string
	for _, sess := range s.of(node) {
		if sess.peer != "" && now.Sub(sess.connected) >= s.limits.Load().Twins {
			hosts = append(hosts, hostOf(sess.peer))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Twins lists the hosts from which long-lived sessions of one node id came at
// the same time, or nothing: the id is then used by two nodes.
func (s *Server) Twins(node string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.twins[node])
}
