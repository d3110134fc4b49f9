// Command sluice-fleet runs a fleet of light xDS clients against a server and exits
// with 1 if the server did anything to one of them that it should not.
//
//	sluice-fleet -addr 127.0.0.1:18000 -n 1000 -delta 50 -mix "90:ack=5ms 5:nack=2% 5:read=100ms" -for 1m
//
// docs/fleet.md says what is checked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-xds/sluice/test/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "sluice-fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, complaints io.Writer) error {
	flags := flag.NewFlagSet("sluice-fleet", flag.ContinueOnError)
	flags.SetOutput(complaints)
	cfg := fleet.Config{Metadata: map[string]string{}}
	flags.StringVar(&cfg.Addr, "addr", "127.0.0.1:18000", "the server's xDS address")
	flags.IntVar(&cfg.Clients, "n", 100, "clients, one connection each")
	percent := flags.Float64("delta", 50, "of them incremental, in percent")
	mix := flags.String("mix", "", "how they answer, in shares of PARTS:SCRIPT; a script is ack=TIME, nack=PERCENT, never, read=TIME or life=TIME, joined by commas")
	flags.StringVar(&cfg.Prefix, "prefix", "node", "what node ids begin with")
	flags.StringVar(&cfg.Cluster, "cluster", "", "node.cluster of all")
	flags.Func("metadata", "KEY=VALUE of node.metadata; may be repeated", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("want KEY=VALUE, not %q", text)
		}
		cfg.Metadata[key] = value
		return nil
	})
	flags.Uint64Var(&cfg.Seed, "seed", 1, "of what the scripts leave to chance")
	flags.BoolVar(&cfg.Restarts, "restarts", false, "the server may restart meanwhile, and forget what it knew")
	length := flags.Duration("for", 30*time.Second, "how long; 0 until interrupted")
	storm := flags.Duration("storm", 0, "all connect anew this often; 0 for never")
	rest := flags.Bool("rest", false, "at the end the server has nothing left to do: report what was asked for and has not come")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	cfg.Delta = *percent / 100
	shares, err := fleet.ParseMix(*mix)
	if err != nil {
		return err
	}
	cfg.Mix = shares
	f, err := fleet.Start(cfg)
	if err != nil {
		return err
	}
	watch(ctx, f, *length, *storm)
	if *rest {
		f.Rest()
	}
	r := f.Stop()
	if *asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			return err
		}
	} else {
		r.Write(out)
	}
	return r.Err()
}

// watch lets a fleet run, with a storm now and then.
func watch(ctx context.Context, f *fleet.Fleet, length, storm time.Duration) {
	if length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	var storms <-chan time.Time
	if storm > 0 {
		t := time.NewTicker(storm)
		defer t.Stop()
		storms = t.C
	}
	for {
		select {
		case <-storms:
			f.Storm()
		case <-ctx.Done():
			return
		}
	}
}
