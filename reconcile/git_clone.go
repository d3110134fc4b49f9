package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// OtherRepository says that the clone in a folder is one of another repository.
type OtherRepository struct{ Dir, URL, Wanted string }

func (e *OtherRepository) Error() string {
	return fmt.Sprintf("cannot use %s for a clone of %s: it holds one of %s, which nodes were served from; start with that as --repo, or with another --store; or, if the repository has only moved, remove this folder, and it is cloned anew",
		e.Dir, e.Wanted, e.URL)
}

// openClone opens dir, or makes a bare repository of it if it is absent or empty.
// The URL is written last: without it, dir is one whose creation was cut short.
func openClone(dir, from, branch string, rebind bool) (*filesystem.Storage, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	fresh := !slices.ContainsFunc(files, func(f fs.DirEntry) bool {
		return !slices.Contains([]string{"objects", "refs", "lost+found"}, f.Name())
	})
	sto := filesystem.NewStorageWithOptions(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRU(objectCacheSize),
		filesystem.Options{KeepDescriptors: true, LargeObjectThreshold: largeObject})
	if fresh {
		if _, err := git.Init(sto, nil); err != nil {
			return nil, err
		}
	} else if _, err := git.Open(sto, nil); err != nil {
		return nil, fmt.Errorf("it is neither empty nor a clone (%w); name another directory", err)
	}
	c, err := sto.Config()
	if err != nil {
		return nil, err
	}
	if origin := c.Remotes["origin"]; origin != nil {
		if slices.Equal(origin.URLs, []string{from}) {
			return sto, nil
		}
		if !rebind {
			return nil, &OtherRepository{Dir: dir, URL: strings.Join(origin.URLs, " "), Wanted: from}
		}
		if err := forget(sto); err != nil {
			return nil, err
		}
	} else if heads, err := os.ReadDir(filepath.Join(dir, "refs", "heads")); err != nil || len(heads) > 0 {
		return nil, errors.New("it is a repository of its own; name another directory")
	}
	spec := fmt.Sprintf("+refs/heads/%[1]s:refs/heads/%[1]s", cmp.Or(branch, "*"))
	c.Core.IsBare = true
	c.Remotes["origin"] = &config.RemoteConfig{Name: "origin", URLs: []string{from}, Fetch: []config.RefSpec{config.RefSpec(spec)}}
	return sto, sto.SetConfig(c)
}

// forget drops what a clone knows of its origin's branches. The objects stay.
func forget(sto *filesystem.Storage) error {
	refs, err := sto.IterReferences()
	if err != nil {
		return err
	}
	return refs.ForEach(func(r *plumbing.Reference) error {
		if r.Name() != lastRef && !r.Name().IsBranch() {
			return nil
		}
		return sto.RemoveReference(r.Name())
	})
}
