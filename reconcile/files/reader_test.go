package files

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-xds/sluice/schema"
)

// reader is what watches files as a node does: from the listeners and clusters it
// follows each path that a file names, and each cluster that a route names. It
// knows JSON and nothing of how files are written.
type reader struct {
	folder string // of the group
	looks  int
	stop   chan struct{}
	done   sync.WaitGroup
	err    error
}

// Watch reads again and again until End.
func Watch(folder string) *reader {
	r := &reader{folder: folder, stop: make(chan struct{})}
	r.done.Go(func() {
		for r.err == nil {
			select {
			case <-r.stop:
				return
			default:
				r.err = r.look()
				r.looks++
			}
		}
	})
	return r
}

func (r *reader) End(t *testing.T) {
	t.Helper()
	close(r.stop)
	r.done.Wait()
	if r.err != nil {
		t.Error(r.err)
	}
	if r.looks < 2 {
		t.Errorf("it looked %d times", r.looks)
	}
}

// look follows everything once.
func (r *reader) look() error {
	for _, root := range []schema.Type{schema.Listeners, schema.ScopedRoutes, schema.Clusters} {
		if err := r.follow(filepath.Join(r.folder, root.String()+".json"), 0); err != nil {
			return err
		}
	}
	return nil
}

// follow reads a file, and what it names. If something is missing the file itself
// is read again: it may have been swapped meanwhile, and then names other things.
func (r *reader) follow(path string, depth int) error {
	for {
		before, err := os.ReadFile(path)
		if os.IsNotExist(err) && depth == 0 {
			return nil // not written yet
		}
		if err != nil {
			return err
		}
		err = r.all(path, before, depth)
		if err == nil {
			return nil
		}
		if after, again := os.ReadFile(path); again != nil || string(after) == string(before) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}

func (r *reader) all(path string, data []byte, depth int) error {
	var doc struct {
		Version   string           `json:"version_info"`
		TypeURL   string           `json:"type_url"`
		Resources []map[string]any `json:"resources"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("half-written: %w", err)
	}
	if single := filepath.Dir(path) != r.folder; single && len(doc.Resources) != 1 {
		return fmt.Errorf("%d resources where a node takes one", len(doc.Resources))
	}
	clusters, err := r.clusters()
	if err != nil {
		return err
	}
	for _, res := range doc.Resources {
		if res["@type"] != doc.TypeURL {
			return fmt.Errorf("a %v in a file of %s", res["@type"], doc.TypeURL)
		}
		for _, use := range uses(res) {
			if to, ok := strings.CutPrefix(use, "file "); ok {
				if err := r.follow(to, depth+1); err != nil {
					return err
				}
			} else if name, _ := strings.CutPrefix(use, "cluster "); !clusters[name] {
				// Clusters may have come since they were read.
				if again, err := r.clusters(); err != nil || !again[name] {
					return fmt.Errorf("there is no cluster %s", name)
				}
			}
		}
	}
	return nil
}

func (r *reader) clusters() (map[string]bool, error) {
	data, err := os.ReadFile(filepath.Join(r.folder, "clusters.json"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var doc struct {
		Resources []struct{ Name string }
	}
	names := map[string]bool{}
	err = json.Unmarshal(data, &doc)
	for _, c := range doc.Resources {
		names[c.Name] = true
	}
	return names, err
}

// uses lists the files and clusters that a piece of JSON names.
func uses(v any) (all []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			all = append(all, uses(e)...)
		}
	case map[string]any:
		for key, e := range v {
			switch inner := e.(type) {
			case string:
				if key == "cluster" {
					all = append(all, "cluster "+inner)
				}
			case map[string]any:
				if key == "path_config_source" {
					all = append(all, fmt.Sprint("file ", inner["path"]))
				}
				if key == "weighted_clusters" {
					for _, c := range inner["clusters"].([]any) {
						all = append(all, fmt.Sprint("cluster ", c.(map[string]any)["name"]))
					}
				}
			}
			all = append(all, uses(e)...)
		}
	}
	return all
}
