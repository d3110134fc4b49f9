package schema

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Fleet is all that one commit says. Content and provenance are apart, so that
// moving a line changes no version.
type Fleet struct {
	Commit string // full hash, or empty for a working tree
	Groups []Group
	// Live holds the bodies of live types for all groups.
	Live  Snapshot
	Tests []RouteTest
	// Allow are the reasons of entries to allow hazards, by resource and code.
	Allow      map[Key]map[string]string
	Provenance Provenance
	Warnings   Diagnostics

	// Frozen groups keep their last good revision (rule R9): packages that do not
	// compile are part of them. The errors say why. They are not in Groups.
	Frozen map[string]Diagnostics
	// Broken are those packages.
	Broken []Broken
}

// FrozenBy says what keeps a group at its last good revision, or nil. A group that
// the commit does not name may be one that a broken package did.
func (f *Fleet) FrozenBy(group string) Diagnostics {
	if why := f.Frozen[group]; why != nil || f.Group(group) != nil {
		return why
	}
	var why Diagnostics
	for i := range f.Broken {
		if f.Broken[i].Mentions(group) {
			why = append(why, f.Broken[i].Errors...)
		}
	}
	return why.Sorted()
}

// Broken is a package that a fleet was made without. Nobody knows what it was
// meant to say, but what it mentions is known.
type Broken struct {
	Dir     string
	Package string
	Errors  Diagnostics
	Words   map[string]bool // all
	Labels  map[string]bool // those that could name what the package defines
	Any     bool            // it makes up names: it may be about anything
}

// Mentions reports whether the package could be about something of this name.
func (b *Broken) Mentions(name string) bool { return b.Any || allWords(name, b.Words) }

// Defines reports whether the package could define something of this name, or
// change it.
func (b *Broken) Defines(name string) bool { return b.Any || allWords(name, b.Labels) }

func allWords(name string, in map[string]bool) bool {
	all := true
	eachWord(name, func(w string) { all = all && in[w] })
	return all
}

// Words adds the words of a text to a set.
func Words(text string, into map[string]bool) { eachWord(text, func(w string) { into[w] = true }) }

func eachWord(text string, each func(string)) {
	for w := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r != '-' && r != '_' && r < 0x80 && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
	}) {
		each(w)
	}
}

// Allowed is the reason for which a hazard of a group's plan is allowed: the
// entry's that it is about, or the group's own. It is empty if nobody allows it.
func (f *Fleet) Allowed(group, code string, about Key) string {
	if reason := f.Allow[about][code]; reason != "" {
		return reason
	}
	if g := f.Group(group); g != nil {
		return g.Allow[code]
	}
	return ""
}

// Group finds a group by name, or returns nil.
func (f *Fleet) Group(name string) *Group {
	for i := range f.Groups {
		if f.Groups[i].Name == name {
			return &f.Groups[i]
		}
	}
	return nil
}

// Group is a set of nodes that share a target. Fleet.Groups is sorted by name.
type Group struct {
	Name     string        `json:"name"`
	Client   Client        `json:"client"`
	Match    Match         `json:"match"`
	Priority int           `json:"priority,omitempty"`
	After    []string      `json:"after,omitempty"` // groups that must have converged first
	Drain    time.Duration `json:"drain"`           // negative: the client's default
	External []string      `json:"external,omitempty"`
	// Allow are the group's reasons to allow hazards of its plans, by code.
	Allow map[string]string `json:"allow,omitempty"`
	// TTL is how long resources live without a heartbeat, by type (rule S11).
	TTL map[Type]time.Duration `json:"ttl,omitempty"`
	// Isolate has one node that refuses several resources tried with them in parts.
	Isolate bool `json:"isolate,omitempty"`
	// Unsupported says what the group asks for that this version cannot do:
	// such a group is not rolled out.
	Unsupported string   `json:"unsupported,omitempty"`
	Snapshot    Snapshot `json:"-"`
	// At is where it says which nodes are in it.
	At Pos `json:"-"`
}

// Match selects nodes. Empty fields select all; globs are those of path.Match, but
// that a star takes slashes too.
type Match struct {
	ID        string            `json:"id,omitempty"` // glob
	Cluster   string            `json:"cluster,omitempty"`
	UserAgent string            `json:"user_agent,omitempty"` // glob
	Zone      string            `json:"zone,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// Matches reports whether the node is one that m selects.
func (m Match) Matches(n Node) bool {
	glob := func(pattern, s string) bool {
		ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(s, "/", "\x00"))
		return pattern == "" || err == nil && ok
	}
	agent := n.UserAgent[:max(0, strings.LastIndexByte(n.UserAgent, '/'))] // without its version
	if !glob(m.ID, n.ID) || !glob(m.UserAgent, n.UserAgent) && !glob(m.UserAgent, agent) ||
		m.Cluster != "" && m.Cluster != n.Cluster || m.Zone != "" && m.Zone != n.Zone {
		return false
	}
	for k, v := range m.Metadata {
		if n.Metadata[k] != v {
			return false
		}
	}
	return true
}

// Pos is a place in the configuration. File is a slash path below the root of
// the repository; lines and columns count from 1, columns in bytes.
type Pos struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Col  int    `json:"column"`
}

// String is file:line:col, as much of it as is known.
func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Short is file:line.
func (p Pos) Short() string { return Pos{File: p.File, Line: p.Line}.String() }

// Origin is the author's word for a resource, or for a part of it, and where it
// stands.
type Origin struct {
	Kind  string `json:"kind"`            // service, route, listener, resource
	Name  string `json:"name"`            // its key in that map
	Field string `json:"field,omitempty"` // path below it; empty for the whole
	Pos   Pos    `json:"pos"`
}

// Provenance says which lines a resource was made from. The first origin of a
// resource is the whole of it.
type Provenance map[Key][]Origin

// Of is the origin of a whole resource; the zero Origin if none is known.
func (p Provenance) Of(k Key) Origin {
	if o := p[k]; len(o) > 0 {
		return o[0]
	}
	return Origin{}
}

// Severity of a diagnostic.
type Severity uint8

// The severities.
const (
	Error Severity = iota
	Warning
)

func (s Severity) String() string { return [...]string{"error", "warning"}[s] }

// MarshalText writes the severity's word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Diagnostic is one thing that is wrong with a configuration.
type Diagnostic struct {
	Pos      Pos      `json:"pos"`
	Severity Severity `json:"severity"`
	Code     string   `json:"code"` // stable, documented: "duplicate-host"
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"` // what to do
}

func (d Diagnostic) String() string {
	s := fmt.Sprintf("%s: %s (%s)", d.Pos, d.Message, d.Code)
	if d.Hint != "" {
		s += "\n    " + d.Hint
	}
	return s
}

// Diagnostics are sorted by position, each once. As an error they are the lines
// of all of them.
type Diagnostics []Diagnostic

// Sorted sorts the diagnostics and drops what is said twice.
func (ds Diagnostics) Sorted() Diagnostics {
	slices.SortFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Col, b.Pos.Col), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(ds)
}

func (ds Diagnostics) Error() string {
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// RouteTest is an assertion about where a request goes.
type RouteTest struct {
	Name    string
	Pos     Pos
	Request Request
	// Listener is the only one that is asked, by its author's name; empty for
	// all that answer for the host.
	Listener string
	Expect   Expect
}

// Request is an HTTP request as a route matcher sees it.
type Request struct {
	Scheme  string            `json:"scheme,omitempty"` // "http" or "https"; empty is http
	Method  string            `json:"method"`
	Host    string            `json:"host"` // may carry a port
	Path    string            `json:"path"` // may carry a query
	Headers map[string]string `json:"headers,omitempty"`
}

// Expect is the answer that a test asks for: one of Service, Split, Redirect and
// Status, or a redirect with its status. The rest is what a service sees of the
// request; what is empty is not asked for.
type Expect struct {
	Service  string            `json:"service,omitempty"`
	Split    map[string]uint32 `json:"split,omitempty"`
	Redirect string            `json:"redirect,omitempty"`
	Status   uint32            `json:"status,omitempty"`
	Path     string            `json:"path,omitempty"` // with the query
	Host     string            `json:"host,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Timeout  *time.Duration    `json:"timeout,omitempty"` // of the whole request; 0 is none
}
