// Package reconcile is the loop that joins the others: a commit is fetched from
// Git, compiled, planned and driven to every node, group by group.
//
// It owns what must outlive the process: which commit each group finished, which
// it is on its way to, and what both consist of. That is written before the
// first response of a rollout. A commit that does not compile, a remote that is
// down or a branch that is gone changes nothing: the fleet keeps what it has.
package reconcile
