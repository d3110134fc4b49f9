package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/status"
)

// maxAnswer is how much of an HTTP answer is read, in bytes.
const maxAnswer = 4 << 10

// StartHTTP starts a backend of HTTP/1 on a free port of 127.0.0.1, which
// answers every request with its label as the body.
func StartHTTP(label string) (*Server, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot start backend %s: %w", label, err)
	}
	s := newServer(label, lis)
	s.serving = true
	s.impl = httpServer{&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.requests.Add(1)
		_, _ = io.WriteString(w, label) // fails when the client has gone
	})}}
	s.serve(lis)
	return s, nil
}

// httpServer stops as a gRPC server does.
type httpServer struct{ *http.Server }

func (s httpServer) Stop()         { _ = s.Close() }
func (s httpServer) GracefulStop() { _ = s.Shutdown(context.Background()) }

// httpClient sends requests to one address.
type httpClient struct {
	http *http.Client
	to   *url.URL
}

func newHTTPClient(to *url.URL) httpClient {
	return httpClient{to: to, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		// An answer is counted as it is.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Send posts: net/http itself repeats what it may, and a POST it may not.
func (c httpClient) Send(ctx context.Context, r Request) (Answer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	path := r.Path
	if path == "" {
		path = DefaultPath
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.to.String()+path, nil)
	if err != nil {
		return Answer{}, err
	}
	for k, v := range r.Header {
		req.Header.Set(k, v)
		if k == "host" {
			req.Host = v
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Answer{}, failure(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{}, failure(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return Answer{Label: string(body)}, nil
}

// failure leaves out of an error what differs from one request to the next, so
// that equal failures are counted together: ports.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
