package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/schema"
)

// documentFormat is the version of the JSON that commands print.
const documentFormat = "1"

func newValidateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "Check the configuration in a directory",
		Long: `Check the configuration in a directory, uncommitted files included, and print all
that is wrong with it at file:line:column. Warnings do not fail without --strict.

In CI, -o github marks the lines of a pull request, and -o sarif is for code
scanners.`,
		Example: `  sluice validate
  sluice validate --path envs/prod -o json
  sluice validate --strict -o github`,
		Args: atMostOne,
	}
	folder := pathFlag(cmd)
	strict := cmd.Flags().Bool("strict", false, "fail on warnings too")
	output := outputFlag(cmd, "text", "json", "sarif", "github")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tree, err := openWorkTree(dirOf(args), *folder)
		if err != nil {
			return err
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		fleet, err := tree.compile(ctx)
		var found schema.Diagnostics
		switch {
		case err == nil:
			found = fleet.Warnings
		case !errors.As(err, &found):
			return because(ctx, err)
		}
		doc := validationOf(fleet, found)
		doc.OK = err == nil && (doc.Warnings == 0 || !*strict)
		if err := doc.print(a, output.value); err != nil {
			return err
		}
		if !doc.OK {
			return &exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// validation is what validate -o json prints.
type validation struct {
	FormatVersion string             `json:"format_version"`
	OK            bool               `json:"ok"`
	Errors        int                `json:"errors"`
	Warnings      int                `json:"warnings"`
	Groups        int                `json:"groups"`
	Resources     int                `json:"resources"`
	Tests         int                `json:"tests"`
	Diagnostics   schema.Diagnostics `json:"diagnostics"`
}

// validationOf counts; fleet is nil if there are errors.
func validationOf(fleet *schema.Fleet, found schema.Diagnostics) *validation {
	v := &validation{FormatVersion: documentFormat, Diagnostics: found}
	if found == nil {
		v.Diagnostics = schema.Diagnostics{}
	}
	for _, d := range found {
		if d.Severity == schema.Warning {
			v.Warnings++
		} else {
			v.Errors++
		}
	}
	if fleet == nil {
		return v
	}
	keys := map[schema.Key]bool{}
	for i := range fleet.Groups {
		for r := range fleet.Groups[i].Snapshot.All() {
			keys[r.Key] = true
		}
	}
	v.Groups, v.Resources, v.Tests = len(fleet.Groups), len(keys), len(fleet.Tests)
	return v
}

// print writes what was found: as data to stdout, or for people to stderr.
func (v *validation) print(a *app, format string) error {
	switch format {
	case "json":
		return printJSON(a.out, v)
	case "sarif":
		return printSARIF(a.out, v.Diagnostics)
	case "github":
		if err := printGitHub(a.out, v.Diagnostics); err != nil {
			return err
		}
	default:
		printDiagnostics(a.err, v.Diagnostics)
	}
	a.say("%s", v.summary())
	return nil
}

func (v *validation) summary() string {
	if v.Errors > 0 {
		return fmt.Sprintf("invalid: %s, %s", count(v.Errors, "error"), count(v.Warnings, "warning"))
	}
	s := fmt.Sprintf("valid: %s, %s, %s", count(v.Groups, "group"), count(v.Resources, "resource"), count(v.Tests, "test"))
	if v.Warnings > 0 {
		s += ", " + count(v.Warnings, "warning")
		if !v.OK {
			s += "; --strict fails on warnings"
		}
	}
	return s
}

// printDiagnostics prints each as file:line:col, so that editors can jump there.
func printDiagnostics(w io.Writer, ds schema.Diagnostics) {
	for _, d := range ds {
		if d.Severity == schema.Warning {
			d.Message = "warning: " + d.Message
		}
		fmt.Fprintln(w, d)
	}
}

// count is "1 group" or "2 groups".
func count(n int, noun string) string {
	if n != 1 {
		if strings.HasSuffix(noun, "s") {
			noun += "e"
		}
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// printJSON prints a document for people too.
func printJSON(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}
