package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  sluice version",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintln(a.out, versionLine())
			return nil
		},
	}
}

// versionLine is what the build knows of itself: the module's version and the
// commit that it was made from.
func versionLine() string {
	version, commit := "devel", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			version = v
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = ", commit " + short(s.Value)
			}
		}
	}
	return fmt.Sprintf("sluice %s%s, %s %s/%s", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// short is a commit as people read it.
func short(commit string) string { return commit[:min(len(commit), 7)] }
