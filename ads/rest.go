package ads

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
)

// Hold is how long a poll that would bring nothing waits for news: somewhat
// less than the second that Envoy gives a poll unless its bootstrap says more.
const Hold = 800 * time.Millisecond

// maxPoll is the largest poll that is read, in bytes.
const maxPoll = 8 << 20

const pollPath = "/v3/discovery:"

// pollTypes are the types that the protocol has paths for, by the end of it.
var pollTypes = map[string]schema.Type{
	"clusters": schema.Clusters, "endpoints": schema.Endpoints, "listeners": schema.Listeners, "routes": schema.Routes,
	"secrets": schema.Secrets, "runtime": schema.Runtimes, "extension_configs": schema.Extensions, "scoped-routes": schema.ScopedRoutes,
}

// RESTHandler serves nodes that poll, with DiscoveryRequest and DiscoveryResponse
// as JSON. A poll that would bring nothing is held for a while, Hold if hold is
// zero, and then answered 304. All polls of a node make up one session, so that
// the order across types holds for them as for streams. The handler does not
// authenticate.
func (s *Server) RESTHandler(hold time.Duration) http.Handler {
	if hold <= 0 {
		hold = Hold
	}
	h := &rest{srv: s, hold: hold, nodes: map[string]*pollSession{}}
	s.mu.Lock()
	s.closers = append(s.closers, h.close)
	s.mu.Unlock()
	return h
}

func (h *rest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, err := h.serve(w, r)
	switch {
	case err != nil:
		if reason := reasonOf(nil, err); reason != Left {
			h.srv.stats.Ended[reason].Add(1)
		}
		code := http.StatusInternalServerError
		var bad *badPoll
		if errors.As(err, &bad) {
			h.srv.stats.Ended[Garbage].Add(1)
			code = bad.status
		} else if c, ok := pollStatus[status.Code(err)]; ok {
			code = c
		}
		if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		words := err.Error()
		if st, ok := status.FromError(err); ok {
			words = st.Message()
		}
		http.Error(w, words, code)
	case resp == nil:
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(resp)))
		_, _ = w.Write(resp) // a poll that is lost is asked again
	}
}

// pollStatus says what gRPC's codes are in HTTP.
var pollStatus = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.FailedPrecondition: http.StatusForbidden,
	codes.PermissionDenied: http.StatusForbidden, codes.Unavailable: http.StatusServiceUnavailable,
	codes.ResourceExhausted: http.StatusTooManyRequests,
}

// badPoll is a request that is not a poll.
type badPoll struct {
	status int
	words  string
}

func (b *badPoll) Error() string { return b.words }

func (h *rest) serve(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	t, err := pollType(r.URL.Path)
	if err != nil {
		return nil, err
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &badPoll{http.StatusMethodNotAllowed, fmt.Sprintf("%s is not how to poll: POST a DiscoveryRequest as JSON", r.Method)}
	}
	if m, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || m != "application/json" {
		return nil, &badPoll{http.StatusUnsupportedMediaType, fmt.Sprintf("the content type is %q, and must be application/json", r.Header.Get("Content-Type"))}
	}
	req, err := readPoll(w, r, t)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if addr, err := net.ResolveTCPAddr("tcp", r.RemoteAddr); err == nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: addr})
	}
	a, err := h.poll(ctx, t, req)
	if err != nil || a == nil {
		return nil, err
	}
	a.t = t
	return pollResponse(a)
}

// pollType finds the type of a path, or says what is wrong with it.
func pollType(path string) (schema.Type, error) {
	if strings.HasPrefix(path, "/v2/discovery:") {
		return 0, &badPoll{http.StatusNotFound, path + " is of the v2 API, which is not served: set resource_api_version and transport_api_version to V3"}
	}
	name, ok := strings.CutPrefix(path, pollPath)
	if !ok {
		return 0, &badPoll{http.StatusNotFound, path + " is not served: polls go to " + pollPath + "clusters and its like"}
	}
	t, ok := pollTypes[name]
	if !ok {
		return 0, &badPoll{http.StatusNotFound, fmt.Sprintf("there is no polling for %q; virtual hosts need an incremental stream", name)}
	}
	return t, nil
}

// readPoll reads a request: what is JSON on the wire is scanned as any other.
func readPoll(w http.ResponseWriter, r *http.Request, t schema.Type) (*request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPoll))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, &badPoll{http.StatusRequestEntityTooLarge, fmt.Sprintf("a poll may have %d bytes", maxPoll)}
		}
		return nil, &badPoll{http.StatusBadRequest, "cannot read the request: " + err.Error()}
	}
	var m discoveryv3.DiscoveryRequest
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &m); err != nil {
		return nil, &badPoll{http.StatusBadRequest, "the request is not a DiscoveryRequest as JSON: " + err.Error()}
	}
	switch {
	case m.GetNode().GetId() == "":
		return nil, &badPoll{http.StatusBadRequest, "a poll must carry node.id"}
	case isV2(m.TypeUrl):
		return nil, &badPoll{http.StatusBadRequest, m.TypeUrl + " is of the v2 API, which is not served: set resource_api_version and transport_api_version to V3"}
	case m.TypeUrl != "" && m.TypeUrl != t.URL():
		return nil, &badPoll{http.StatusBadRequest, fmt.Sprintf("this path serves %s, and not %s", t.URL(), m.TypeUrl)}
	}
	raw, err := proto.Marshal(&m)
	if err != nil {
		return nil, &badPoll{http.StatusBadRequest, err.Error()}
	}
	req := &request{of: sotw}
	if err := req.scan(raw); err != nil {
		return nil, &badPoll{http.StatusBadRequest, err.Error()}
	}
	return req, nil
}

// pollResponse is an answer as JSON. A nonce would mean nothing to who polls.
func pollResponse(b *pollAnswer) ([]byte, error) {
	m := &discoveryv3.DiscoveryResponse{VersionInfo: string(b.version), TypeUrl: b.t.URL()}
	for r := range b.set.All() {
		a := &anypb.Any{}
		if err := proto.Unmarshal(r.Body, a); err != nil {
			return nil, fmt.Errorf("cannot write %s as JSON: %w", r.Key, err)
		}
		m.Resources = append(m.Resources, a)
	}
	out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s as JSON: %w", b.t, err)
	}
	return out, nil
}
