package main

import (
	"os"
	"path/filepath"
)

// configHome is the user's folder of configuration.
func configHome() string { return xdg("XDG_CONFIG_HOME", ".config") }

// defaultStore is the folder of the server's state.
func defaultStore() string { return filepath.Join(xdg("XDG_STATE_HOME", ".local/state"), "sluice") }

// defaultSocket is where the server listens for commands.
func defaultSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sluice.sock")
	}
	return "/run/sluice/sluice.sock"
}

// xdg is the folder that a variable names, or one below the user's own. Relative
// ones are passed over, as the specification says.
func xdg(variable, below string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, filepath.FromSlash(below))
}
