package dataplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// An Installed is a Driver of a client that is no part of this module.
type Installed interface {
	Driver
	// Missing is why the client cannot be started on this machine, for a test to
	// skip itself with: it names the package. It is empty if nothing is missing.
	Missing() string
}

// missing is what Missing answers for a package.
func missing(pkg, what string) string {
	return fmt.Sprintf("no %s: %s; `make e2e-deps` installs it", pkg, what)
}

// inRepository finds a file of this repository by its slash path. A test runs in
// the folder of its package, so it is looked for from there upwards.
func inRepository(rel string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find %s: %w", rel, err)
	}
	for {
		name := filepath.Join(dir, filepath.FromSlash(rel))
		if _, err := os.Stat(name); err == nil {
			return name, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("cannot find %s: %w", rel, os.ErrNotExist)
		}
		dir = up
	}
}
