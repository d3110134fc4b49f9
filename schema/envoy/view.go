package envoy

import (
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// view is a request as matchers see it. Rewrites change its path and headers.
type view struct {
	scheme, method, host string
	path                 string // with query; empty for a CONNECT without one
	bare                 string // without
	headers              map[string]string
	connect              bool
	call                 bool // of a gRPC client, which matches for itself
}

// newView fills in what a test may leave out: GET, http and /.
func newView(r schema.Request) *view {
	v := &view{
		scheme: lower(r.Scheme), method: r.Method, host: r.Host, path: r.Path,
		headers: make(map[string]string, len(r.Headers)+1),
	}
	if v.scheme == "" {
		v.scheme = "http"
	}
	if v.method == "" {
		v.method = "GET"
	}
	for k, val := range r.Headers {
		v.headers[lower(k)] = val
	}
	v.connect = v.method == "CONNECT" || lower(v.headers["upgrade"]) == "connect-udp"
	if v.path == "" && v.method != "CONNECT" {
		v.path = "/"
	}
	if _, ok := v.headers["x-forwarded-proto"]; !ok {
		v.headers["x-forwarded-proto"] = v.scheme
	}
	v.bare = bare(v.path)
	return v
}

// newCall is a request as a gRPC client matches it: by the method and by the
// metadata of the caller, in which pseudo headers and binary values do not count.
func newCall(r schema.Request) *view {
	r.Method = "POST"
	v := newView(r)
	v.call = true
	if _, given := r.Headers["x-forwarded-proto"]; !given {
		delete(v.headers, "x-forwarded-proto")
	}
	for k := range v.headers {
		if strings.HasSuffix(k, "-bin") {
			delete(v.headers, k)
		}
	}
	v.headers["content-type"] = "application/grpc"
	return v
}

// get reads a header by its lower-case name, pseudo headers included. Host is
// another name of :authority.
func (v *view) get(name string) (string, bool) {
	if v.call {
		s, ok := v.headers[name]
		return s, ok
	}
	switch name {
	case ":method":
		return v.method, true
	case ":scheme":
		return v.scheme, true
	case ":path":
		return v.path, v.path != ""
	case ":authority", "host":
		return v.host, v.host != ""
	}
	s, ok := v.headers[name]
	return s, ok
}

// grpc reports whether the request says that it is gRPC.
func (v *view) grpc() bool {
	t := v.headers["content-type"]
	rest, ok := strings.CutPrefix(t, "application/grpc")
	return ok && (rest == "" || rest[0] == '+') && v.path != ""
}

// query finds the first value of a query parameter, as it stands.
func (v *view) query(name string) (string, bool) {
	_, q, _ := strings.Cut(v.path, "?")
	for q != "" {
		var pair string
		pair, q, _ = strings.Cut(q, "&")
		k, val, _ := strings.Cut(pair, "=")
		if k == name && pair != "" {
			return val, true
		}
	}
	return "", false
}

func (v *view) cookie(name string) (string, bool) {
	for pair := range strings.SplitSeq(v.headers["cookie"], ";") {
		k, val, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if k == name && k != "" {
			return strings.Trim(val, `"`), true
		}
	}
	return "", false
}

// portStart is where the port of a host begins, colon included, or -1.
func portStart(host string) int {
	i := strings.LastIndexByte(host, ':')
	if i >= 0 && strings.LastIndexByte(host, ']') > i {
		return -1
	}
	return i
}
