package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-xds/sluice/reconcile"
)

func newTopCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the rollout, and act, in a terminal",
		Long: `Watch the fleet live: which group is where, at which stage, which node said no, in
its own words, and which line of the configuration that means. Lower-case keys
look; upper-case keys change traffic, and ask first. q quits the UI and never a
rollout; ? shows all keys.

Where there is no terminal, or TERM=dumb, it prints one line for each event.`,
		Example: "  sluice top\n  sluice top | grep halted",
		Args:    none,
	}
	server := serverFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		c, err := server.client()
		if err != nil {
			return err
		}
		return a.top(ctx, c, nil)
	}
	return cmd
}

// top runs the UI, or prints events where it cannot. It ends without an error when
// the user quits, or ctx does. ready is called when the UI is up.
func (a *app) top(ctx context.Context, c *adminClient, ready func(*tea.Program)) error {
	// The first answer tells a wrong socket from a server that restarts later.
	if _, err := c.statusOf(ctx, "none"); err != nil {
		return err
	}
	if !terminal(a.out) || !term.IsTerminal(int(os.Stdin.Fd())) {
		return a.eventLines(ctx, c)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(a.out), tea.WithFPS(30), tea.WithoutSignalHandler()}
	if a.noColor || os.Getenv("NO_COLOR") != "" {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	p := tea.NewProgram(newTopModel(c), options...)
	feed := feed{client: c, send: p.Send}
	done := make(chan struct{})
	go func() { defer close(done); feed.run(ctx) }()
	if ready != nil {
		ready(p)
	}
	_, err := p.Run()
	cancel()
	<-done
	if err != nil && ctx.Err() != nil && !strings.Contains(err.Error(), "panic") {
		return nil
	}
	return err
}

// eventLines prints one line for each event, and for a server that is away.
func (a *app) eventLines(ctx context.Context, c *adminClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	line := func(at time.Time, text string) {
		if _, err := fmt.Fprintf(a.out, "%s  %s\n", at.Local().Format(time.TimeOnly), text); err != nil && failed == nil {
			failed = err
			cancel() // nobody reads any more
		}
	}
	f := feed{client: c, send: func(m tea.Msg) {
		switch m := m.(type) {
		case eventsMsg:
			for _, e := range m {
				line(e.At, eventText(&e))
			}
		case awayMsg:
			line(time.Now(), "server  away: "+m.why)
		}
	}}
	f.run(ctx)
	if failed != nil && failed != io.ErrClosedPipe {
		return fmt.Errorf("cannot write: %w", failed)
	}
	return nil
}

// eventText is an event on one line.
func eventText(e *reconcile.Event) string {
	words := []string{fmt.Sprintf("%-9s", e.Kind)}
	number := ""
	if e.Rollout != 0 {
		number = e.Rollout.String()
	}
	for _, w := range []string{e.Group, e.Node, number, short(e.Commit)} {
		if w != "" {
			words = append(words, w)
		}
	}
	text := strings.Join(words, "  ") + "  " + oneLine(e.Words)
	if e.By != "" {
		name, _, _ := strings.Cut(e.By, " <")
		text += "  (" + name + ")"
	}
	return text
}
