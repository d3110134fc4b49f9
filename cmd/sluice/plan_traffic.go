package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-xds/sluice/planner"
	"github.com/sluice-xds/sluice/schema"
)

// traffic adds what becomes of a group's requests.
func (b *planBuilder) traffic(group string, from, to schema.Snapshot) error {
	all, err := planner.Impact(from, to)
	if err != nil {
		return fmt.Errorf("cannot tell what becomes of the traffic of group %s: %w", group, err)
	}
	for i := range all {
		c := &all[i]
		t := planTraffic{
			Groups: []string{group}, Table: c.Table, Hosts: c.Hosts, Match: c.Match,
			Before: planAnswer(c.Before), After: planAnswer(c.After),
		}
		switch {
		case !c.Moves():
			t.Summary = c.Note
		case c.Note != "":
			t.Summary = trafficWords(t.Before, t.After, from) + " (" + c.Note + ")"
		default:
			t.Summary = trafficWords(t.Before, t.After, from)
		}
		i := slices.IndexFunc(b.doc.Traffic, func(o planTraffic) bool {
			return o.Table == t.Table && slices.Equal(o.Hosts, t.Hosts) && o.Match == t.Match && o.Summary == t.Summary
		})
		if i < 0 {
			b.doc.Traffic = append(b.doc.Traffic, t)
		} else {
			b.doc.Traffic[i].Groups = append(b.doc.Traffic[i].Groups, group)
		}
	}
	return nil
}

// trafficWords says what changes: 10% moves to api-v2 (new).
func trafficWords(before, after planAnswer, from schema.Snapshot) string {
	switch {
	case len(before.Weights) == 0 || len(after.Weights) == 0 || before.Other != after.Other:
		return before.words() + " becomes " + after.words()
	}
	was, is := before.shares(), after.shares()
	var moves []string
	for _, c := range slices.Sorted(maps.Keys(is)) {
		gain := is[c] - was[c]
		if gain <= 1e-9 {
			continue
		}
		to := c
		if from.Get(schema.Key{Type: schema.Clusters, Name: c}) == nil {
			to += " (new)"
		}
		moves = append(moves, fmt.Sprintf("%s moves to %s", percent(gain), to))
	}
	words := strings.Join(moves, ", ")
	if gone := slices.DeleteFunc(slices.Collect(maps.Keys(was)), func(c string) bool { return is[c] > 0 }); len(gone) > 0 {
		words += "; nothing is left for " + sortedWords(gone)
	}
	return words
}

// words is where requests go.
func (a planAnswer) words() string {
	switch {
	case a.Redirect != "":
		return fmt.Sprintf("redirect to %s (%d)", a.Redirect, a.Status)
	case a.Status != 0:
		return fmt.Sprintf("status %d", a.Status)
	case len(a.Weights) == 0 && a.Other == "":
		return "a 404"
	}
	var parts []string
	shares := a.shares()
	for _, c := range slices.Sorted(maps.Keys(shares)) {
		if len(shares) == 1 {
			parts = append(parts, c)
		} else {
			parts = append(parts, c+" "+percent(shares[c]))
		}
	}
	if a.Other != "" {
		parts = append(parts, a.Other)
	}
	return strings.Join(parts, ", ")
}

// shares are the parts of the requests, of 1.
func (a planAnswer) shares() map[string]float64 {
	total := 0.0
	for _, w := range a.Weights {
		total += float64(w)
	}
	out := map[string]float64{}
	for c, w := range a.Weights {
		if w > 0 {
			out[c] = float64(w) / total
		}
	}
	return out
}

func percent(part float64) string {
	return strconv.FormatFloat(part*100, 'g', 3, 64) + "%"
}

// requestWords is a host and a match as people write them: api.example.com/cart.
func requestWords(host, match string) string {
	kind, rest, _ := strings.Cut(match, " ")
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return host + "  " + match
	}
	value, _ := strconv.Unquote(quoted)
	demands := rest[len(quoted):]
	switch kind {
	case "prefix":
		return host + value + demands
	case "path":
		return host + value + " (exact)" + demands
	}
	return host + "  " + match
}
