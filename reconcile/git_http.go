package reconcile

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// httpRemote speaks the smart HTTP protocol. It uses go-git's transport directly:
// no global registry, and one request when nothing changed.
type httpRemote struct {
	url    string
	conns  *http.Transport
	client transport.Transport
}

func newHTTPRemote(url string, timeout time.Duration) *httpRemote {
	conns := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, ResponseHeaderTimeout: timeout,
		TLSHandshakeTimeout: timeout, IdleConnTimeout: 2 * time.Minute, MaxConnsPerHost: 2,
	}
	return &httpRemote{url, conns, githttp.NewClient(&http.Client{Transport: capped{conns}})}
}

func (r *httpRemote) close() { r.conns.CloseIdleConnections() }

func (r *httpRemote) list(ctx context.Context) (*listing, error) {
	end, err := transport.NewEndpoint(r.url)
	if err != nil {
		return nil, err
	}
	session, err := r.client.NewUploadPackSession(end, nil)
	if err != nil {
		return nil, err
	}
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, err
	}
	ls := &listing{branches: make(map[string]plumbing.Hash)}
	for name, h := range refs.References {
		if short, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			ls.branches[short] = h
		}
	}
	for _, link := range refs.Capabilities.Get(capability.SymRef) {
		if target, ok := strings.CutPrefix(link, "HEAD:"); ok {
			ls.head = plumbing.ReferenceName(target)
		}
	}
	if ls.head == "" && refs.Head != nil {
		ls.detached = *refs.Head // servers since Git 1.8.4 name the branch, if any
	}
	ls.fetch = func(ctx context.Context, want plumbing.Hash, into *objectStore) error {
		return uploadPack(ctx, session, refs, want, into)
	}
	return ls, nil
}

func uploadPack(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, want plumbing.Hash, into *objectStore) error {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants, req.Haves = []plumbing.Hash{want}, into.haves()
	resp, err := session.UploadPack(ctx, req)
	if err != nil {
		return err
	}
	defer resp.Close()
	var pack io.Reader = resp
	if req.Capabilities.Supports(capability.Sideband64k) {
		pack = sideband.NewDemuxer(sideband.Sideband64k, resp)
	} else if req.Capabilities.Supports(capability.Sideband) {
		pack = sideband.NewDemuxer(sideband.Sideband, resp)
	}
	return into.addPack(func(w io.Writer) error { _, err := io.Copy(w, pack); return err })
}

// capped ends an answer that is too long (rule X5).
type capped struct{ next http.RoundTripper }

func (c capped) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		limit := map[string]int64{http.MethodGet: maxRefsAnswer, http.MethodPost: maxPackAnswer}[req.Method]
		resp.Body = http.MaxBytesReader(nil, resp.Body, limit)
	}
	return resp, err
}

// oneLine makes text from outside fit for one line of a terminal.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == ' ' }), " ")
	if r := []rune(s); len(r) > 300 {
		s = string(r[:300]) + "..."
	}
	return s
}
