package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-xds/sluice/reconcile"
)

// statusEvery is how often --watch and --wait look.
const statusEvery = 500 * time.Millisecond

func newStatusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the groups, and how far each is",
		Long: `Show the groups, and how far each is on its way. --wait waits until the fleet has
converged, or at a commit that the server may not have seen yet; it exits with 0
when that is done, 3 when a group halted or the commit was rejected, 4 when the
time is over. A server that stops meanwhile is waited for too.`,
		Example: `  sluice status --watch
  sluice status --wait --commit "$(git rev-parse HEAD)" --timeout 15m`,
		Args: none,
	}
	server := serverFlag(cmd)
	f := cmd.Flags()
	watch := f.Bool("watch", false, "go on, and show each change")
	wait := f.Bool("wait", false, "wait until the fleet has converged")
	commit := f.String("commit", "", "with --wait: at this commit or rollout (3f2a91c, r-42), or a later one")
	output := outputFlag(cmd, dataFormats...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *commit != "" && !*wait:
			return &exitError{1, "--commit says what to wait for: give --wait too"}
		case *watch && *wait:
			return &exitError{1, "--watch never ends and --wait does: give one of them"}
		}
		c, err := server.client()
		if err != nil {
			return err
		}
		switch {
		case *wait:
			return a.waitFor(cmd.Context(), c, *commit)
		case *watch:
			return a.watch(cmd.Context(), c, output.value)
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		st, err := c.status(ctx)
		if err != nil {
			return err
		}
		return a.print(output, st, func(wide bool) string { return statusTable(st, wide) })
	}
	return cmd
}

// statusTable is the status for people: a table of groups, then what is wrong.
func statusTable(st *reconcile.Status, wide bool) string {
	var b strings.Builder
	fmt.Fprintln(&b, sourceLine(&st.Source))
	if len(st.Groups) == 0 {
		fmt.Fprintln(&b, "no groups yet: no commit has been served")
	} else {
		head := "GROUP\tROLLOUT\tCOMMIT\tWAVE\tSTATE\tSTAGE\tNODES\tCONNECTED\tAT TARGET\tNACK"
		if wide {
			head += "\tDONE\tCLIENT\tSTAGES\tOPENED\tFETCH\tCOMPILE\tPLAN\tPUSH"
		}
		rows := []string{head}
		for i := range st.Groups {
			g := &st.Groups[i]
			row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%d", g.Name, rolloutCell(wayTo(g)), commitCell(g), g.Wave, g.State,
				stageCell(g), g.Connected+g.Expected, g.Connected, targetCell(g), nacks(st, g.Name))
			if wide {
				row += "\t" + strings.Join(wideCells(g), "\t")
			}
			rows = append(rows, row)
		}
		b.WriteString(columns(rows...))
	}
	for _, line := range troubles(st) {
		b.WriteString("\n" + line + "\n")
	}
	return b.String()
}

// wideCells is what -o wide adds of a group.
func wideCells(g *reconcile.GroupStatus) []string {
	var stages []string
	for _, s := range g.Stages {
		stages = append(stages, fmt.Sprintf("%s %d/%d", s.Stage, s.Acked, s.Of))
	}
	cells := []string{strconv.Itoa(g.Done), g.Client.String(), dash(strings.Join(stages, ", ")), clock(g.OpenedAt)}
	for _, d := range []time.Duration{g.Spent.Fetch, g.Spent.Compile, g.Spent.Plan, g.Spent.Push} {
		cells = append(cells, d.Round(time.Millisecond).String())
	}
	return cells
}

// wayTo is the rollout that a group is on its way to, or at.
func wayTo(g *reconcile.GroupStatus) reconcile.Number {
	if g.Target == "" && g.Next != "" {
		return g.NextRollout
	}
	return g.Rollout
}

// rolloutCell is a rollout's number, or a dash for none.
func rolloutCell(n reconcile.Number) string {
	if n == 0 {
		return "-"
	}
	return n.String()
}

func sourceLine(s *reconcile.SourceStatus) string {
	words := []string{s.URL}
	if s.Branch != "" {
		words = append(words, s.Branch)
	}
	if s.Commit == "" {
		return strings.TrimSpace(strings.Join(words, " ")) + ": nothing read yet"
	}
	words = append(words, "at", short(s.Commit))
	if s.Subject != "" {
		words = append(words, fmt.Sprintf("%q", s.Subject))
	}
	if s.Author != "" {
		name, _, _ := strings.Cut(s.Author, " <")
		words = append(words, "by", name)
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// commitCell is where the group is, and where it goes.
func commitCell(g *reconcile.GroupStatus) string {
	to := g.Target
	if to == "" {
		to = g.Next
	}
	switch {
	case g.Base == "" && to == "":
		return "-"
	case walksBack(g):
		return short(g.Parked.Commit) + " → " + short(to)
	case to == "":
		return short(g.Base)
	case g.Base == "":
		return "→ " + short(to)
	}
	return short(g.Base) + " → " + short(to)
}

// stageCell is the first stage that not every node is through.
func stageCell(g *reconcile.GroupStatus) string {
	for _, s := range g.Stages {
		if s.Acked < s.Of {
			return fmt.Sprintf("%s %d/%d", s.Stage, s.Acked, s.Of)
		}
	}
	return "-"
}

// targetCell is how many nodes are where their group leads them: while the next
// commit waits that is the one before, and is named.
func targetCell(g *reconcile.GroupStatus) string {
	if behind(g) {
		return fmt.Sprintf("%d (%s)", g.AtTarget, short(g.Base))
	}
	return strconv.Itoa(g.AtTarget)
}

// behind reports whether a group stays at a commit while the next one waits.
func behind(g *reconcile.GroupStatus) bool { return g.Target == "" && g.Next != "" && g.Base != "" }

// atWords is how many nodes are at what: at target, or at the commit before.
func atWords(g *reconcile.GroupStatus) string {
	at := "target"
	if behind(g) {
		at = short(g.Base)
	}
	return fmt.Sprintf("%d/%d at %s", g.AtTarget, g.Connected+g.Expected, at)
}

func nacks(st *reconcile.Status, group string) int {
	n := 0
	for i := range st.Nodes {
		if st.Nodes[i].Group == group && st.Nodes[i].Nack != nil {
			n++
		}
	}
	return n
}

// troubles are what somebody should look at, each in a paragraph.
func troubles(st *reconcile.Status) []string {
	var out []string
	if st.Stopping {
		out = append(out, "server  is stopping: its nodes keep what they have, and come back when it does")
	}
	for i := range st.Groups {
		g := &st.Groups[i]
		switch {
		case g.Halt != nil:
			out = append(out, haltText(g))
		case g.Why != "" && (g.State != reconcile.Converged || g.Paused != nil):
			out = append(out, fmt.Sprintf("%s  %s: %s", g.State, g.Name, g.Why))
		}
	}
	if lines := refusals(st); len(lines) > 0 {
		out = append(out, strings.Join(lines, "\n"))
	}
	const most = 5 // refused nodes
	for i, r := range st.Refused {
		if i == most {
			out = append(out, fmt.Sprintf("refused  … and %d more: see sluice nodes --state refused", len(st.Refused)-most))
			break
		}
		in := ""
		if r.Group != "" {
			in = " of group " + r.Group
		}
		out = append(out, fmt.Sprintf("refused  node %s%s: %s (last seen %s)", r.Node, in, r.Why, clock(r.SeenAt)))
	}
	if r := st.Rejected; r != nil {
		out = append(out, fmt.Sprintf("rejected  commit %s; every node keeps what it has\n%s", short(r.Commit), indent(r.Why, "    ")))
	}
	if st.Source.Error != "" {
		out = append(out, "source  "+st.Source.Error)
	}
	if st.StoreError != "" {
		out = append(out, "store  "+st.StoreError)
	}
	return out
}

// refusals are the words of nodes that refuse what their group is at; a halt says
// its own.
func refusals(st *reconcile.Status) []string {
	const most = 5
	var out []string
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if g := st.Group(n.Group); n.Nack == nil || g == nil || g.Halt != nil {
			continue
		}
		if len(out) == most {
			return append(out, "NACK  … and more: see sluice nodes --state nacked")
		}
		out = append(out, fmt.Sprintf("NACK  node %s of group %s: %s", n.ID, n.Group, clean(n.Why)))
	}
	return out
}

// haltText says which node, what it said of what, and which line that means.
func haltText(g *reconcile.GroupStatus) string {
	h := g.Halt
	var b strings.Builder
	fmt.Fprintf(&b, "halted  %s at %s: node %s", g.Name, short(h.Commit), h.Node)
	if h.Stage != "" {
		fmt.Fprintf(&b, ", stage %s", h.Stage)
	}
	if walksBack(g) {
		fmt.Fprintf(&b, ", on the way back from %s", short(g.Parked.Commit))
	}
	if h.Nack != nil {
		fmt.Fprintf(&b, "\n    %s (%s) refused, nonce %s:\n%s", h.Nack.Type, h.Nack.Type.Short(), clean(h.Nack.Nonce), indent(cleanLines(h.Nack.Words), "      "))
	} else {
		fmt.Fprintf(&b, "\n    %s", h.Cause)
	}
	for _, o := range h.Origins {
		fmt.Fprintf(&b, "\n    → %s  %s %s  (%s)", o.Pos.Short(), o.Kind, o.Name, short(h.Commit))
	}
	if g.Paused != nil {
		fmt.Fprintf(&b, "\n    paused by %s: a fix waits for sluice resume %s", g.Paused.By, g.Name)
		return b.String()
	}
	b.WriteString("\n    " + wayOut(g))
	return b.String()
}

// wayOut is what to do about a halt: nothing that would be refused, or change
// nothing.
func wayOut(g *reconcile.GroupStatus) string {
	switch {
	case walksBack(g):
		return fmt.Sprintf("%s is parked, and this is the walk back from it: sluice retry %s tries that again; or merge a fix", short(g.Parked.Commit), g.Name)
	case g.Base == "":
		return fmt.Sprintf("mend it and merge; or sluice retry %s; there is no finished commit to walk back to", g.Name)
	}
	return fmt.Sprintf("mend it and merge; or sluice retry %s, or sluice abort %[1]s", g.Name)
}

// walksBack reports whether a group is on its way back from an aborted commit.
func walksBack(g *reconcile.GroupStatus) bool { return g.Parked != nil && g.Target != "" }

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}
