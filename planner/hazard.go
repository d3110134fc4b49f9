package planner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// Severity says what a hazard does to a plan.
type Severity uint8

// The severities.
const (
	Warning Severity = iota
	Blocking
)

func (s Severity) String() string { return [...]string{"warning", "blocking"}[s] }

// MarshalText writes the severity's word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Hazard is what a plan risks. A blocking one refuses the plan unless its code
// is allowed.
type Hazard struct {
	Code     string // of schema.Hazards
	Severity Severity
	Key      schema.Key // what it is about
	Message  string     // what traffic sees
	WayOut   string     // what to do about it
}

// hazards collects what a path risks.
type hazards []Hazard

func (hs *hazards) add(code string, k schema.Key, wayOut, format string, args ...any) {
	h := Hazard{Code: code, Key: k, Message: fmt.Sprintf(format, args...), WayOut: wayOut}
	if kind, _ := schema.HazardOf(code); kind.Blocking {
		h.Severity = Blocking
	}
	*hs = append(*hs, h)
}

// sorted lists each once, by code and then by what it is about.
func (hs hazards) sorted() []Hazard {
	slices.SortFunc(hs, func(a, b Hazard) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), a.Key.Compare(b.Key), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(hs)
}
