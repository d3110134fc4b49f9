package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-xds/sluice/reconcile"
)

// adminClient speaks with a server.
type adminClient struct {
	at    string // path of its socket, or URL
	base  string // before the paths of the API
	token string // shown with every request; never printed
	cert  bool   // a certificate is shown too
	http  *http.Client
}

// newAdminClient speaks over a server's Unix socket.
func newAdminClient(socket string) *adminClient {
	var d net.Dialer
	return &adminClient{at: socket, base: "http://sluice", http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
	}}}
}

// unreachable says that no server answers. A command may do without one, or wait.
type unreachable struct {
	at  string
	why string
}

func (e *unreachable) Error() string {
	return fmt.Sprintf("no sluice answers at %s: %s", e.at, e.why)
}

// status asks for the status.
func (c *adminClient) status(ctx context.Context) (*reconcile.Status, error) {
	return c.statusOf(ctx, "all")
}

// statusOf asks for the status with all nodes, or none.
func (c *adminClient) statusOf(ctx context.Context, nodes string) (*reconcile.Status, error) {
	var st reconcile.Status
	if err := c.get(ctx, "/v1/status?nodes="+nodes, &st); err != nil {
		return nil, err
	}
	return &st, c.sameFormat(st.FormatVersion)
}

func (c *adminClient) nodes(ctx context.Context, query url.Values) (*nodesDocument, error) {
	var doc nodesDocument
	if err := c.get(ctx, "/v1/nodes?"+query.Encode(), &doc); err != nil {
		return nil, err
	}
	return &doc, c.sameFormat(doc.FormatVersion)
}

func (c *adminClient) node(ctx context.Context, id string) (*nodeDocument, error) {
	var doc nodeDocument
	if err := c.get(ctx, "/v1/nodes/"+url.PathEscape(id), &doc); err != nil {
		return nil, err
	}
	return &doc, c.sameFormat(doc.FormatVersion)
}

func (c *adminClient) loads(ctx context.Context) (*loadsDocument, error) {
	var doc loadsDocument
	if err := c.get(ctx, "/v1/loads", &doc); err != nil {
		return nil, err
	}
	return &doc, c.sameFormat(doc.FormatVersion)
}

func (c *adminClient) history(ctx context.Context) (*historyDocument, error) {
	var doc historyDocument
	if err := c.get(ctx, "/v1/history", &doc); err != nil {
		return nil, err
	}
	return &doc, c.sameFormat(doc.FormatVersion)
}

// sync asks for a poll. It does not wait for its end.
func (c *adminClient) sync(ctx context.Context) (*syncDocument, error) {
	body, err := c.do(ctx, http.MethodPost, "/v1/sync", nil)
	if err != nil {
		return nil, err
	}
	var doc syncDocument
	if err := c.read(body, &doc); err != nil {
		return nil, err
	}
	return &doc, c.sameFormat(doc.FormatVersion)
}

// intend asks for an intent.
func (c *adminClient) intend(ctx context.Context, in reconcile.Intent) (*reconcile.Outcome, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	body, err := c.do(ctx, http.MethodPost, "/v1/intents", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var out reconcile.Outcome
	return &out, c.read(body, &out)
}

// eventsAfter opens the stream of events. The caller closes it.
func (c *adminClient) eventsAfter(ctx context.Context, seq uint64) (io.ReadCloser, error) {
	res, err := c.open(ctx, http.MethodGet, "/v1/events?after="+strconv.FormatUint(seq, 10), nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

func (c *adminClient) get(ctx context.Context, path string, doc any) error {
	body, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return c.read(body, doc)
}

func (c *adminClient) read(body []byte, doc any) error {
	if err := json.Unmarshal(body, doc); err != nil {
		return fmt.Errorf("cannot read the answer of %s: %w; use the same version of sluice as the server", c.at, err)
	}
	return nil
}

func (c *adminClient) sameFormat(format string) error {
	if format != reconcile.StatusFormat {
		return fmt.Errorf("the server at %s speaks format %q of the status, and this sluice %q: use the same version", c.at, format, reconcile.StatusFormat)
	}
	return nil
}

// answerLimit is the largest answer that is read, in bytes: some hundred thousand
// nodes.
const answerLimit = 256 << 20

// do makes one request and reads the answer.
func (c *adminClient) do(ctx context.Context, method, path string, in io.Reader) ([]byte, error) {
	res, err := c.open(ctx, method, path, in)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, answerLimit+1))
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if len(body) > answerLimit {
		return nil, fmt.Errorf("cannot read the answer of %s: it is larger than %d MiB", c.at, answerLimit>>20)
	}
	return body, nil
}

// saidNo is what a server that answers says of a request.
type saidNo struct {
	code int
	why  string
}

func (e *saidNo) Error() string { return e.why }

// open makes a request. An answer that is no success is an error.
func (c *adminClient) open(ctx context.Context, method, path string, in io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, intentLimit))
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if res.StatusCode == http.StatusUnauthorized && c.token == "" && !c.cert {
		return nil, &saidNo{res.StatusCode, fmt.Sprintf("the server at %s wants to know who asks: give a token with --token-file, or in SLUICE_TOKEN", c.at)}
	}
	var no adminError
	if json.Unmarshal(body, &no) == nil && no.Error != "" {
		return nil, &saidNo{res.StatusCode, no.Error}
	}
	what, _, _ := strings.Cut(path, "?")
	if res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusMethodNotAllowed {
		return nil, &saidNo{res.StatusCode, fmt.Sprintf("the server at %s is older than this sluice, and has no %s %s: use the same version", c.at, method, what)}
	}
	return nil, &saidNo{res.StatusCode, fmt.Sprintf("the server at %s refused %s %s: %s", c.at, method, what, strings.TrimSpace(string(body)))}
}

// failed says what to do about a socket that does not answer.
func (c *adminClient) failed(ctx context.Context, err error) error {
	var untrusted *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isURL(c.at) && errors.Is(err, syscall.ECONNREFUSED):
		return &unreachable{c.at, "start one with sluice serve --admin, or name it with --server"}
	case errors.As(err, &untrusted):
		return fmt.Errorf("cannot trust the server at %s: %w; --server-ca names an authority that vouches for it", c.at, untrusted.Err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &unreachable{c.at, "start one with sluice serve, or name its socket with --server"}
	case errors.Is(err, fs.ErrPermission):
		return &unreachable{c.at, "permission denied; it is the user's who runs the server"}
	}
	var op *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &op):
		err = op.Err
	case errors.As(err, &request):
		err = request.Err
	}
	return &unreachable{c.at, err.Error()}
}
