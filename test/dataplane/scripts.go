package dataplane

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// python is Debian's: another that comes first on PATH does not see the packages
// of apt.
const python = "/usr/bin/python3"

// importLimit bounds the question whether python can import a package.
const importLimit = 10 * time.Second

// CCore runs each client on the C core of gRPC: a child process of Debian's
// python3-grpcio 1.51, for Python, Ruby, PHP and C++ use the same.
type CCore struct{}

// Name implements Driver.
func (CCore) Name() string { return "c-core" }

// Missing implements Installed.
func (CCore) Missing() string {
	ctx, cancel := context.WithTimeout(context.Background(), importLimit)
	defer cancel()
	if err := exec.CommandContext(ctx, python, "-c", "import grpc").Run(); err != nil {
		return missing("python3-grpcio", python+" cannot import grpc")
	}
	return ""
}

// Start implements Driver.
func (CCore) Start(ctx context.Context, b Bootstrap, target string) (Node, error) {
	return startScript(ctx, b, target, python, "test/clients/ccore.py")
}

// GRPCJS runs each client on @grpc/grpc-js with @grpc/grpc-js-xds: a child
// process of node.
type GRPCJS struct{}

// Name implements Driver.
func (GRPCJS) Name() string { return "grpc-js" }

const grpcJSModule = "test/clients/node_modules/@grpc/grpc-js-xds"

// Missing implements Installed.
func (GRPCJS) Missing() string {
	if _, err := exec.LookPath("node"); err != nil {
		return missing("grpc-js", "there is no node")
	}
	if _, err := inRepository(grpcJSModule + "/package.json"); err != nil {
		return missing("grpc-js", "there is no "+grpcJSModule)
	}
	return ""
}

// Start implements Driver.
func (GRPCJS) Start(ctx context.Context, b Bootstrap, target string) (Node, error) {
	return startScript(ctx, b, target, "node", "test/clients/grpcjs.js")
}

// startScript starts a child that speaks the control protocol in another
// language.
func startScript(ctx context.Context, b Bootstrap, target, interpreter, script string) (Node, error) {
	name, err := inRepository(script)
	if err != nil {
		return nil, fmt.Errorf("cannot start node %s: %w", b.NodeID, err)
	}
	cmd := exec.Command(interpreter, filepath.Base(name))
	cmd.Dir = filepath.Dir(name) // where node looks for its modules
	cmd.Env = append(childEnv(b), targetEnv+"="+target)
	p, err := startProcess(ctx, cmd, b.NodeID)
	if err != nil {
		return nil, err
	}
	return p, nil
}

var _ = []Installed{MOSN{}, CCore{}, GRPCJS{}}
