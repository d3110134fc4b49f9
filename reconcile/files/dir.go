package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-xds/sluice/schema"
)

// Dir is a folder with a folder for each group. One process at a time has it.
type Dir struct {
	path string
	as   string // the path by which nodes know it, with slashes
	lock *os.File
}

// lockFile is what the process holds that writes.
const lockFile = ".sluice.lock"

// Open makes the folder if there is none, and takes it. Nodes know it as the path
// as, or by its own if that is empty.
func Open(path, as string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot write files into %s: %w", path, err)
	}
	if as == "" {
		as = filepath.ToSlash(abs)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("cannot write files into %s: %w; choose another folder", path, err)
	}
	lock, err := os.OpenFile(filepath.Join(abs, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write files into %s: %w; choose another folder", path, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another sluice does; stop that one, or choose another folder")
		}
		return nil, fmt.Errorf("cannot write files into %s: %w", path, err)
	}
	return &Dir{path: abs, as: strings.TrimRight(as, "/"), lock: lock}, nil
}

// Close gives the folder up.
func (d *Dir) Close() error { return d.lock.Close() }

// place is the file of a resource, or of all of a type, below the folder, with
// slashes.
func (g *Group) place(k schema.Key) string {
	if k.Type.FullState() || k.Name == "" {
		return g.folder + "/" + k.Type.String() + ".json"
	}
	return g.folder + "/" + k.Type.String() + "/" + fileName(k.Name) + ".json"
}

// path is where a place is on this machine.
func (d *Dir) at(place string) string { return filepath.Join(d.path, filepath.FromSlash(place)) }

// leadsTo reports whether a node's path is that of a resource's file, however the
// folder was known when it was written.
func (g *Group) leadsTo(path string, k schema.Key) bool {
	return strings.HasSuffix(path, "/"+g.place(k))
}

// longName is how long the name of a file may be, in bytes: some less than the
// file systems' 255.
const longName = 200

// fileName is a resource's or a group's name as that of a file.
func fileName(name string) string {
	safe := url.PathEscape(name)
	if strings.HasPrefix(safe, ".") {
		safe = "%2E" + safe[1:]
	}
	if len(safe) > longName {
		sum := sha256.Sum256([]byte(name))
		safe = safe[:longName-33] + "-" + hex.EncodeToString(sum[:16])
	}
	return safe
}

// syncDir makes renames and removals in a folder outlive a power cut.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

const tempPrefix = ".sluice-"

// swap puts a file in its place in one step. The folder is not synced.
func swap(path string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // the error above is the one to tell
	}
	return err
}
