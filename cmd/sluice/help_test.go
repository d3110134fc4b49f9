package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func matches(expr, text string) bool { return regexp.MustCompile("(?m)" + expr).MatchString(text) }

func replaceIn(file, old, new string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), old) {
		return fmt.Errorf("%s holds no %q", file, old)
	}
	return os.WriteFile(file, []byte(strings.Replace(string(data), old, new, 1)), 0o600)
}

// Every command that is shown says what it is for, with an example that runs.
func TestHelp(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: no help or no example", c.CommandPath())
		}
		for _, line := range strings.Split(c.Example, "\n") {
			for _, part := range strings.Split(line, "&&") {
				part, _, _ = strings.Cut(part, " #")
				args := strings.Fields(part)
				if len(args) == 0 || args[0] != "sluice" {
					t.Errorf("%s: example %q does not begin with sluice", c.CommandPath(), part)
					continue
				}
				cmd, rest, err := c.Root().Find(args[1:])
				if err != nil {
					t.Errorf("%s: example %q: %v", c.CommandPath(), part, err)
					continue
				}
				for _, a := range rest {
					name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
					if strings.HasPrefix(a, "--") && cmd.Flags().Lookup(name) == nil && c.Root().PersistentFlags().Lookup(name) == nil {
						t.Errorf("%s: example %q: there is no %s", c.CommandPath(), part, a)
					}
				}
			}
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
				visit(sub)
			}
		}
	}
	visit(newRoot(&app{out: &bytes.Buffer{}, err: &bytes.Buffer{}}))
}

func TestMeant(t *testing.T) {
	known := []string{"plan", "serve", "status", "sync", "validate"}
	for word, want := range map[string]string{
		"plna": " (did you mean plan?)", "valid": " (did you mean validate?)", "stauts": " (did you mean status?)",
		"x": "", "deploy": "",
	} {
		if got := meant("", word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
