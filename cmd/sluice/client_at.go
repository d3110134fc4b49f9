package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// tokenVariable holds a token for a server's admin API. It is no flag, which
// others can see.
const tokenVariable = "SLUICE_TOKEN"

// serverAt is where a server is, and what a command shows to it.
type serverAt struct {
	cmd                      *cobra.Command
	at                       string
	token, ca, cert, certKey string // files
}

// serverFlags adds --server, and what goes with it.
func serverFlags(cmd *cobra.Command, usage string) *serverAt {
	s := &serverAt{cmd: cmd}
	f := cmd.Flags()
	f.StringVar(&s.at, "server", defaultSocket(), usage+": its admin socket, https://HOST:PORT, or http://127.0.0.1:PORT")
	f.StringVar(&s.token, "token-file", "", "file of the token for a server at a URL (default: the token in "+tokenVariable+")")
	f.StringVar(&s.ca, "server-ca", "", "authorities that vouch for an https server, in PEM (default: the system's)")
	f.StringVar(&s.cert, "client-cert", "", "certificate to show to an https server in the place of a token, in PEM")
	f.StringVar(&s.certKey, "client-key", "", "its key")
	return s
}

func serverFlag(cmd *cobra.Command) *serverAt { return serverFlags(cmd, "the server") }

// named reports whether somebody said which server.
func (s *serverAt) named() bool { return s.cmd.Flags().Changed("server") }

func isURL(at string) bool {
	return strings.HasPrefix(at, "http://") || strings.HasPrefix(at, "https://")
}

// client makes a client. Nothing is asked yet.
func (s *serverAt) client() (*adminClient, error) {
	switch {
	case s.at == "":
		return nil, &exitError{1, "--server is empty: want the path of the server's admin socket, or its URL"}
	case !isURL(s.at) && strings.Contains(s.at, "://"):
		return nil, &exitError{1, fmt.Sprintf("--server %s: want a path, https://HOST:PORT, or http://127.0.0.1:PORT", s.at)}
	case !isURL(s.at):
		return newAdminClient(s.at), nil
	}
	base, err := s.base()
	if err != nil {
		return nil, err
	}
	token, err := s.readToken()
	if err != nil {
		return nil, err
	}
	secure, err := s.tls()
	if err != nil {
		return nil, err
	}
	// A token is for one server alone, not for where that may send us.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &adminClient{at: s.at, base: base, token: token, cert: s.cert != "", http: &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute, IdleConnTimeout: 30 * time.Second,
	}}}, nil
}

// base checks a URL. Nothing secret goes over a network in plain text, nor to a
// server that a file named which came with somebody's repository.
func (s *serverAt) base() (string, error) {
	u, err := url.Parse(s.at)
	switch {
	case err != nil || u.Hostname() == "":
		return "", &exitError{1, fmt.Sprintf("--server %q: want https://HOST:PORT, or http://127.0.0.1:PORT", s.at)}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", &exitError{1, fmt.Sprintf("--server %s: want a host, a port and no more; a token goes into --token-file or %s", u.Redacted(), tokenVariable)}
	case u.Scheme == "http" && !loopback(net.JoinHostPort(u.Hostname(), "0")):
		return "", &exitError{1, fmt.Sprintf("--server %s: what is secret would go over the network in plain text: want https", s.at)}
	}
	if from := s.cmd.Flags().Lookup("server").Annotations[fromFolder]; len(from) > 0 && (s.token != "" || s.cert != "" || os.Getenv(tokenVariable) != "") {
		return "", &exitError{1, fmt.Sprintf("%s names the server, and a token is not shown to one that a file of the working directory names: give it with --server, or in SLUICE_SERVER", from[0])}
	}
	return strings.TrimSuffix(s.at, "/"), nil
}

func (s *serverAt) readToken() (string, error) {
	if s.token != "" {
		return tokenFrom(s.token)
	}
	token := strings.TrimSpace(os.Getenv(tokenVariable))
	if token == "" {
		return "", nil
	}
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("cannot use the token in %s: %w", tokenVariable, err)
	}
	return token, nil
}

func (s *serverAt) tls() (c *tls.Config, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		if c.RootCAs, err = certPool(s.ca, "--server-ca"); err != nil {
			return nil, err
		}
	}
	switch {
	case (s.cert == "") != (s.certKey == ""):
		return nil, errors.New("--client-cert and --client-key belong together: give both")
	case s.cert != "":
		pair, err := tls.LoadX509KeyPair(s.cert, s.certKey)
		if err != nil {
			return nil, fmt.Errorf("cannot use --client-cert %s with --client-key %s: %w", s.cert, s.certKey, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
