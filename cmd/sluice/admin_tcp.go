package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// adminTCP is where the admin API is served beside its socket, and to whom.
type adminTCP struct {
	Addr     string // host:port; "" for nowhere
	Tokens   string // file of tokens
	Cert     string // files of a certificate and its key; "" for plain text
	Key      string
	ClientCA string // file of who vouches for clients; "" for nobody
}

// check says what is missing (rule X2).
func (t *adminTCP) check() error {
	switch {
	case t.Addr == "" && *t != (adminTCP{}):
		return errors.New("--admin-tokens, --admin-cert, --admin-key and --admin-client-ca are for --admin: give it an address, such as --admin 127.0.0.1:18001")
	case t.Addr == "":
		return nil
	case t.Tokens == "":
		return fmt.Errorf("--admin %s: nobody would be let in: name a file of tokens with --admin-tokens", t.Addr)
	case (t.Cert == "") != (t.Key == ""):
		return errors.New("--admin-cert and --admin-key belong together: give both")
	case t.Cert == "" && t.ClientCA != "":
		return errors.New("--admin-client-ca vouches for clients over TLS: give --admin-cert and --admin-key too")
	case t.Cert == "" && !loopback(t.Addr):
		return fmt.Errorf("--admin %s: tokens would leave this machine in plain text: give --admin-cert and --admin-key, or a loopback address such as 127.0.0.1:18001", t.Addr)
	}
	return nil
}

// open reads the files and listens.
func (t *adminTCP) open(log *slog.Logger) (net.Listener, *access, error) {
	who, err := newAccess(t.Tokens, t.ClientCA != "", log)
	if err != nil {
		return nil, nil, err
	}
	var secure *tls.Config
	if t.Cert != "" {
		files := &tlsFiles{adminTCP: t, log: log}
		if _, err := files.config(nil); err != nil {
			return nil, nil, err
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: files.config}
	}
	lis, err := listen(t.Addr, "--admin")
	if err != nil {
		return nil, nil, err
	}
	lis = &fewConns{lis, make(chan struct{}, adminConns)}
	if secure != nil {
		lis = tls.NewListener(lis, secure)
	}
	return lis, who, nil
}

// url is where clients find it.
func (t *adminTCP) url(addr net.Addr) string {
	if t.Cert == "" {
		return "http://" + addr.String()
	}
	return "https://" + addr.String()
}

// adminServer bounds what a client over TCP can cost. Streams of events set
// deadlines of their own. HTTP/2 is left out: nothing here gains by it.
func adminServer(h http.Handler, log *slog.Logger) *http.Server {
	one := new(http.Protocols)
	one.SetHTTP1(true)
	return &http.Server{
		Handler: h, Protocols: one, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// tlsFiles is the TLS side of it, made from files that are read again when they
// have changed. If they cannot be, what was read last goes on.
type tlsFiles struct {
	*adminTCP
	log *slog.Logger

	mu   sync.Mutex
	mark fileMark
	last *tls.Config
}

func (f *tlsFiles) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := []string{f.Cert, f.Key}
	if f.ClientCA != "" {
		names = append(names, f.ClientCA)
	}
	mark := markOf(names...)
	if f.last != nil && (mark == nil || f.mark.is(mark)) {
		return f.last, nil
	}
	c, err := f.load()
	f.mark = mark
	switch {
	case err == nil && f.last != nil:
		f.log.Info("certificate read again", "file", f.Cert)
	case err != nil && f.last != nil:
		f.log.Error("cannot read the certificate again: the last one goes on", "why", err.Error())
		return f.last, nil
	}
	f.last = c
	return c, err
}

func (f *tlsFiles) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot use --admin-cert %s with --admin-key %s: %w", f.Cert, f.Key, err)
	}
	// Without tickets every connection is checked against the files as they are.
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true}
	if f.ClientCA == "" {
		return c, nil
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.ClientCAs, err = certPool(f.ClientCA, "--admin-client-ca")
	return c, err
}

// certPool reads certificates of authorities.
func certPool(file, flag string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s %s: %w", flag, file, plainPathError(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("cannot read %s %s: it holds no certificate in PEM", flag, file)
	}
	return pool, nil
}

// adminConns is how many connections there may be at once.
const adminConns = 256

// fewConns closes what comes while too many of its connections are open.
type fewConns struct {
	net.Listener
	open chan struct{}
}

func (l *fewConns) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.open <- struct{}{}:
			return &countedConn{Conn: conn, gone: sync.OnceFunc(func() { <-l.open })}, nil
		default:
			conn.Close()
		}
	}
}

type countedConn struct {
	net.Conn
	gone func()
}

func (c *countedConn) Close() error {
	defer c.gone()
	return c.Conn.Close()
}
