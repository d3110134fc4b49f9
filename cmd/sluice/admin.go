package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
)

// admin answers on the socket, and over TCP. It owns nothing: the loop's status is an immutable
// document, a sync is a hint, and intents are the loop's.
type admin struct {
	loop *reconcile.Loop
	cfg  *serverConfig
	// beat is the time between two signs of life of a stream of events.
	beat time.Duration
}

// adminRoute is one thing that the socket answers.
type adminRoute struct {
	method, path string
	serve        http.HandlerFunc
}

// routes are what docs/admin-api.yaml describes.
func (a *admin) routes() []adminRoute {
	return []adminRoute{
		{"GET", "/v1/status", a.status},
		{"GET", "/v1/events", a.events},
		{"GET", "/v1/nodes", a.nodes},
		{"GET", "/v1/nodes/{id}", a.node},
		{"GET", "/v1/loads", a.loads},
		{"GET", "/v1/history", a.history},
		{"POST", "/v1/intents", a.intents},
		{"POST", "/v1/sync", a.sync},
		{"GET", "/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }},
		{"GET", "/readyz", a.ready},
	}
}

func adminHandler(loop *reconcile.Loop, cfg *serverConfig) http.Handler {
	a := &admin{loop, cfg, eventBeat}
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range a.routes() {
		mux.HandleFunc(r.method+" "+r.path, r.serve)
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, known := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(known, ", "))
			answer(w, http.StatusMethodNotAllowed, adminError{fmt.Sprintf("%s takes %s, and not %s", r.URL.Path, strings.Join(known, ", "), r.Method)})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusNotFound, adminError{fmt.Sprintf("this server has no %s: see docs/admin-api.yaml, or use the same version of sluice as the server", r.URL.Path)})
	})
	return mux
}

// answer writes a document.
func answer(w http.ResponseWriter, code int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// The client that went away is the only reader of the error.
	_ = enc.Encode(doc)
}

// adminError is what the socket says of a request that it cannot answer.
type adminError struct {
	Error string `json:"error"`
}

// source is what is known of the repository, before a poll too.
func (a *admin) source() reconcile.SourceStatus {
	s := a.loop.Status().Source
	if s.URL == "" {
		s.URL, s.Branch = a.cfg.Repo, a.cfg.Branch
	}
	return s
}

func (a *admin) status(w http.ResponseWriter, r *http.Request) {
	st := *a.loop.Status()
	st.Source, st.Stopping = a.source(), a.cfg.stops()
	switch nodes := r.URL.Query().Get("nodes"); nodes {
	case "", "all":
	case "none":
		st.Nodes = []reconcile.NodeStatus{}
	default:
		answer(w, http.StatusBadRequest, adminError{fmt.Sprintf("nodes=%s: want all or none", nodes)})
		return
	}
	answer(w, http.StatusOK, st)
}

// syncDocument is the answer to POST /v1/sync.
type syncDocument struct {
	FormatVersion string                 `json:"format_version"`
	Before        reconcile.SourceStatus `json:"before"` // the source as it was when the poll was asked for
}

func (a *admin) sync(w http.ResponseWriter, r *http.Request) {
	doc := syncDocument{reconcile.StatusFormat, a.source()}
	a.cfg.Log.Info("sync", "by", peerName(r.Context()))
	a.loop.Sync()
	answer(w, http.StatusAccepted, doc)
}

func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	if a.cfg.stops() {
		answer(w, http.StatusServiceUnavailable, adminError{"not ready: the server is stopping"})
		return
	}
	if st := a.loop.Status(); len(st.Groups) == 0 {
		why := "no commit has been read yet"
		switch {
		case st.Source.Error != "":
			why = st.Source.Error
		case st.Rejected != nil:
			why = "commit " + short(st.Rejected.Commit) + " is rejected"
		}
		answer(w, http.StatusServiceUnavailable, adminError{"not ready: " + why})
		return
	}
	fmt.Fprintln(w, "ok")
}

// historyDocument is the answer to GET /v1/history.
type historyDocument struct {
	FormatVersion string          `json:"format_version"`
	Acts          []reconcile.Act `json:"acts"` // the newest last
}

func (a *admin) history(w http.ResponseWriter, _ *http.Request) {
	acts := a.loop.History()
	if acts == nil {
		acts = []reconcile.Act{}
	}
	answer(w, http.StatusOK, historyDocument{reconcile.StatusFormat, acts})
}

// listenSocket opens the admin socket for this user alone. One that another
// process left behind is taken over; one that answers is not.
func listenSocket(path string) (net.Listener, error) {
	cannot := func(err error) error {
		why := err.Error()
		switch {
		case errors.Is(err, fs.ErrPermission):
			why = "permission denied"
		case errors.Is(err, syscall.EINVAL):
			why = "the path is too long for a socket"
		}
		return fmt.Errorf("cannot listen on %s: %s; choose another with --socket", path, why)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, cannot(err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, cannot(errors.New("it is there and no socket"))
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		switch {
		case err == nil:
			conn.Close()
			return nil, cannot(errors.New("another sluice answers there"))
		case !errors.Is(err, syscall.ECONNREFUSED):
			return nil, cannot(err)
		}
		if err := os.Remove(path); err != nil {
			return nil, cannot(err)
		}
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, cannot(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		lis.Close()
		return nil, cannot(err)
	}
	return lis, nil
}
