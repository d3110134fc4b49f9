package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/examples"
)

// starter is the example that init copies.
const starter = "starter"

func newInitCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a configuration repository to start from",
		Long: `Write a configuration repository to start from: a group, a listener, a shop with
routes, services and tests, a workflow for CI, settings for editors, and the schema
for plain cue and for editors (see sluice schema vendor).

It writes over nothing: if a file is there already, it writes none. Nor does it make
a CUE module inside another of the same repository, as that would not be read.`,
		Example: `  sluice init
  sluice init fleet`,
		Args: atMostOne,
		RunE: func(_ *cobra.Command, args []string) error {
			dir := dirOf(args)
			files, err := starterFiles()
			if err != nil {
				return err
			}
			if err := outsideModules(dir); err != nil {
				return err
			}
			if err := writeNew(dir, files); err != nil {
				return err
			}
			a.say("wrote %s to %s", count(len(files), "file"), dir)
			in := ""
			if dir != "." {
				in = " " + dir
			}
			a.say("next: sluice validate%s && sluice test%s, then commit it to a Git repository", in, in)
			return nil
		},
	}
}

// starterFiles are all files of a new repository.
func starterFiles() (map[string][]byte, error) {
	files, err := schemaFiles()
	if err != nil {
		return nil, err
	}
	files[moduleFile] = []byte(newModule)
	tree, err := fs.Sub(examples.FS, starter)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(tree, name)
		return err
	})
	return files, err
}

// outsideModules refuses a directory below a CUE module of its repository: what is
// a module of its own there is not read along with it.
func outsideModules(dir string) error {
	full, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("cannot write to %s: %w", dir, err)
	}
	there := func(dir, entry string) bool {
		_, err := os.Stat(filepath.Join(dir, entry))
		return err == nil
	}
	for at := full; !there(at, ".git") && filepath.Dir(at) != at; {
		at = filepath.Dir(at)
		if there(at, filepath.FromSlash(moduleFile)) {
			return fmt.Errorf("%s lies in the CUE module of %s, which would not read another module in it: add a folder with .cue files there, or name a directory outside of it", dir, at)
		}
	}
	return nil
}

// writeNew writes files below dir, or none if one of them is there.
func writeNew(dir string, files map[string][]byte) error {
	var taken []string
	for _, name := range fileNames(files) {
		switch _, err := os.Lstat(filepath.Join(dir, name)); {
		case err == nil:
			taken = append(taken, name)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("cannot write %s: %w", filepath.Join(dir, name), plainPathError(err))
		}
	}
	if len(taken) > 0 {
		const few = 3
		names := strings.Join(taken[:min(few, len(taken))], ", ")
		if more := len(taken) - few; more > 0 {
			names += fmt.Sprintf(" and %s", count(more, "more file"))
		}
		return fmt.Errorf("%s holds %s already, and init writes over nothing: name another directory", dir, names)
	}
	return writeFiles(dir, files)
}

// writeFiles writes files below dir, with the directories that they are in.
func writeFiles(dir string, files map[string][]byte) error {
	for _, name := range fileNames(files) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if err == nil {
			err = os.WriteFile(full, files[name], 0o644)
		}
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", full, plainPathError(err))
		}
	}
	return nil
}
