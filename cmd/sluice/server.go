package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/reconcile/files"
	"github.com/sluice-xds/sluice/schema"
)

// serverConfig is all that a server needs.
type serverConfig struct {
	Repo    string // URL or path; not read if Source is set
	Branch  string // "" follows the remote's HEAD
	Path    string // folder of the repository; "" is all of it
	Store   string // folder of the state
	Listen  string // host:port of xDS
	REST    string // host:port of xDS by polling; "" for none
	CSDS    string // host:port of the client status discovery service; "" for none
	Metrics string // host:port of metrics; "" for none
	Files   string // folder of files for nodes that watch those; "" for none
	FilesAs string // its path on the nodes; "" for its own
	Socket  string // path of the admin socket
	Admin   adminTCP
	Poll    time.Duration
	AckWait time.Duration
	Leave   time.Duration // over which streams are ended at a stop; 0 cuts them
	// FilesPause is what nodes are given to take in a stage from files.
	FilesPause time.Duration
	// AllowRewrite follows a branch whose history was rewritten.
	AllowRewrite bool
	Log          *slog.Logger

	// Source stands in for the repository.
	Source reconcile.Source
	// Plan stands in for planner.NewPath.
	Plan func(schema.State, *schema.Target) *schema.Path
	// stopping is set while nodes are sent away; nil for a server that does not run.
	stopping *atomic.Bool
	// Ready is called once, when both addresses answer.
	Ready func(serverRunning)
}

// serverRunning is a server that answers.
type serverRunning struct {
	XDS     string // host:port, with the port that was chosen for 0
	Metrics string // the same; "" for none
	Socket  string
	Admin   string // URL; "" for none
	Loop    *reconcile.Loop
}

// server is what runServer opens, in the order in which it is opened.
type server struct {
	cfg    *serverConfig
	xds    net.Listener
	rest   net.Listener // nil for none
	csds   net.Listener // nil for none
	meters net.Listener // nil for none
	store  reconcile.Store
	socket net.Listener
	admin  net.Listener // over TCP; nil for none
	access *access      // of admin
	source reconcile.Source
	loop   *reconcile.Loop
	undo   []func()
}

// runServer runs a server until ctx ends or a part of it fails, and returns when
// nothing of it is left. An end by ctx is no error.
func runServer(ctx context.Context, cfg serverConfig) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.stopping = new(atomic.Bool)
	s := &server{cfg: &cfg}
	defer s.close()
	if err := s.open(); err != nil {
		return err
	}
	return s.serve(ctx)
}

// stops reports whether the server is on its way out, and sends its nodes away.
func (cfg *serverConfig) stops() bool { return cfg.stopping != nil && cfg.stopping.Load() }

// openGit opens the clone in the store. One of another repository, that nobody was
// ever served from, is taken for this one: a wrong --repo marks a store for good
// only once something came of it.
func (s *server) openGit() (*reconcile.Git, error) {
	opts := reconcile.GitOptions{URL: s.cfg.Repo, Branch: s.cfg.Branch, Dir: filepath.Join(s.cfg.Store, "repo")}
	git, err := reconcile.OpenGit(opts)
	var other *reconcile.OtherRepository
	if !errors.As(err, &other) {
		return git, err
	}
	if st, bad := s.store.Load(); bad != nil || len(st.Groups) > 0 {
		return nil, err
	}
	s.cfg.Log.Info("the store is of another repository, and nothing was served of that", "old", other.URL, "new", other.Wanted)
	opts.Rebind = true
	return reconcile.OpenGit(opts)
}

// open takes what a server holds alone before it loads anything, so that a
// mistake is said at once and a second server changes nothing.
func (s *server) open() (err error) {
	for _, l := range []struct {
		lis        *net.Listener
		addr, flag string
	}{{&s.xds, s.cfg.Listen, "--listen"}, {&s.rest, s.cfg.REST, "--rest"}, {&s.csds, s.cfg.CSDS, "--csds"}, {&s.meters, s.cfg.Metrics, "--metrics"}} {
		if l.addr == "" {
			continue
		}
		if *l.lis, err = listen(l.addr, l.flag); err != nil {
			return err
		}
		s.undo = append(s.undo, func() { (*l.lis).Close() })
	}
	if s.cfg.Admin.Addr != "" {
		if s.admin, s.access, err = s.cfg.Admin.open(s.cfg.Log); err != nil {
			return err
		}
		s.undo = append(s.undo, func() { s.admin.Close() })
	}
	if s.store, err = reconcile.OpenStore(filepath.Join(s.cfg.Store, "state.db")); err != nil {
		return err
	}
	s.undo = append(s.undo, func() { s.store.Close() })
	if s.socket, err = listenSocket(s.cfg.Socket); err != nil {
		return err
	}
	s.undo = append(s.undo, func() { s.socket.Close() })
	var dir *files.Dir
	if s.cfg.Files != "" {
		if dir, err = files.Open(s.cfg.Files, s.cfg.FilesAs); err != nil {
			return err
		}
		s.undo = append(s.undo, func() { dir.Close() })
	}
	if s.source = s.cfg.Source; s.source == nil {
		git, err := s.openGit()
		if err != nil {
			return err
		}
		s.source = git
		s.undo = append(s.undo, func() { git.Close() })
	}
	s.loop, err = reconcile.New(reconcile.Options{
		Source: s.source, Store: s.store, Log: s.cfg.Log, Path: s.cfg.Path,
		Poll: s.cfg.Poll, Patience: s.cfg.AckWait, AllowRewrite: s.cfg.AllowRewrite, Plan: s.cfg.Plan,
		Files: dir, FilesPause: s.cfg.FilesPause,
	})
	return err
}

// close releases what open took, the last first.
func (s *server) close() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
}

// serve runs the parts. Streams end before the loop that answers them.
func (s *server) serve(ctx context.Context) error {
	g := grpc.NewServer(append(ads.ServerOptions(), grpc.WaitForHandlers(true))...)
	s.loop.Server().Register(g)
	handler := adminHandler(s.loop, s.cfg)
	admin := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ConnContext: withPeer}
	// A node that sends or reads its poll too slowly loses its connection.
	rest := &http.Server{
		Handler: s.loop.Server().RESTHandler(0), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	meters := &http.Server{Handler: metricsHandler(s.loop, s.cfg), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	csds := grpc.NewServer(ads.ServerOptions()...)
	s.loop.Server().RegisterStatus(csds)
	loopCtx, stopLoop := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoop()

	failed := make(chan error, 7)
	parts := 0
	run := func(part func() error) {
		parts++
		go func() { failed <- part() }()
	}
	run(func() error { return s.loop.Run(loopCtx) })
	run(func() error { return g.Serve(s.xds) })
	run(func() error { return admin.Serve(s.socket) })
	remote, url := &http.Server{}, ""
	if s.admin != nil {
		remote, url = adminServer(s.access.guard(handler), s.cfg.Log), s.cfg.Admin.url(s.admin.Addr())
		run(func() error { return remote.Serve(s.admin) })
		s.cfg.Log.Info("serving the admin API", "url", url)
	}
	if s.rest != nil {
		run(func() error { return rest.Serve(s.rest) })
	}
	if s.csds != nil {
		run(func() error { return csds.Serve(s.csds) })
	}
	if s.meters != nil {
		run(func() error { return meters.Serve(s.meters) })
		s.cfg.Log.Info("serving metrics", "address", s.meters.Addr().String())
	}
	s.cfg.Log.Info("serving", "xds", s.xds.Addr().String(), "socket", s.cfg.Socket, "repo", s.cfg.Repo, "store", s.cfg.Store)
	if s.cfg.Ready != nil {
		r := serverRunning{XDS: s.xds.Addr().String(), Socket: s.cfg.Socket, Admin: url, Loop: s.loop}
		if s.meters != nil {
			r.Metrics = s.meters.Addr().String()
		}
		s.cfg.Ready(r)
	}
	var err error
	select {
	case <-ctx.Done():
		s.cfg.stopping.Store(true)
		s.cfg.Log.Info("stopping")
		s.drain(g)
	case err = <-failed:
		parts--
	}
	_, _, _, _ = admin.Close(), remote.Close(), rest.Close(), meters.Close()
	csds.Stop()
	g.Stop()
	stopLoop()
	for range parts {
		if e := <-failed; err == nil && !stopped(e) {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("cannot go on serving: %w", err)
	}
	s.cfg.Log.Info("stopped")
	return nil
}

// drain lets the nodes go one after another: GOAWAY first, then the streams over
// the time that is given, so that they do not all arrive elsewhere at once.
func (s *server) drain(g *grpc.Server) {
	if s.cfg.Leave <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Leave)
	defer cancel()
	gone := make(chan struct{})
	go func() { defer close(gone); g.GracefulStop() }()
	if err := s.loop.Server().Drain(ctx); err != nil {
		s.cfg.Log.Warn("streams are cut", "why", err.Error())
	}
	g.Stop() // ends what is left, and the graceful stop with it
	<-gone
}

// stopped reports whether err is what a part returns that was told to stop.
func stopped(err error) bool {
	return err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, context.Canceled)
}

func listen(addr, flag string) (net.Listener, error) {
	lis, err := net.Listen("tcp", addr)
	if err == nil {
		return lis, nil
	}
	why := err.Error()
	var op *net.OpError
	var sys *os.SyscallError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why = "address already in use"
	case errors.As(err, &sys):
		why = sys.Err.Error()
	case errors.As(err, &op):
		why = strings.TrimPrefix(op.Err.Error(), "address "+addr+": ")
	}
	return nil, fmt.Errorf("cannot listen on %s: %s; choose another with %s", addr, why, flag)
}
