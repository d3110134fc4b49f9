package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema/compile"
)

type edit struct {
	name string
	edit func(data string, i int) string
}

// changes are the small commits that are measured: each is the file of one
// service, as it is after the i-th.
var changes = []edit{
	{"an address", func(data string, i int) string {
		return strings.Replace(data, "10.0.0.1:", fmt.Sprintf("10.1.0.%d:", i), 1)
	}},
	{"an endpoint more", func(data string, i int) string {
		return strings.Replace(data, "\t\t{address", fmt.Sprintf("\t\t{address: \"10.3.0.%d:80\"},\n\t\t{address", i), 1)
	}},
	{"a route", func(data string, i int) string {
		return strings.Replace(data, "\"2s\"", fmt.Sprintf("\"%dms\"", i), 1)
	}},
}

// warm commits small changes to a repository, has them polled as the server does,
// and says how long each took from tree to fleet.
func warm(dir, kind string) error {
	at := slices.IndexFunc(changes, func(c edit) bool { return c.name == kind })
	if at < 0 {
		return fmt.Errorf("there is no change %q", kind)
	}
	files, err := read(dir)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "sluice-bench-git-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	repo, err := reconcile.NewScratch(filepath.Join(tmp, "repo"))
	if err != nil {
		return err
	}
	name := "services/s00007/s.cue"
	data := files[name]
	var git *reconcile.Git
	cache := compile.NewCache("")
	var spent []time.Duration
	for i := range 21 {
		if i > 0 {
			files[name] = changes[at].edit(data, i)
		}
		if _, err := repo.Merge("a change", files); err != nil {
			return err
		}
		if git == nil {
			if git, err = reconcile.OpenGit(reconcile.GitOptions{URL: repo.URL(), Dir: filepath.Join(tmp, "clone")}); err != nil {
				return err
			}
			defer git.Close()
		}
		rev, err := git.Poll(context.Background())
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := compile.Fleet(context.Background(), rev.FS, compile.Options{Commit: rev.Commit, Cache: cache, Salvage: true}); err != nil {
			return err
		}
		if i > 0 {
			spent = append(spent, time.Since(began))
		}
	}
	slices.Sort(spent)
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"p50_s": spent[len(spent)/2].Seconds(), "max_s": spent[len(spent)-1].Seconds(),
	})
}

func read(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(p)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	})
	return files, err
}
