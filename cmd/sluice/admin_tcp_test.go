package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
)

// Tokens of the tests. What a server or a command prints must not hold them.
const (
	readToken  = "planted-r-5f0c2a9e41"
	writeToken = "planted-w-77ad0b3c92"
)

// safeLog is what a server under test logs.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serveTCP serves the shop over TCP too, with a token that may read, of ci, and one
// that may write, of oncall.
func (f *shopFleet) serveTCP(cfg serverConfig) (running serverRunning, said *safeLog, stop func()) {
	f.t.Helper()
	said = &safeLog{}
	cfg.Repo, cfg.Store, cfg.Socket, cfg.Log = f.repo, f.store, f.socket, slog.New(slog.NewTextHandler(said, nil))
	cfg.Admin.Addr = "127.0.0.1:0"
	if cfg.Admin.Tokens == "" {
		cfg.Admin.Tokens = f.tokens(fmt.Sprintf("# who\nread ci %s\n\nwrite oncall sha256:%x\n", readToken, sha256.Sum256([]byte(writeToken))))
	}
	must(f.t, cfg.Admin.check())
	running, stop = start(f.t, cfg)
	return running, said, stop
}

// tokens writes the file of tokens, as a whole.
func (f *shopFleet) tokens(text string) string {
	f.t.Helper()
	file := filepath.Join(filepath.Dir(f.socket), "tokens")
	must(f.t, os.WriteFile(file+".new", []byte(text), 0o600))
	must(f.t, os.Rename(file+".new", file))
	return file
}

// Every command works over TCP with a token. One that may only read sees all, plans,
// and changes nothing; who writes is in the history by the token's name.
func TestAdminOverTCP(t *testing.T) {
	f := newShop(t)
	doc := readOpenAPI(t)
	first := commit(t, f.repo)
	running, said, stop := f.serveTCP(serverConfig{})
	defer stop()
	cli(t, 0, "status", "--server", f.socket, "--wait", "--commit", first)
	connect(t, running.XDS, "edge-1")
	t.Setenv(tokenVariable, readToken)
	at := []string{"--server", running.Admin}
	as := func(args ...string) []string { return append(args, at...) }
	await(t, `^edge .*converged +- +1 +1 +1 +0$`, "status", "--server", f.socket)
	wants(t, cli(t, 0, as("status")...), `^edge .*converged +- +1 +1 +1 +0$`)
	cli(t, 0, as("status", "--wait", "--commit", first)...)
	wants(t, cli(t, 0, as("nodes")...), `^edge-1 +edge .*at-target`)
	wants(t, cli(t, 0, as("node", "edge-1")...), `^edge-1  at-target`)
	wants(t, cli(t, 0, as("history")...), `converged`)
	wants(t, cli(t, 0, as("top", "--timeout", "1s")...), `^\S+  converged  edge  r-1`)
	wants(t, cli(t, 0, as("plan", f.repo)...), `^base: what the nodes of the server at http://127\.0\.0\.1:\d+ have acknowledged$`, `^No changes\. 1 of 1 node`)

	wants(t, cli(t, 1, as("pause", "--yes")...), `^error: ci may only read: for POST /v1/intents ask with a token that may write$`)
	wants(t, cli(t, 1, as("pause")...), `^error: ci may only read`)
	wants(t, cli(t, 1, as("sync")...), `^error: ci may only read: for POST /v1/sync ask`)
	wants(t, cli(t, 0, as("history")...), `converged`)
	if running.Loop.Status().Group("edge").Paused != nil {
		t.Fatal("a token that may only read has paused the group")
	}

	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(writeToken+"\n"), 0o600))
	cli(t, 0, as("pause", "edge", "--yes", "--token-file", file)...)
	wants(t, cli(t, 0, as("history")...), `edge +1 +oncall +pause +nothing new is served`)
	cli(t, 0, as("sync", "--token-file", file)...)

	t.Setenv(tokenVariable, "nobody-knows-this-one")
	wants(t, cli(t, 1, as("status")...), `^error: the token is not one that this server knows$`)
	t.Setenv(tokenVariable, "")
	wants(t, cli(t, 1, as("status")...), `^error: the server at http://\S+ wants to know who asks: give a token with --token-file, or in SLUICE_TOKEN$`)
	for _, r := range (&admin{}).routes() {
		f.callTCP(doc, running.Admin, "", 401, r.method, r.path, "")
		if r.method != "GET" {
			f.callTCP(doc, running.Admin, readToken, 403, r.method, r.path, `{"verb": "pause", "dry_run": true}`)
		}
	}
	f.callTCP(doc, running.Admin, readToken, 200, "GET", "/v1/status", "")
	for _, secret := range []string{readToken, writeToken, "nobody-knows-this-one"} {
		if strings.Contains(said.String(), secret) {
			t.Errorf("the log has a token:\n%s", said)
		}
	}
	wants(t, said.String(), `level=WARN msg="refused over TCP" peer=127\.0\.0\.1:\d+ by=ci path=/v1/intents`, `msg=intent verb=pause .*by=oncall`)
}

// callTCP makes a request with a token, and holds the answer against the file.
func (f *shopFleet) callTCP(doc openAPI, at, token string, code int, method, route, body string) {
	f.t.Helper()
	req, err := http.NewRequest(method, at+route, strings.NewReader(body))
	must(f.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	must(f.t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(f.t, err)
	if res.StatusCode != code {
		f.t.Fatalf("%s %s: %d, want %d: %s", method, route, res.StatusCode, code, data)
	}
	if want := code == 401; want != (res.Header.Get("WWW-Authenticate") != "") {
		f.t.Errorf("%s %s: %d with %v", method, route, code, res.Header)
	}
	doc.check(f.t, method, route, fmt.Sprint(code), data)
}

// What is not in the file of the API is refused in its own form, on both ways in.
func TestUnknownPaths(t *testing.T) {
	f := newShop(t)
	commit(t, f.repo)
	running, _, stop := f.serveTCP(serverConfig{})
	defer stop()
	for _, c := range []struct {
		method, path, want string
		code               int
	}{
		{"GET", "/v2/status", "this server has no /v2/status: see docs/admin-api.yaml, or use the same version of sluice as the server", 404},
		{"GET", "/", "this server has no /: see docs/admin-api.yaml, or use the same version of sluice as the server", 404},
		{"DELETE", "/v1/nodes/edge-1", "/v1/nodes/edge-1 takes GET, and not DELETE", 405},
		{"GET", "/v1/sync", "/v1/sync takes POST, and not GET", 405},
	} {
		for at, client := range map[string]*http.Client{"http://sluice": newAdminClient(f.socket).http, running.Admin: http.DefaultClient} {
			req, err := http.NewRequest(c.method, at+c.path, nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+writeToken)
			res, err := client.Do(req)
			must(t, err)
			var no adminError
			err = json.NewDecoder(res.Body).Decode(&no)
			res.Body.Close()
			if err != nil || res.StatusCode != c.code || no.Error != c.want || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s%s: %d %v %q", c.method, at, c.path, res.StatusCode, err, no.Error)
			}
		}
	}
}

// The file of tokens is read again when it changes: who is new gets in, and who is
// taken away loses a stream that is open. While it cannot be read nobody gets in.
func TestTokensChange(t *testing.T) {
	f := newShop(t)
	commit(t, f.repo)
	running, said, stop := f.serveTCP(serverConfig{})
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	get := func(token, path string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, "GET", running.Admin+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	code := func(token string) int { return get(token, "/v1/status?nodes=none").StatusCode }
	stream := get(readToken, "/v1/events?heartbeat=100ms")
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || stream.StatusCode != 200 {
		t.Fatalf("no events: %d", stream.StatusCode)
	}
	f.tokens("read other planted-o-0123456789\n")
	for lines.Scan() {
	} // until the server ends it
	if ctx.Err() != nil {
		t.Fatal("the stream goes on")
	}
	if got := [2]int{code(readToken), code("planted-o-0123456789")}; got != [2]int{401, 200} {
		t.Errorf("the old token and the new: %v", got)
	}
	file := f.tokens("read other\n")
	if got := code("planted-o-0123456789"); got != 503 {
		t.Errorf("with a file that is wrong: %d", got)
	}
	must(t, os.Chmod(f.tokens("read other planted-o-0123456789\n"), 0o644))
	if got := code("planted-o-0123456789"); got != 503 {
		t.Errorf("with a file that others may read: %d", got)
	}
	must(t, os.Remove(file))
	if got := [2]int{code("planted-o-0123456789"), code("x")}; got != [2]int{503, 503} {
		t.Errorf("without a file: %v", got)
	}
	doc := readOpenAPI(t)
	for _, r := range (&admin{}).routes() {
		f.callTCP(doc, running.Admin, readToken, 503, r.method, r.path, "")
	}
	f.tokens("write other planted-o-0123456789\n")
	if got := code("planted-o-0123456789"); got != 200 {
		t.Errorf("with the file again: %d", got)
	}
	text := said.String()
	wants(t, text, `tokens:1: cannot take the token: want \\"read NAME TOKEN\\"`, `others may read it, as its mode is 0644: chmod 600 it`)
	if n := strings.Count(text, "no such file"); n != 1 {
		t.Errorf("that the file is gone is logged %d times", n)
	}
}

// Beyond loopback there is TLS. A certificate does what a token does, and both are
// read again when they change.
func TestAdminTLS(t *testing.T) {
	f := newShop(t)
	commit(t, f.repo)
	dir := t.TempDir()
	ca, other := newAuthority(t, dir, "ca"), newAuthority(t, dir, "other")
	cert, key := ca.issue(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	uri, err := url.Parse("spiffe://example.com/ci")
	must(t, err)
	plans, plansKey := ca.issue(t, "plans", &x509.Certificate{URIs: []*url.URL{uri}})
	stranger, strangerKey := ca.issue(t, "stranger", &x509.Certificate{DNSNames: []string{"stranger.example.com"}})
	fake, fakeKey := other.issue(t, "fake", &x509.Certificate{URIs: []*url.URL{uri}})
	running, _, stop := f.serveTCP(serverConfig{Admin: adminTCP{
		Cert: cert, Key: key, ClientCA: ca.file,
		Tokens: f.tokens("write oncall " + writeToken + "\nread pipeline cert:spiffe://example.com/ci\n"),
	}})
	defer stop()
	if !strings.HasPrefix(running.Admin, "https://") {
		t.Fatalf("served at %s", running.Admin)
	}
	await(t, `^edge .*converged`, "status", "--server", f.socket)
	status := func(code int, args ...string) string {
		t.Helper()
		return cli(t, code, append(args, "--server", running.Admin)...)
	}
	wants(t, status(1, "status"), `^error: cannot trust the server at https://\S+: x509: certificate signed by unknown authority; --server-ca names an authority that vouches for it$`)
	wants(t, status(1, "status", "--server-ca", ca.file), `wants to know who asks`)
	wants(t, status(0, "status", "--server-ca", ca.file, "--client-cert", plans, "--client-key", plansKey), `^edge .*converged`)
	wants(t, status(1, "pause", "--yes", "--server-ca", ca.file, "--client-cert", plans, "--client-key", plansKey), `^error: pipeline may only read`)
	wants(t, status(1, "status", "--server-ca", ca.file, "--client-cert", stranger, "--client-key", strangerKey), `is of nobody whom this server knows$`)
	if out := status(1, "status", "--server-ca", ca.file, "--client-cert", fake, "--client-key", fakeKey); strings.Contains(out, "converged") {
		t.Errorf("a certificate of somebody else's authority gets in:\n%s", out)
	}
	t.Setenv(tokenVariable, writeToken)
	wants(t, status(0, "pause", "--yes", "--server-ca", ca.file), `^edge `)
	wants(t, status(0, "history", "--server-ca", ca.file), ` oncall +pause `)
	wants(t, cli(t, 1, "status", "--server", strings.Replace(running.Admin, "https:", "http:", 1)), `^error: the server at http://\S+ refused GET /v1/status: Client sent an HTTP request to an HTTPS server\.$`)

	// No connection goes on with what an earlier one was trusted for.
	pool, err := certPool(ca.file, "")
	must(t, err)
	again := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(1)},
	}}
	for range 2 {
		res, err := again.Get(running.Admin + "/healthz")
		must(t, err)
		_, _ = io.ReadAll(res.Body)
		res.Body.Close()
		if res.TLS.DidResume || res.TLS.Version != tls.VersionTLS13 || res.StatusCode != 401 {
			t.Errorf("resumed: %v, version %x, status %d", res.TLS.DidResume, res.TLS.Version, res.StatusCode)
		}
	}

	// Another authority from now on, for the server and its clients.
	next, nextKey := other.issue(t, "next", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	for from, to := range map[string]string{next: cert, nextKey: key, other.file: ca.file} {
		data, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(to, data, 0o600))
	}
	t.Setenv(tokenVariable, "")
	wants(t, status(0, "status", "--server-ca", other.file, "--client-cert", fake, "--client-key", fakeKey), `^edge `)
	must(t, os.WriteFile(cert, []byte("half"), 0o600))
	wants(t, status(0, "status", "--server-ca", other.file, "--client-cert", fake, "--client-key", fakeKey), `^edge `)
}

// authority signs certificates of a test, and keeps them in files.
type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{dir: dir}
	a.file, _ = a.issue(t, name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(t *testing.T, name string, c *x509.Certificate) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if c.IsCA {
		a.cert, a.key, signer = c, k, k
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, signer)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

// What is wrong with a file of tokens is said with its line, and never with a token.
func TestReadAccess(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `FILE has no token: want lines such as "read NAME TOKEN"`},
		{"# nobody\n", `FILE has no token: want lines such as "read NAME TOKEN"`},
		{"read ci\n", `FILE:1: cannot take the token: want "read NAME TOKEN" or "write NAME TOKEN"`},
		{"\nadmin ci planted-0123456789\n", `FILE:2: cannot take the token: want "read NAME TOKEN" or "write NAME TOKEN"`},
		{"read ci planted-0123\n", `FILE:1: cannot take the token: it has 12 characters, which can be guessed: want 16 or more, such as of openssl rand -hex 32`},
		{"read ci planted-0123456789\nwrite me planted-0123456789\n", `FILE:2: cannot take the token: it is given twice`},
		{"read ci sha256:planted\n", `FILE:1: cannot take the token: sha256: wants 64 hexadecimal digits`},
		{"read ci cert:\n", `FILE:1: cannot take the token: cert: wants the DNS name or the URI of a certificate`},
		{"read ci cert:planted.example.com\n", `FILE:1: cannot take the token: cert: names a certificate, and nothing says who vouches for those: give --admin-client-ca`},
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		must(t, os.WriteFile(file, []byte(c.text), 0o600))
		_, err := newAccess(file, false, slog.New(slog.DiscardHandler))
		if err == nil || err.Error() != strings.ReplaceAll(c.want, "FILE", file) {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
	big := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(big, make([]byte, accessFileLimit+1), 0o600))
	if _, err := newAccess(big, false, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("a file that is too large: %v", err)
	}
}

// More connections than there may be are closed at once; those that end make room.
func TestFewConns(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	few := &fewConns{lis, make(chan struct{}, 1)}
	defer few.Close()
	got := make(chan net.Conn)
	go func() {
		for {
			c, err := few.Accept()
			if err != nil {
				return
			}
			got <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", lis.Addr().String())
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	held := <-got
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection too many stays open")
	}
	held.Close()
	held.Close() // counts once
	dial()
	(<-got).Close()
}

// A reader of events that lives through the limits for requests goes on, over TCP
// too.
func TestEventsOutlastTheLimits(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(&admin{loop: idleLoop(t), cfg: &serverConfig{}, beat: 100 * time.Millisecond}).events(w, r)
	})
	srv := adminServer(h, slog.New(slog.DiscardHandler))
	srv.ReadTimeout, srv.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go srv.Serve(lis)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+lis.Addr().String(), nil)
	must(t, err)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for n := range 8 {
		if !lines.Scan() {
			t.Fatalf("the stream ends after %d lines: %v", n, lines.Err())
		}
	}
}

// idleLoop is a loop that does not run.
func idleLoop(t *testing.T) *reconcile.Loop {
	t.Helper()
	store, err := reconcile.OpenStore(filepath.Join(t.TempDir(), "state.db"))
	must(t, err)
	t.Cleanup(func() { store.Close() })
	l, err := reconcile.New(reconcile.Options{Source: noSource{}, Store: store, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return l
}

type noSource struct{}

func (noSource) Accept(string) error { return nil }

func (noSource) Poll(ctx context.Context) (reconcile.Revision, error) {
	<-ctx.Done()
	return reconcile.Revision{}, ctx.Err()
}
