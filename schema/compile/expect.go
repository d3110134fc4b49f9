package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

func (t *test) lower(name string) schema.RouteTest {
	out := schema.RouteTest{
		Name: name, Pos: t.At.pos, Listener: t.Request.Listener,
		Request: schema.Request{
			Scheme: t.Request.Scheme, Method: t.Request.Method, Host: t.Request.Host, Path: t.Request.Path, Headers: t.Request.Headers,
		},
		Expect: schema.Expect{
			Service: t.Expect.Service, Split: t.Expect.Split, Redirect: t.Expect.Redirect, Status: t.Expect.Status,
			Path: t.Expect.Path, Host: t.Expect.Host, Headers: t.Expect.Headers,
		},
	}
	for key, value := range sorted(t.Request.Query) {
		sep := "?"
		if strings.Contains(out.Request.Path, "?") {
			sep = "&"
		}
		out.Request.Path += sep + key + "=" + value
	}
	if t.Expect.At.get("timeout") != nil {
		out.Expect.Timeout = &t.Expect.Timeout
	}
	return out
}

// answer is what a test asks for, or what it got: the words are equal in form,
// so that they can be read side by side.
type answer struct {
	goes  string   // where to
	seen  []string // what the service sees, as far as the test asks
	doubt string   // why another answer is possible
}

func (a answer) String() string {
	s := strings.Join(append([]string{a.goes}, a.seen...), ", ")
	if a.doubt != "" {
		s += " (in doubt: " + a.doubt + ")"
	}
	return s
}

func asked(e schema.Expect) answer {
	var a answer
	switch {
	case e.Service != "":
		a.goes = quoted("service", e.Service)
	case e.Split != nil:
		a.goes = "split " + splitWords(e.Split)
	case e.Redirect != "":
		a.goes = "redirect to " + e.Redirect
		if e.Status != 0 {
			a.goes += fmt.Sprintf(" (status %d)", e.Status)
		}
	default:
		a.goes = fmt.Sprintf("status %d", e.Status)
	}
	if e.Path != "" {
		a.seen = append(a.seen, "path "+e.Path)
	}
	if e.Host != "" {
		a.seen = append(a.seen, "host "+e.Host)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		a.seen = append(a.seen, headerWords(name, e.Headers[name], true))
	}
	if e.Timeout != nil {
		a.seen = append(a.seen, timeoutWords(*e.Timeout))
	}
	return a
}

// given puts a decision into the words of asked.
func given(t schema.RouteTest, d envoy.Decision) answer {
	a := answer{goes: decisionWords(d), doubt: d.Unprovable}
	if d.Kind != envoy.Forward {
		return a
	}
	if t.Expect.Path != "" {
		a.seen = append(a.seen, "path "+d.Path)
	}
	if t.Expect.Host != "" {
		host := d.Host
		if host == "" {
			host = "(the chosen endpoint's own)"
		}
		a.seen = append(a.seen, "host "+host)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Expect.Headers)) {
		value, ok := headerSeen(t.Request, d, name)
		a.seen = append(a.seen, headerWords(name, value, ok))
	}
	if t.Expect.Timeout != nil {
		a.seen = append(a.seen, timeoutWords(d.Timeout))
	}
	return a
}

// headerSeen is a header of the request as it reaches the service.
func headerSeen(r schema.Request, d envoy.Decision, name string) (string, bool) {
	name = strings.ToLower(name)
	if v, ok := d.AddHeaders[name]; ok {
		return v, true
	}
	if slices.Contains(d.RemoveHeaders, name) {
		return "", false
	}
	for k, v := range r.Headers {
		if strings.ToLower(k) == name {
			return v, true
		}
	}
	return "", false
}

func headerWords(name, value string, ok bool) string {
	if !ok {
		return "no header " + name
	}
	return fmt.Sprintf("header %s: %s", name, value)
}

func timeoutWords(d time.Duration) string {
	if d == 0 {
		return "no timeout"
	}
	return "timeout " + d.String()
}

func decisionWords(d envoy.Decision) string {
	switch d.Kind {
	case envoy.Forward:
		if d.Split != nil {
			return "split " + splitWords(d.Split)
		}
		return quoted("service", d.Cluster)
	case envoy.Redirect:
		return fmt.Sprintf("redirect to %s (status %d)", d.Redirect, d.Status)
	case envoy.Local:
		return "the server itself"
	case envoy.None:
		return fmt.Sprintf("status %d: no route matches", d.Status)
	}
	return fmt.Sprintf("status %d", d.Status)
}

func splitWords(split map[string]uint32) string {
	var parts []string
	for name, w := range sorted(split) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, w))
	}
	return strings.Join(parts, ", ")
}

// met reports whether a decision is the one expected.
func met(t schema.RouteTest, d envoy.Decision) bool {
	return goesThere(t.Expect, d) && slices.Equal(asked(t.Expect).seen, given(t, d).seen)
}

// goesThere compares where a request goes. Weights are relative, and a service
// of weight 0 gets nothing.
func goesThere(e schema.Expect, d envoy.Decision) bool {
	switch {
	case e.Service != "":
		return d.Kind == envoy.Forward && d.Cluster == e.Service
	case e.Split != nil:
		got := d.Split
		if got == nil && d.Kind == envoy.Forward {
			got = map[string]uint32{d.Cluster: 1}
		}
		return sameShares(e.Split, got)
	case e.Redirect != "":
		return d.Kind == envoy.Redirect && d.Redirect == e.Redirect && (e.Status == 0 || e.Status == d.Status)
	}
	return d.Kind != envoy.Forward && d.Kind != envoy.Local && d.Status == e.Status
}

func sameShares(a, b map[string]uint32) bool {
	var sumA, sumB uint64
	for _, w := range a {
		sumA += uint64(w)
	}
	for _, w := range b {
		sumB += uint64(w)
	}
	for name := range a {
		if uint64(a[name])*sumB != uint64(b[name])*sumA {
			return false
		}
	}
	for name := range b {
		if b[name] > 0 && a[name] == 0 {
			return false
		}
	}
	return sumA > 0 && sumB > 0
}
