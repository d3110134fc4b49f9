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
	{"empty-cluster", true, "A route gains weight on a cluster that has no endpoint to answer."},
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
