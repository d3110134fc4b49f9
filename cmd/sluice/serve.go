package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newServeCommand(a *app) *cobra.Command {
	cfg := serverConfig{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane",
		Long: `Run the control plane: follow a branch of a Git repository, and drive every node
that connects to what it says. What the fleet holds outlives the process in the
store; if Git cannot be read, or a commit is wrong, the fleet keeps what it has.`,
		Example: `  sluice serve --repo https://git.example.com/fleet.git
  sluice serve --repo . --path envs/prod --listen 127.0.0.1:0`,
		Args: none,
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Repo, "repo", "", "Git repository: https://host/path, file:///path or a path")
	f.StringVar(&cfg.Branch, "branch", "", "branch to follow (default: the remote's HEAD)")
	f.StringVar(&cfg.Path, "path", "", "serve this folder, below the root of the repository")
	f.StringVar(&cfg.Store, "store", defaultStore(), "folder of the server's state")
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:18000", "address of xDS; port 0 takes a free one and prints it")
	f.StringVar(&cfg.REST, "rest", "", "address of xDS for nodes that poll over HTTP (default: none)")
	f.StringVar(&cfg.Files, "files", "", "also write what groups of Envoys hold as files into this folder (default: none)")
	f.StringVar(&cfg.FilesAs, "files-as", "", "the path by which nodes know the folder of --files (default: its own)")
	f.DurationVar(&cfg.FilesPause, "files-pause", 15*time.Second, "how long nodes are given to take in a stage from files, which acknowledge nothing")
	f.StringVar(&cfg.Metrics, "metrics", "", "loopback address of /metrics, /healthz and /readyz (default: none)")
	f.StringVar(&cfg.CSDS, "csds", "", "address of the client status discovery service, for operators (default: none)")
	f.StringVar(&cfg.Socket, "socket", defaultSocket(), "admin socket")
	f.StringVar(&cfg.Admin.Addr, "admin", "", "also serve the admin API at this address, over TLS unless it is a loopback one (default: none)")
	f.StringVar(&cfg.Admin.Tokens, "admin-tokens", "", "file of who may use --admin: lines \"read NAME TOKEN\" and \"write NAME TOKEN\", readable by its owner alone")
	f.StringVar(&cfg.Admin.Cert, "admin-cert", "", "certificate of --admin, in PEM")
	f.StringVar(&cfg.Admin.Key, "admin-key", "", "its key")
	f.StringVar(&cfg.Admin.ClientCA, "admin-client-ca", "", "authorities whose certificates clients may show in the place of a token, in PEM")
	f.DurationVar(&cfg.Poll, "poll", 15*time.Second, "time between two looks at the branch, ±10%")
	f.DurationVar(&cfg.Leave, "leave", 10*time.Second, "at a stop, end the nodes' streams over this time; 0 cuts them")
	f.BoolVar(&cfg.AllowRewrite, "allow-rewrite", false, "follow the branch even if its history was rewritten (default: keep the last good commit)")
	f.DurationVar(&cfg.AckWait, "ack-wait", 30*time.Second, "how long a stage waits for its ACKs before its group halts")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cfg.check(); err != nil {
			return err
		}
		cfg.Log = a.logger()
		cfg.Ready = func(r serverRunning) {
			if _, port, err := net.SplitHostPort(cfg.Listen); err == nil && port == "0" {
				fmt.Fprintln(a.out, r.XDS)
			}
		}
		ctx := cmd.Context()
		if a.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.timeout)
			defer cancel()
		}
		return runServer(ctx, cfg)
	}
	return cmd
}

// check says what is missing or cannot be before anything is opened.
func (cfg *serverConfig) check() error {
	switch {
	case cfg.Repo == "":
		return errors.New("which repository? name it with --repo, such as --repo https://git.example.com/fleet.git")
	case cfg.Poll <= 0:
		return fmt.Errorf("--poll %v: want more than 0", cfg.Poll)
	case cfg.Metrics != "" && !loopback(cfg.Metrics):
		return fmt.Errorf("--metrics %s: want a loopback address, such as 127.0.0.1:9901: they are plain text, for whoever connects", cfg.Metrics)
	case cfg.FilesPause <= 0:
		return fmt.Errorf("--files-pause %v: want more than 0", cfg.FilesPause)
	case cfg.FilesAs != "" && cfg.Files == "":
		return errors.New("--files-as says how nodes know the folder of --files: name that too")
	case cfg.AckWait <= 0:
		return fmt.Errorf("--ack-wait %v: want more than 0", cfg.AckWait)
	}
	if err := cfg.Admin.check(); err != nil {
		return err
	}
	if cfg.Path != "" {
		p := path.Clean(filepath.ToSlash(cfg.Path))
		if path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") {
			return fmt.Errorf("--path %s: want a folder below the root of the repository", cfg.Path)
		}
		cfg.Path = p
	}
	// A path of this machine may be relative: a URL never is one.
	if !filepath.IsAbs(cfg.Repo) && !strings.Contains(cfg.Repo, "://") {
		if _, err := os.Stat(cfg.Repo); err == nil {
			if cfg.Repo, err = filepath.Abs(cfg.Repo); err != nil {
				return err
			}
		}
	}
	return nil
}

// loopback reports whether an address can be reached from this machine alone.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // listen says what is wrong with it
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// logger writes what the server does, for people and for collectors alike.
func (a *app) logger() *slog.Logger {
	level := slog.LevelInfo
	switch {
	case a.quiet:
		level = slog.LevelWarn
	case a.verbose:
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}
