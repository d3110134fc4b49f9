package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// access says who may ask what over TCP (rule X2), by a file of tokens. It is read
// again when it has changed; while it cannot be read nobody is let in, so that a
// token which somebody wanted to take away is never honoured by mistake.
type access struct {
	file  string
	certs bool // certificates of clients are verified
	log   *slog.Logger

	mu    sync.Mutex
	mark  fileMark
	keys  []accessKey
	err   error     // of the last reading
	noted time.Time // when a refusal was logged last
}

// accessKey is one line of the file: who shows it, and what that one may do.
type accessKey struct {
	name  string
	write bool
	hash  [sha256.Size]byte // of the token; unused if cert is set
	cert  string            // the DNS name or URI of a certificate
}

const (
	accessFileLimit = 1 << 20 // bytes
	tokenLeast      = 16      // characters: what is shorter can be guessed
	accessLogPause  = time.Second
)

// newAccess reads the file for the first time. One that nobody could use is an error.
func newAccess(file string, certs bool, log *slog.Logger) (*access, error) {
	a := &access{file: file, certs: certs, log: log}
	keys, err := a.read()
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf(`%s has no token: want lines such as "read NAME TOKEN"`, file)
	}
	return a, err
}

// read gives the keys, of the file as it is now.
func (a *access) read() ([]accessKey, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	mark := markOf(a.file)
	if mark != nil && a.mark.is(mark) {
		return a.keys, a.err
	}
	first, before := a.keys == nil && a.err == nil, a.err
	a.mark = mark
	a.keys, a.err = readAccess(a.file, a.certs)
	switch {
	case first:
	case a.err == nil:
		a.log.Info("tokens read again", "file", a.file, "tokens", len(a.keys))
	case before == nil || before.Error() != a.err.Error():
		a.log.Error("nobody is let in over TCP until the tokens can be read", "why", a.err.Error())
	}
	return a.keys, a.err
}

// readAccess reads a file of lines "read NAME TOKEN" and "write NAME TOKEN". No
// error quotes a token.
func readAccess(file string, certs bool) ([]accessKey, error) {
	cannot := func(err error) error {
		return fmt.Errorf("cannot read the tokens %s: %w", file, plainPathError(err))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, cannot(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, cannot(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, cannot(fmt.Errorf("others may read it, as its mode is %04o: chmod 600 it", info.Mode().Perm()))
	}
	data, err := io.ReadAll(io.LimitReader(f, accessFileLimit+1))
	if err != nil {
		return nil, cannot(err)
	}
	if len(data) > accessFileLimit {
		return nil, cannot(fmt.Errorf("it is larger than %d bytes", accessFileLimit))
	}
	var keys []accessKey
	for n, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		key, err := parseAccess(words, certs)
		if err == nil && slices.ContainsFunc(keys, key.same) {
			err = errors.New("it is given twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: cannot take the token: %w", file, n+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func parseAccess(words []string, certs bool) (accessKey, error) {
	if len(words) != 3 || words[0] != "read" && words[0] != "write" {
		return accessKey{}, errors.New(`want "read NAME TOKEN" or "write NAME TOKEN"`)
	}
	key, token := accessKey{name: words[1], write: words[0] == "write"}, words[2]
	if digest, ok := strings.CutPrefix(token, "sha256:"); ok {
		sum, err := hex.DecodeString(digest)
		if err != nil || len(sum) != sha256.Size {
			return key, fmt.Errorf("sha256: wants %d hexadecimal digits", 2*sha256.Size)
		}
		copy(key.hash[:], sum)
		return key, nil
	}
	if cert, ok := strings.CutPrefix(token, "cert:"); ok {
		switch {
		case cert == "":
			return key, errors.New("cert: wants the DNS name or the URI of a certificate")
		case !certs:
			return key, errors.New("cert: names a certificate, and nothing says who vouches for those: give --admin-client-ca")
		}
		key.cert = cert
		return key, nil
	}
	if len(token) < tokenLeast {
		return key, fmt.Errorf("it has %s, which can be guessed: want %d or more, such as of openssl rand -hex 32", count(len(token), "character"), tokenLeast)
	}
	key.hash = sha256.Sum256([]byte(token))
	return key, nil
}

func (k accessKey) same(o accessKey) bool { return k.hash == o.hash && k.cert == o.cert }

// find gives the key that a request shows, or says why there is none.
func (a *access) find(r *http.Request) (key accessKey, code int, why string) {
	keys, err := a.read()
	if err != nil {
		return key, http.StatusServiceUnavailable, "nobody is let in: the server cannot read its tokens; its log says why"
	}
	if head := r.Header.Get("Authorization"); head != "" {
		scheme, token, _ := strings.Cut(head, " ")
		sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
		found := -1
		for i := range keys { // all of them, so that the time tells nothing
			if keys[i].cert == "" && subtle.ConstantTimeCompare(keys[i].hash[:], sum[:]) == 1 {
				found = i
			}
		}
		if !strings.EqualFold(scheme, "Bearer") || found < 0 {
			return key, http.StatusUnauthorized, "the token is not one that this server knows"
		}
		return keys[found], 0, ""
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return key, http.StatusUnauthorized, "show who you are: want the header Authorization: Bearer TOKEN"
	}
	leaf := r.TLS.VerifiedChains[0][0]
	if time.Now().After(leaf.NotAfter) {
		return key, http.StatusUnauthorized, "the certificate has expired"
	}
	for i := range keys {
		if keys[i].cert != "" && certHas(leaf, keys[i].cert) {
			return keys[i], 0, ""
		}
	}
	return key, http.StatusUnauthorized, "the certificate is of nobody whom this server knows"
}

// certHas reports whether a certificate is for a DNS name or a URI.
func certHas(leaf *x509.Certificate, name string) bool {
	for _, uri := range leaf.URIs {
		if uri.String() == name {
			return true
		}
	}
	return slices.Contains(leaf.DNSNames, name)
}

type stillKey struct{}

// guard lets requests through that may be made, in the name of whom they show.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, code, why := a.find(r)
		if code == 0 && !key.write && r.Method != http.MethodGet && r.Method != http.MethodHead {
			code, why = http.StatusForbidden, fmt.Sprintf("%s may only read: for %s %s ask with a token that may write", key.name, r.Method, r.URL.Path)
		}
		if code != 0 {
			a.refused(r, key.name, why)
			if code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
			}
			answer(w, code, adminError{why})
			return
		}
		still := func() bool {
			now, code, _ := a.find(r)
			return code == 0 && now == key
		}
		ctx := context.WithValue(context.WithValue(r.Context(), peerKey{}, key.name), stillKey{}, still)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// stillWelcome reports whether what let a long request in would do so now.
func stillWelcome(ctx context.Context) bool {
	still, ok := ctx.Value(stillKey{}).(func() bool)
	return !ok || still()
}

// refused logs a refusal, at most one a second: anybody may cause them.
func (a *access) refused(r *http.Request, name, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.noted) >= accessLogPause {
		a.noted = now
		a.log.Warn("refused over TCP", "peer", r.RemoteAddr, "by", name, "path", r.URL.Path, "why", why)
	}
}

// fileMark tells whether files have changed since they were read.
type fileMark []os.FileInfo

// markOf marks files as they are; nil if one cannot be looked at.
func markOf(files ...string) fileMark {
	var m fileMark
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return nil
		}
		m = append(m, info)
	}
	return m
}

func (m fileMark) is(o fileMark) bool {
	return slices.EqualFunc(m, o, func(a, b os.FileInfo) bool {
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
	})
}

// tokenFrom reads a client's token: the first line of a file.
func tokenFrom(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("cannot read the token %s: %w", file, plainPathError(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", fmt.Errorf("cannot read the token %s: %w", file, plainPathError(err))
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	token := strings.TrimSpace(string(line))
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("cannot use the token in %s: %w", file, err)
	}
	return token, nil
}

// checkToken refuses what cannot stand in a header, without quoting it.
func checkToken(token string) error {
	switch {
	case token == "":
		return errors.New("it is empty")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("want one word of printable ASCII")
	}
	return nil
}
