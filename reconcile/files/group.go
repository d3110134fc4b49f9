package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-xds/sluice/schema"
)

// up is the order in which types are written: what is referred to before what
// refers to it, also where a stream would have it otherwise. A node refuses a
// cluster or listener that names a file which is not there. Down, its reverse, is
// the order of removals.
var up = [...]schema.Type{
	schema.Runtimes, schema.Secrets, schema.Endpoints, schema.Clusters, schema.Extensions,
	schema.Routes, schema.ScopedRoutes, schema.Listeners,
}

// Group is the files of one group. It has one owner.
type Group struct {
	dir    *Dir
	name   string
	folder string // below dir
	held   schema.Snapshot
	// whole is set once all types have their file: from then on one that is not
	// there was taken away by somebody.
	whole bool
	json  map[schema.Key]rendered
	seen  map[string]look // by place
	stale map[schema.Key]bool
	tidy  bool // no file is left of what is gone
}

// rendered is a resource of a version as JSON.
type rendered struct {
	version schema.Version
	data    json.RawMessage
}

// look tells a file from another, at first by what costs little.
type look struct {
	info os.FileInfo
	sum  [sha256.Size]byte
}

// wholeFile says that all types were written.
const wholeFile = ".sluice.json"

var wholeWords = []byte(`{"format": 1}` + "\n")

// Group reads what the files of a group hold. It is an error if one of them cannot
// be read, or is not as it was written; nothing is changed then.
func (d *Dir) Group(name string) (*Group, error) {
	g := &Group{dir: d, name: name, folder: fileName(name), json: map[schema.Key]rendered{}, seen: map[string]look{}, stale: map[schema.Key]bool{}}
	_, err := os.Stat(d.at(g.folder + "/" + wholeFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, g.cannotRead(g.folder, err)
	}
	g.whole = err == nil
	for _, t := range up {
		if err := g.load(t); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Held is what the files hold. Live resources have their bodies.
func (g *Group) Held() schema.Snapshot { return g.held }

func (g *Group) cannotRead(place string, why error) error {
	return fmt.Errorf("cannot go on from the files of group %s: %s: %w; put back what sluice wrote, or move the folder %s away to have it written anew",
		g.name, g.dir.at(place), why, g.dir.at(g.folder))
}

// read reads a file, and remembers how it looked.
func (g *Group) read(t schema.Type, place string) (*document, error) {
	path := g.dir.at(place)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d, err := decode(t, data)
	if err == nil {
		g.seen[place] = look{info, sha256.Sum256(data)}
	}
	return d, err
}

// load reads the files of one type. That of the type as a whole says what is held:
// one of a single resource may be ahead of it, or behind, if the process ended
// between the two, and is written again.
func (g *Group) load(t schema.Type) error {
	place := g.place(schema.Key{Type: t})
	d, err := g.read(t, place)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !g.whole:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return g.cannotRead(place, errors.New("it is gone"))
	case err != nil:
		return g.cannotRead(place, err)
	}
	var rs []*schema.Resource
	for _, data := range d.Resources {
		r, err := g.fromFile(t, data)
		if err != nil {
			return g.cannotRead(place, err)
		}
		rs = append(rs, r)
		if t.FullState() {
			continue
		}
		one, err := g.read(t, g.place(r.Key))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			g.stale[r.Key] = true
		case err != nil:
			return g.cannotRead(g.place(r.Key), err)
		case one.Version != string(r.Version):
			g.stale[r.Key] = true
		}
	}
	g.held = g.held.Replace(t, schema.SetOf(rs...))
	return nil
}

// Write brings the files from what they hold to a snapshot, whose live resources
// have bodies: first all that is added or changed, from the targets of references
// to their sources, then what is removed, the other way round. After an error the
// files are in a state between the two that is as safe as both; read the Group
// again.
func (g *Group) Write(to schema.Snapshot) error {
	if err := g.prepare(to); err != nil {
		return err
	}
	for _, t := range up {
		if err := g.put(t, g.held.Of(t).Union(to.Of(t))); err != nil {
			return g.cannotWrite(err)
		}
	}
	for _, t := range slices.Backward(up[:]) {
		if err := g.put(t, to.Of(t)); err != nil {
			return g.cannotWrite(err)
		}
	}
	if !g.whole {
		if err := swap(g.dir.at(g.folder+"/"+wholeFile), wholeWords, 0o644); err != nil {
			return g.cannotWrite(err)
		}
		g.whole = true
	}
	return g.sweep()
}

func (g *Group) cannotWrite(why error) error {
	return fmt.Errorf("cannot write the files of group %s: %w; mend it, and retry", g.name, why)
}

// prepare finds out whether all can be written, before anything is.
func (g *Group) prepare(to schema.Snapshot) error {
	if vh := to.Of(schema.VirtualHosts); vh.Len() > 0 {
		return g.cannotWrite(errors.New("virtual hosts that are asked for on demand cannot be read from files"))
	}
	for r := range to.All() {
		if r.Body == nil {
			return g.cannotWrite(fmt.Errorf("nothing is known of %s yet", r.Key))
		}
		if err := g.render(r); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(g.dir.at(g.folder), 0o755); err != nil {
		return g.cannotWrite(err)
	}
	for place := range g.seen {
		if err := g.unchanged(place); err != nil {
			return err
		}
	}
	return nil
}

// unchanged reports a file that is not as it was last seen.
func (g *Group) unchanged(place string) error {
	was := g.seen[place]
	info, err := os.Stat(g.dir.at(place))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return g.cannotRead(place, errors.New("it is gone"))
	case err != nil:
		return g.cannotRead(place, err)
	case os.SameFile(info, was.info) && info.Size() == was.info.Size() && info.ModTime().Equal(was.info.ModTime()):
		return nil
	}
	data, err := os.ReadFile(g.dir.at(place))
	if err != nil {
		return g.cannotRead(place, err)
	}
	if sha256.Sum256(data) != was.sum {
		return g.cannotRead(place, errEdited)
	}
	g.seen[place] = look{info, was.sum}
	return nil
}

// render makes the JSON of a resource, once a version.
func (g *Group) render(r *schema.Resource) error {
	if have, ok := g.json[r.Key]; ok && have.version == r.Version {
		return nil
	}
	data, err := g.toFile(r)
	g.json[r.Key] = rendered{r.Version, data}
	return err
}

// put has the files of one type hold a set.
func (g *Group) put(t schema.Type, set schema.Set) error {
	place := g.place(schema.Key{Type: t})
	_, exists := g.seen[place]
	held := g.held.Of(t)
	var news, gone []schema.Key
	for old, r := range schema.Diff(held, set) {
		if r == nil {
			gone = append(gone, old.Key)
		} else {
			news = append(news, r.Key)
		}
	}
	for k := range g.stale {
		if k.Type == t && set.Get(k.Name) != nil && !slices.Contains(news, k) {
			news = append(news, k)
		}
	}
	if exists && len(news) == 0 && len(gone) == 0 {
		return nil
	}
	if err := g.putEach(t, set, news); err != nil {
		return err
	}
	var all []json.RawMessage
	for r := range set.All() {
		if err := g.render(r); err != nil {
			return err
		}
		all = append(all, g.json[r.Key].data)
	}
	data, err := encode(t, set.Version(), all)
	if err != nil {
		return err
	}
	if err := g.swapAll(t, []output{{place: place, data: data}}); err != nil {
		return err
	}
	if err := syncDir(g.dir.at(g.folder)); err != nil {
		return err
	}
	g.held = g.held.Replace(t, set)
	return g.remove(t, gone)
}

// output is one file that is to be.
type output struct {
	place string
	data  []byte
	info  os.FileInfo // once it is
}

// syncs is how many files are written at once: each waits for the disk, which
// takes many in one turn.
const syncs = 32

// swapAll swaps files of one type in, but for those that are as they should be.
func (g *Group) swapAll(t schema.Type, files []output) error {
	mode := os.FileMode(0o644)
	if t == schema.Secrets {
		mode = 0o600
	}
	errs := make([]error, len(files))
	turn := make(chan struct{}, syncs)
	var done sync.WaitGroup
	for i := range files {
		turn <- struct{}{}
		done.Go(func() {
			f, path := &files[i], g.dir.at(files[i].place)
			if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, f.data) {
				errs[i] = swap(path, f.data, mode)
			}
			if errs[i] == nil {
				f.info, errs[i] = os.Stat(path)
			}
			<-turn
		})
	}
	done.Wait()
	for _, f := range files {
		if f.info != nil {
			g.seen[f.place] = look{f.info, sha256.Sum256(f.data)}
		}
	}
	return errors.Join(errs...)
}

// putEach writes the files of single resources.
func (g *Group) putEach(t schema.Type, set schema.Set, news []schema.Key) error {
	if t.FullState() || len(news) == 0 {
		return nil
	}
	folder := g.dir.at(g.folder + "/" + t.String())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var files []output
	for _, k := range news {
		r, place := set.Get(k.Name), g.place(k)
		if _, known := g.seen[place]; !known {
			if _, err := g.read(t, place); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: %w", g.dir.at(place), err)
			}
		}
		if err := g.render(r); err != nil {
			return err
		}
		data, err := encode(t, r.Version, []json.RawMessage{g.json[k].data})
		if err != nil {
			return err
		}
		files = append(files, output{place: place, data: data})
	}
	if err := errors.Join(g.swapAll(t, files), syncDir(folder)); err != nil {
		return err
	}
	for _, k := range news {
		delete(g.stale, k)
	}
	return nil
}

// remove takes away the files of resources that nothing refers to any more.
func (g *Group) remove(t schema.Type, gone []schema.Key) error {
	for _, k := range gone {
		delete(g.json, k)
		if t.FullState() {
			continue
		}
		place := g.place(k)
		if err := os.Remove(g.dir.at(place)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(g.seen, place)
	}
	if len(gone) == 0 || t.FullState() {
		return nil
	}
	return syncDir(g.dir.at(g.folder + "/" + t.String()))
}

// sweep removes what a process left behind that ended half-way: temporary files,
// and files of resources that are gone. What was not written here stays.
func (g *Group) sweep() error {
	if g.tidy {
		return nil
	}
	folders := []string{g.folder}
	for _, t := range up {
		folders = append(folders, g.folder+"/"+t.String())
	}
	for i, folder := range folders {
		list, err := os.ReadDir(g.dir.at(folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return g.cannotWrite(err)
		}
		for _, e := range list {
			place := folder + "/" + e.Name()
			mine := strings.HasPrefix(e.Name(), tempPrefix) && strings.HasSuffix(e.Name(), ".tmp")
			if _, known := g.seen[place]; !mine && !known && i > 0 {
				_, err := g.read(up[i-1], place)
				mine = err == nil
				delete(g.seen, place)
			}
			if !mine {
				continue
			}
			if err := os.Remove(g.dir.at(place)); err != nil {
				return g.cannotWrite(err)
			}
		}
	}
	g.tidy = true
	return nil
}
