package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// mosnEnv names a MOSN to run in place of the one of test/mosn.
const mosnEnv = "SLUICE_MOSN"

const mosnBinary = "test/mosn/bin/mosn"

// MOSN runs the HTTP proxy MOSN v1.3.0, a client of the kind of Envoy: every
// cluster and listener, endpoints and routes by name, over one ADS stream. The
// target of Start is the address of its listener as a URL, "http://127.0.0.1:80";
// its requests are POSTs and go there. What to know of it:
//
//   - It says nothing of its locality and its user agent.
//   - It ACKs everything, and applies what it understands of it.
//   - It never removes a cluster, listener or table: give each a fresh name.
//   - An ACK of routes asks for no more tables than the response held.
//   - It asks for listeners only after endpoints, or after no clusters at all.
type MOSN struct{}

// Name implements Driver.
func (MOSN) Name() string { return "mosn" }

// Missing implements Installed.
func (MOSN) Missing() string {
	if _, err := mosnPath(); err != nil {
		return missing("MOSN", mosnBinary+" is not built, and "+mosnEnv+" names none")
	}
	return ""
}

func mosnPath() (string, error) {
	if name := os.Getenv(mosnEnv); name != "" {
		return exec.LookPath(name)
	}
	return inRepository(mosnBinary)
}

// Start implements Driver. The process is started, and no more.
func (MOSN) Start(_ context.Context, b Bootstrap, target string) (Node, error) {
	n, err := startMOSN(b, target)
	if err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", b.NodeID, err)
	}
	return n, nil
}

func startMOSN(b Bootstrap, target string) (*proxied, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	bin, err := mosnPath()
	if err != nil {
		return nil, err
	}
	config, err := mosnConfig(b)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sluice-mosn-")
	if err != nil {
		return nil, err
	}
	n := &proxied{httpClient: newHTTPClient(to), id: b.NodeID, dir: dir, done: make(chan struct{})}
	if err := n.start(bin, config); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return n, nil
}

// proxied is a node that is a proxy: a process, and a client that sends to it. A
// goroutine waits for the process and closes done.
type proxied struct {
	httpClient
	id   string
	dir  string // its own, removed with it
	cmd  *exec.Cmd
	stop sync.Once
	done chan struct{}
	out  tail
}

// start runs the proxy. It finds its folders beside that of its configuration.
func (n *proxied) start(bin string, config []byte) error {
	name := filepath.Join(n.dir, "conf", "mosn.json")
	if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(name, config, 0o600); err != nil {
		return err
	}
	n.cmd = exec.Command(bin, name)
	n.cmd.Dir = n.dir
	n.cmd.Stdout, n.cmd.Stderr = &n.out, &n.out
	// Ours ends with its input, so it does not outlive this process.
	if _, err := n.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(n.done)
		_ = n.cmd.Wait() // it is told to end, or Ready finds that it has
	}()
	return nil
}

func (n *proxied) ID() string { return n.id }

// PID is that of the proxy.
func (n *proxied) PID() int { return n.cmd.Process.Pid }

// Ready asks until it is answered: a proxy does not say when it listens. Each try
// has a connection of its own: one that MOSN accepts before its routes have come
// never learns of them, and is answered 404 for as long as it lives.
func (n *proxied) Ready(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := n.Send(ctx, Request{})
		if err == nil {
			return nil
		}
		n.http.CloseIdleConnections()
		select {
		case <-tick.C:
		case <-n.done:
			return fmt.Errorf("cannot wait for node %s: %w: %s", n.id, errStopped, n.out.String())
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for node %s: %w; last: %w", n.id, context.Cause(ctx), err)
		}
	}
}

func (n *proxied) View(context.Context) ([]Held, error) {
	return nil, fmt.Errorf("cannot view node %s: %w", n.id, errors.ErrUnsupported)
}

// Stop interrupts the process, and kills it if that does not end it.
func (n *proxied) Stop() {
	n.stop.Do(func() {
		_ = n.cmd.Process.Signal(os.Interrupt) // fails when it has ended
		kill := time.AfterFunc(stopGrace, func() { _ = n.cmd.Process.Kill() })
		<-n.done
		kill.Stop()
		n.http.CloseIdleConnections()
		_ = os.RemoveAll(n.dir)
	})
}

// mosnConfig is what MOSN starts with: who it is, and which server to ask. After
// each refresh delay it asks for clusters again, and only then finds that its
// stream has ended.
func mosnConfig(b Bootstrap) ([]byte, error) {
	type object = map[string]any
	host, port, err := net.SplitHostPort(b.Server)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	ads := object{"ads": object{}, "resource_api_version": "V3"}
	endpoint := object{"address": object{"socket_address": object{"address": host, "port_value": number}}}
	return json.Marshal(object{
		"node":           object{"id": b.NodeID, "cluster": b.Cluster},
		"close_graceful": true, // no sockets to hand its connections to a successor
		"dynamic_resources": object{
			"lds_config": ads,
			"cds_config": ads,
			"ads_config": object{
				"api_type": "GRPC", "transport_api_version": "V3",
				"refresh_delay": object{"seconds": 1}, // the least that it takes
				"grpc_services": []object{{"envoy_grpc": object{"cluster_name": "xds"}}},
			},
		},
		"static_resources": object{"clusters": []object{{
			"name": "xds", "type": "STATIC", "connect_timeout": "1s", "lb_policy": "RANDOM",
			"load_assignment": object{
				"cluster_name": "xds",
				"endpoints":    []object{{"lb_endpoints": []object{{"endpoint": endpoint}}}},
			},
		}}},
	})
}
