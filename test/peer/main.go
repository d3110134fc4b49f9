package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want run, serve or fleet")
	}
	f := flag.NewFlagSet(args[0], flag.ExitOnError)
	ns := f.String("n", "100,1000,5000", "connections, with commas")
	sizeNames := f.String("size", "a,b", "what a node holds: a or b, with commas")
	groups := f.String("groups", "1,100", "groups of nodes, each with a cluster of its own, with commas")
	kind := f.String("engine", "sluice", "engine to serve")
	addr := f.String("addr", "", "server of the fleet")
	delta := f.Bool("delta", false, "incremental")
	updates := f.Int("updates", 20, "endpoint changes")
	rollouts := f.Int("rollouts", 3, "rollouts of five stages")
	only := f.String("only", "", "engines to run, with commas; empty for all")
	variants := f.String("variants", "delta,sotw", "variants to run, with commas")
	out := f.String("json", "", "file for the figures")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	var plan plan
	plan.updates, plan.rollouts = *updates, *rollouts
	if *only != "" {
		plan.only = strings.Split(*only, ",")
	}
	plan.variants = strings.Split(*variants, ",")
	for _, name := range strings.Split(*sizeNames, ",") {
		if _, ok := sizes[name]; !ok {
			return fmt.Errorf("no size %q: want a or b", name)
		}
		plan.sizes = append(plan.sizes, name)
	}
	var err error
	if plan.ns, err = numbers(*ns); err != nil {
		return err
	}
	if plan.groups, err = numbers(*groups); err != nil {
		return err
	}
	switch args[0] {
	case "serve":
		return serve(*kind, sizes[plan.sizes[0]], plan.groups[0])
	case "fleet":
		return fleet(*addr, load{size: sizes[plan.sizes[0]], n: plan.ns[0], groups: plan.groups[0], rollouts: *rollouts, delta: *delta})
	case "run":
		plan.out = *out
		all, err := plan.measure()
		show(os.Stdout, all) // what there is, also of a run that failed
		return err
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// save writes what has been measured so far, for a run takes long.
func (p plan) save(all []figures) error {
	if p.out == "" {
		return nil
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(p.out, append(b, '\n'), 0o644)
}

func numbers(text string) (out []int, err error) {
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number above 0", word)
		}
		out = append(out, n)
	}
	return out, nil
}

// contenders are the engines, each beside the raw row of its variant.
var contenders = []struct {
	engine string
	delta  bool
	groups bool // can tell groups of nodes apart
}{
	{"raw", true, true},
	{"sluice", true, true},
	{"gcp-linear", true, false},
	{"gcp-snapshot", true, true},
	{"gcp-per-node", true, false},
	{"raw", false, true},
	{"sluice", false, true},
	{"gcp-linear", false, false},
	{"gcp-snapshot", false, true},
	{"gcp-per-node", false, false},
}

// plan is what a run measures.
type plan struct {
	ns, groups        []int
	sizes, only       []string
	variants          []string
	updates, rollouts int
	out               string // file for the figures, or none
}

func (p plan) measure() (all []figures, err error) {
	for _, size := range p.sizes {
		for _, n := range p.ns {
			for _, groups := range p.groups {
				if groups > n {
					continue
				}
				for _, c := range contenders {
					if p.only != nil && !slices.Contains(p.only, c.engine) || groups > 1 && !c.groups {
						continue
					}
					f := figures{Engine: c.engine, Delta: c.delta, Clients: n, Groups: groups, Size: size}
					if !slices.Contains(p.variants, f.variant()) {
						continue
					}
					fmt.Fprintf(os.Stderr, "%s %s, %d nodes in %d groups, size %s\n", c.engine, f.variant(), n, groups, size)
					if err := f.measure(p.updates, p.rollouts); err != nil {
						return all, fmt.Errorf("%s %s, %d nodes in %d groups, size %s: %w", c.engine, f.variant(), n, groups, size, err)
					}
					all = append(all, f)
					relate(all)
					if err := p.save(all); err != nil {
						return all, err
					}
				}
			}
		}
	}
	return all, nil
}
