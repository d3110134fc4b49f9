package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCommandReference holds docs/commands.md against the commands' own help.
func TestCommandReference(t *testing.T) {
	t.Setenv("HOME", "/home/you")
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1000")
	var b bytes.Buffer
	b.WriteString("# Commands\n\nWhat `sluice help COMMAND` says. `go test ./cmd/sluice -update` writes this page.\n")
	root := newRoot(&app{})
	describe(&b, root)
	for _, c := range root.Commands() {
		if c.Name() != "help" && c.Name() != "completion" {
			describe(&b, c)
			for _, sub := range c.Commands() {
				describe(&b, sub)
			}
		}
	}
	const page = "../../docs/commands.md"
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.ReadFile(page); err != nil || !bytes.Equal(now, b.Bytes()) {
		t.Errorf("docs/commands.md is not what the commands say: run go test ./cmd/sluice -update (%v)", err)
	}
}

func describe(b *bytes.Buffer, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n", c.CommandPath(), text)
	if c.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", strings.TrimRight(c.Example, "\n"))
	}
	flags := c.NonInheritedFlags().FlagUsages()
	if flags != "" {
		fmt.Fprintf(b, "\n```\n%s```\n", flags)
	}
}
