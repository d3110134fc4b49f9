package ads

import (
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// NewSession names a session that is no stream: one that is led elsewhere, and
// Reported here so that the View has it beside all others.
func (s *Server) NewSession() schema.SessionID { return schema.SessionID(s.ids.Add(1)) }

// Report puts the state of such a session into the View. fresh is set the first
// time. The rows must not be changed after.
func (s *Server) Report(row *schema.SessionRow, types []*schema.TypeRow, fresh bool) {
	txn := s.ledger.db.Txn(true)
	must(txn.Insert(sessionTable, row))
	for _, t := range types {
		must(txn.Insert(typeTable, t))
	}
	txn.Commit()
	s.ledger.update(row.Node, func(r *schema.NodeRow) {
		if fresh {
			r.Sessions, r.SeenAt = r.Sessions+1, time.Now()
		}
		r.Group = row.Group
	})
}
