package schema

// Hazard is a kind of risk that a plan can run. It has a section in
// docs/hazards.md.
type Hazard struct {
	Code string
	// Blocking refuses the plan, unless the code is allowed: on the command line,
	// or with a reason by the group or the entry that it is about.
	Blocking bool
	Meaning  string // one line
}

// Hazards lists the kinds that the planner finds, by code.
func Hazards() []Hazard { return hazards[:] }

var hazards = [...]Hazard{
	{"address-clash", true, "Two listeners want one address at some step, and the node refuses the second."},
	{"aggregate-members", false, "A cluster's members change in place, and requests fail while they do."},
	{"all-routes-lost", true, "A table that answers requests loses its last route."},
	{"cluster-swap", false, "A cluster that takes requests changes in place: its connections are drained, and requests may fail for a moment."},
	{"empty-cluster", true, "A route gains weight on a cluster that has no endpoint to answer."},
	{"fetch-timeout", false, "A node waits for a resource for ever, or longer than a step waits for the node."},
	{"filter-order", true, "A listener gains a filter that refuses requests before the routes say which to let through."},
	{"listener-drain", false, "A listener is replaced or removed: its connections are drained, and then closed."},
	{"pool-reset", false, "Clients close the connections to a cluster and open new ones."},
	{"prune-with-traffic", false, "A cluster is removed that nothing known sends to, and load reports show requests to it."},
	{"relisten", false, "gRPC clients that dial what is removed fail, some for good."},
	{"rename", false, "A listener goes and another takes its address in one response."},
	{"reuse-port", true, "A listener changes its reuse_port, which nodes refuse."},
	{"routes-lost", false, "Requests that are answered now are answered by no route any more."},
	{"unproven", false, "Only a running proxy knows what a resource refers to."},
}

// HazardOf finds a kind by its code.
func HazardOf(code string) (Hazard, bool) {
	for _, h := range hazards {
		if h.Code == code {
			return h, true
		}
	}
	return Hazard{}, false
}
