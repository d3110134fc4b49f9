package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settingsFile is looked for in the working directory, then in the user's
// folder of configuration; the first that exists is read.
const settingsFile = "sluice.yaml"

// fromFolder annotates a flag that the file of the working directory set.
const fromFolder = "sluice_from_folder"

// secretSettings say which secret a command shows, and to whom.
var secretSettings = []string{"token-file", "server-ca", "client-cert", "client-key"}

// applySettings gives flags that were not on the command line their values from
// the environment or the file.
func applySettings(cmd *cobra.Command) error {
	file, settings, err := readSettings()
	folder := file == settingsFile // which may be another's
	if err != nil {
		return err
	}
	if err := knownSettings(cmd.Root(), file, settings); err != nil {
		return err
	}
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "version" || bad != nil {
			return
		}
		if f.Name == "files" && cmd.Name() == "render" {
			return // a server's setting must not have render write
		}
		from := "SLUICE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := os.Getenv(from)
		ok := value != ""
		// A file in a repository must not allow that repository's own hazards.
		if s, inFile := settings[f.Name]; !ok && inFile && f.Name != "allow" {
			variable := from
			from, value, ok = fmt.Sprintf("%s:%d: %s", file, s.line, f.Name), s.value, true
			if folder && slices.Contains(secretSettings, f.Name) {
				bad = fmt.Errorf("%s: a file of the working directory may be another's, and says nothing about what is secret: give it with --%s, in %s, or in %s",
					from, f.Name, variable, filepath.Join(configHome(), "sluice", settingsFile))
				return
			}
			if folder {
				_ = cmd.Flags().SetAnnotation(f.Name, fromFolder, []string{from}) // the flag exists
			}
		}
		if !ok {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			bad = fmt.Errorf("%s %q: %s", from, value, flagReason(unwrapped(err), f.Value.Type()))
		}
	})
	return bad
}

func unwrapped(err error) error {
	if in := errors.Unwrap(err); in != nil {
		return in
	}
	return err
}

// setting is one line of the file.
type setting struct {
	value string
	line  int
}

// readSettings reads the file, if there is one. It is flat YAML: one flag and
// its value a line.
func readSettings() (string, map[string]setting, error) {
	for _, name := range []string{settingsFile, filepath.Join(configHome(), "sluice", settingsFile)} {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return name, nil, fmt.Errorf("cannot read settings: %w", err)
		}
		defer f.Close()
		settings := map[string]setting{}
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			key, value, ok := parseSetting(lines.Text())
			if !ok {
				return name, nil, fmt.Errorf(`%s:%d: want a flag and its value, such as "poll: 30s"`, name, n)
			}
			if key != "" {
				settings[key] = setting{value, n}
			}
		}
		return name, settings, lines.Err()
	}
	return "", nil, nil
}

// parseSetting reads one line; the key is empty if it says nothing.
func parseSetting(line string) (key, value string, ok bool) {
	if text := strings.TrimSpace(line); text == "" || text[0] == '#' || text == "---" {
		return "", "", true
	}
	key, value, ok = strings.Cut(line, ":")
	if !ok || key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return "", "", false
	}
	value = strings.TrimSpace(value)
	switch {
	case strings.HasPrefix(value, `"`):
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil {
			return "", "", false
		}
		value, err = strconv.Unquote(quoted)
		return key, value, err == nil
	case strings.HasPrefix(value, "'"):
		value, _, ok = strings.Cut(value[1:], "'")
		return key, value, ok
	}
	value, _, _ = strings.Cut(value, " #")
	return key, strings.TrimSpace(value), !strings.ContainsAny(value, "[]{}&*|>")
}

// knownSettings refuses a setting that is no flag of any command: a misspelt one
// would change nothing, in silence.
func knownSettings(root *cobra.Command, file string, settings map[string]setting) error {
	known := map[string]bool{}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		add := func(f *pflag.Flag) { known[f.Name] = true }
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	for key, s := range settings {
		if !known[key] {
			return fmt.Errorf("%s:%d: unknown setting %q%s: a setting has the name of a flag", file, s.line, key, meant("", key, names))
		}
	}
	return nil
}
