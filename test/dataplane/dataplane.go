// Package dataplane starts real xDS clients and servers and sends real requests
// through them. It knows xDS from outside only: it never sees what a control
// plane meant to serve, only what a request met.
//
// A Driver starts one kind of client; each Node is one xDS client with a stream
// of its own. A Server is a backend that answers with its label. A Load sends
// requests and tallies the answers.
//
// Stop waits for the processes and goroutines that this package started. What
// grpc-go winds down by itself after a Close ends soon afterwards.
package dataplane

import (
	"context"
	"encoding/json"
	"time"
)

// DefaultPath is the path of a Request that names none.
const DefaultPath = "/sluice.Echo/Say"

// DefaultTimeout is the deadline of a Send whose context has none.
const DefaultTimeout = time.Second

// Bootstrap tells an xDS client who it is and which server to ask.
type Bootstrap struct {
	Server  string // host:port of the xDS server, in plain text
	NodeID  string
	Cluster string
	Zone    string // locality; may be empty
}

// JSON gives the gRPC bootstrap (gRFC A27, A36). The locality is always present:
// grpc-js needs it.
func (b Bootstrap) JSON() []byte {
	type object = map[string]any
	locality := object{}
	if b.Zone != "" {
		locality["zone"] = b.Zone
	}
	node := object{"id": b.NodeID, "locality": locality}
	if b.Cluster != "" {
		node["cluster"] = b.Cluster
	}
	out, err := json.Marshal(object{
		"xds_servers": []object{{
			"server_uri":      b.Server,
			"channel_creds":   []object{{"type": "insecure"}},
			"server_features": []string{"xds_v3"},
		}},
		"node":                                   node,
		"server_listener_resource_name_template": ServerListenerName("%s"),
	})
	if err != nil {
		panic(err) // strings and maps of them always encode
	}
	return out
}

// ServerListenerName is the name of the Listener that a Server at addr asks for.
func ServerListenerName(addr string) string {
	return "grpc/server?xds.resource.listening_address=" + addr
}

// A Driver starts clients of one kind.
type Driver interface {
	// Name is that of the implementation: "grpc-go".
	Name() string
	// Start starts one client for target ("xds:///echo.test"). The context
	// bounds the start only.
	Start(ctx context.Context, b Bootstrap, target string) (Node, error)
}

// A Node is one running xDS client. Its methods may be called concurrently.
type Node interface {
	ID() string
	// Ready returns when one request could be carried.
	Ready(ctx context.Context) error
	// Send sends one request, fail-fast and without a retry policy. The
	// deadline is DefaultTimeout unless ctx has one.
	Send(ctx context.Context, r Request) (Answer, error)
	// View is what the client itself says that it holds, sorted by type and
	// name. It is errors.ErrUnsupported where the client cannot say.
	View(ctx context.Context) ([]Held, error)
	// Stop stops the client. A child process is gone when it returns.
	Stop()
}

// A Request is one call. A gRPC method is its HTTP path.
type Request struct {
	Path   string            // "/shop.Cart/Checkout"; DefaultPath if empty
	Header map[string]string // lower-case names
}

// An Answer is what a backend said.
type Answer struct {
	Label string // the label of the backend that answered
}

// State is the state of one resource in a client (CSDS ClientResourceStatus).
type State string

// The states that clients report.
const (
	Requested    State = "REQUESTED"
	DoesNotExist State = "DOES_NOT_EXIST"
	ACKed        State = "ACKED"
	NACKed       State = "NACKED"
)

// Held is one resource in a client's own view.
type Held struct {
	TypeURL string
	Name    string
	Version string // of the last accepted response; empty if none
	State   State
	Error   string // why the last update was refused
	Refused string // version of the refused update
}
