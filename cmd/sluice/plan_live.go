package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// maxDiffer is how many nodes a plan names for each group; nodes has all.
const maxDiffer = 20

// ask asks the server. One that nobody named must not keep a plan waiting.
func (p *planRun) ask(ctx context.Context) (st *reconcile.Status, err error) {
	if p.client, err = p.server.client(); err != nil {
		return nil, err
	}
	limit := 5 * time.Second
	if p.server.named() {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.client.status(ctx)
}

// running takes each group's state from a server.
func (p *planRun) running(ctx context.Context, in *planInput, st *reconcile.Status) error {
	p.say("base: what the nodes of the server at %s have acknowledged", p.server.at)
	in.live, in.base = true, planRevision{Branch: st.Source.Branch, From: fromServer}
	requests, err := p.requests(ctx)
	if err != nil {
		return err
	}
	var bases []string
	for i := range st.Groups {
		g := &st.Groups[i]
		b := planBase{commit: g.Base, state: g.State, requests: requests[g.Name], nodes: planNodes{
			Total: g.Connected + g.Expected, Acked: g.AtTarget, Disconnected: g.Expected,
		}}
		if b.fleet, err = p.held(ctx, g.Name, g.Base); err != nil {
			return err
		}
		if b.under, err = p.held(ctx, g.Name, g.Target); err != nil {
			return err
		}
		b.halt = g.Halt
		if g.Parked != nil {
			if b.parked, err = p.held(ctx, g.Name, g.Parked.Commit); err != nil {
				return err
			}
		}
		in.groups[g.Name] = b
		if !slices.Contains(bases, g.Base) {
			bases = append(bases, g.Base)
		}
	}
	if len(bases) == 1 {
		in.base.Commit = bases[0]
	}
	return p.connected(ctx, in)
}

// connected asks which nodes are not where their group is, and why, those that ask
// for attention first; and what all say of themselves, if that may place them in
// another group.
func (p *planRun) connected(ctx context.Context, in *planInput) error {
	moves := in.regroups()
	doc, err := p.client.nodes(ctx, url.Values{"sort": {"trouble"}, "identity": {strconv.FormatBool(moves)}})
	if err != nil {
		return fmt.Errorf("cannot ask for the nodes: %w", err)
	}
	for i := range doc.Nodes {
		n := &doc.Nodes[i]
		if b, ok := in.groups[n.Group]; ok && n.State != reconcile.NodeAtTarget && len(b.differ) < maxDiffer {
			b.differ = append(b.differ, planNode{n.ID, n.Commit, n.State + ": " + n.Why})
			in.groups[n.Group] = b
		}
		if moves && n.State != reconcile.NodeDisconnected {
			in.nodes = append(in.nodes, schema.Node{ID: n.ID, Cluster: n.Cluster, Zone: n.Zone, UserAgent: n.UserAgent, Metadata: n.Metadata})
		}
	}
	return nil
}

// requests asks for the requests that nodes sent to each cluster lately, by group.
func (p *planRun) requests(ctx context.Context) (map[string]map[string]uint64, error) {
	doc, err := p.client.loads(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for the load: %w", err)
	}
	out := map[string]map[string]uint64{}
	for _, c := range doc.Clusters {
		if out[c.Group] == nil {
			out[c.Group] = map[string]uint64{}
		}
		out[c.Group][c.Cluster] = c.Requests
	}
	return out, nil
}

// held compiles a commit that the nodes of a group hold.
func (p *planRun) held(ctx context.Context, group, commit string) (*schema.Fleet, error) {
	if commit == "" {
		return nil, nil
	}
	rev, err := p.repo.Resolve(commit)
	if err != nil {
		return nil, fmt.Errorf("group %s is at commit %s, which is not in this repository: fetch it first (git fetch), or name a revision with --base", group, short(commit))
	}
	return p.compiled(ctx, rev)
}
