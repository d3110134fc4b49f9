package reconcile

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// Same reports whether the configuration in a work tree is that of the commit: its
// CUE files are, and where one of them takes in others (@embed), all files are.
// What Git ignores counts as well, since it is compiled as well. Folders whose names
// begin with a dot hold no configuration.
func (t *Tree) Same(work fs.FS) (bool, error) {
	same, embeds, err := t.compare(work, false)
	if err == nil && same && embeds {
		same, _, err = t.compare(work, true)
	}
	return same, err
}

// errDiffers ends a walk at the first difference.
var errDiffers = errors.New("differs")

// compare compares the CUE files, or all, and says whether some take in others.
func (t *Tree) compare(work fs.FS, all bool) (same, embeds bool, err error) {
	found := 0
	err = fs.WalkDir(work, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !all && path.Ext(p) != ".cue":
			return nil
		}
		n, err := t.find("compare", p)
		if err != nil || !d.Type().IsRegular() {
			return errDiffers
		}
		data, err := fs.ReadFile(work, p)
		if err != nil {
			return err
		}
		found++
		embeds = embeds || bytes.Contains(data, []byte("@embed("))
		if plumbing.ComputeHash(plumbing.BlobObject, data) != n.hash {
			return errDiffers
		}
		return nil
	})
	if errors.Is(err, errDiffers) {
		return false, embeds, nil
	}
	return err == nil && found == t.root.count(all), embeds, err
}

// count is the number of CUE files, or of all, below a directory.
func (n *treeNode) count(all bool) int {
	found := 0
	for _, c := range n.children {
		switch {
		case c.mode.IsDir() && !strings.HasPrefix(c.name, "."):
			found += c.count(all)
		case !c.mode.IsDir() && (all || path.Ext(c.name) == ".cue"):
			found++
		}
	}
	return found
}
