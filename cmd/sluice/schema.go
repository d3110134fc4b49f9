package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/schema"
)

const (
	moduleFile = "cue.mod/module.cue"
	// newModule is a module without a name of its own: nobody imports it.
	newModule = "module: \"fleet.example@v0\"\nlanguage: version: \"v0.17.0\"\n"
)

func newSchemaCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "The schema for editors and for plain cue",
		Long:    "sluice itself reads configuration against the schema that it was built with. Editors\nand plain cue read the copy in the repository.",
		Example: "  sluice schema vendor",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSchemaVendorCommand(a))
	return cmd
}

func newSchemaVendorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vendor [DIR]",
		Short: "Copy the schema into a repository",
		Long: `Copy the schema that this sluice was built with to cue.mod/pkg of the repository
around a directory, and make it a CUE module if it is none. Then plain cue and the
CUE language server know every field:

  cue vet -c ./...

With --check nothing is written: it fails if the copy is another schema.`,
		Example: `  sluice schema vendor
  sluice schema vendor --check`,
		Args: atMostOne,
	}
	check := cmd.Flags().Bool("check", false, "fail if the copy is not this schema")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		v, err := openVendored(dirOf(args))
		if err != nil {
			return err
		}
		if *check {
			return v.check(a)
		}
		return v.write(a)
	}
	return cmd
}

// ownModule finds the module file of sluice's own repository.
var ownModule = regexp.MustCompile(`(?m)^module:\s*"` + regexp.QuoteMeta(schema.ModulePath) + `"`)

// schemaDir is where plain cue looks for the schema's package.
func schemaDir() string {
	module, _, _ := strings.Cut(schema.ModulePath, "@")
	return path.Join("cue.mod/pkg", module, "schema")
}

// schemaFiles are the schema's files, by their place in a repository.
func schemaFiles() (map[string][]byte, error) {
	names, err := fs.Glob(schema.CUE, "*.cue")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[path.Join(schemaDir(), name)], err = schema.CUE.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// vendored is the copy of the schema in a repository.
type vendored struct {
	root  string // of the CUE module
	files map[string][]byte
	wrong []string // what differs from files, in words
	extra []string // files of another schema
}

// openVendored finds the module around dir; without one it is the repository, or
// dir itself.
func openVendored(dir string) (*vendored, error) {
	tree, err := openWorkTree(dir, "")
	if err != nil {
		return nil, err
	}
	v := &vendored{root: tree.root}
	full := filepath.Join(tree.root, filepath.FromSlash(tree.path))
	if module := above(full, filepath.FromSlash(moduleFile)); module != "" {
		v.root = module
	}
	data, err := os.ReadFile(filepath.Join(v.root, filepath.FromSlash(moduleFile)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read %s: %w", moduleFile, plainPathError(err))
	}
	if ownModule.Match(data) {
		return nil, fmt.Errorf("%s is in the CUE module of sluice itself, which needs no copy of its schema", dir)
	}
	if v.files, err = schemaFiles(); err != nil {
		return nil, err
	}
	if data == nil {
		v.files[moduleFile] = []byte(newModule)
	}
	return v, v.compare()
}

// compare notes what is not as it should be.
func (v *vendored) compare() error {
	for _, name := range fileNames(v.files) {
		data, err := os.ReadFile(filepath.Join(v.root, filepath.FromSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			v.wrong = append(v.wrong, name+" is missing")
		case err != nil:
			return fmt.Errorf("cannot read %s: %w", name, plainPathError(err))
		case !bytes.Equal(data, v.files[name]):
			v.wrong = append(v.wrong, name+" differs")
		}
	}
	have, err := os.ReadDir(filepath.Join(v.root, filepath.FromSlash(schemaDir())))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read %s: %w", schemaDir(), plainPathError(err))
	}
	for _, e := range have {
		name := path.Join(schemaDir(), e.Name())
		if _, ours := v.files[name]; !ours && path.Ext(name) == ".cue" {
			v.extra = append(v.extra, name)
			v.wrong = append(v.wrong, name+" is of another schema")
		}
	}
	return nil
}

func (v *vendored) check(a *app) error {
	if len(v.wrong) == 0 {
		a.say("the copy in %s is this schema", schemaDir())
		return nil
	}
	for _, line := range v.wrong {
		fmt.Fprintln(a.err, line)
	}
	return fmt.Errorf("the schema in cue.mod is not that of this sluice: run sluice schema vendor")
}

// write brings the copy up to date. What is of another schema goes last, so that
// an interruption leaves nothing out.
func (v *vendored) write(a *app) error {
	if len(v.wrong) == 0 {
		a.say("the copy in %s is this schema already", schemaDir())
		return nil
	}
	if err := writeFiles(v.root, v.files); err != nil {
		return err
	}
	for _, name := range v.extra {
		if err := os.Remove(filepath.Join(v.root, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("cannot remove %s: %w", name, plainPathError(err))
		}
	}
	a.say("wrote %s to %s", count(len(v.files), "file"), v.root)
	return nil
}

func fileNames(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }
