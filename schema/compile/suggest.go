package compile

import (
	"fmt"
	"strings"
)

// meant is the hint for a name that is none of those known: the likeliest of
// them, or else what to do, with the known names if they are few.
func meant(name string, known []string, otherwise string) string {
	if best := nearest(name, known); best != "" && best != name {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(known) > 0 && len(known) <= 20 {
		list := "known: " + strings.Join(known, ", ")
		if otherwise != "" {
			list += "; " + otherwise
		}
		return list
	}
	return otherwise
}

// nearest finds the known name that a typing mistake could have made into
// name, or returns "". Of equally near ones the first in order wins.
func nearest(name string, known []string) string {
	best, at := "", 1+max(1, len(name)/3)
	if len(name) < 2 {
		return ""
	}
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k), at); d < at && d < len(k) {
			best, at = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, changes and swaps of neighbours
// that lead from a to b, or returns limit if there are as many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j]+cost, prev[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], prev2[j-1]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return min(prev[len(b)], limit)
}
