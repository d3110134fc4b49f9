package main

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestUnified: every line of a diff stands where the numbers of its hunk say, on
// both sides.
func TestUnified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few changes in much text make several hunks.
		left := make([]string, rapid.IntRange(0, 80).Draw(t, "lines"))
		var right []string
		for i := range left {
			left[i] = fmt.Sprint(i)
			switch rapid.IntRange(0, 30).Draw(t, "change") {
			case 1:
				right = append(right, "new", left[i])
			case 2:
				right = append(right, "new")
			case 3:
			default:
				right = append(right, left[i])
			}
		}
		join := func(lines []string) string {
			var b strings.Builder
			for _, l := range lines {
				b.WriteString(l + "\n")
			}
			return b.String()
		}
		sides := map[byte][]string{'-': left, '+': right}
		diff, err := unified("l", "r", join(sides['-']), join(sides['+']))
		if err != nil {
			t.Fatal(err)
		}
		next := map[byte]int{}
		is := func(side byte, line string) {
			n := next[side]
			next[side]++
			if n < 1 || n > len(sides[side]) || sides[side][n-1] != line {
				t.Fatalf("line %d of side %c is not %q:\n%s", n, side, line, diff)
			}
		}
		for line := range strings.Lines(diff) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ "):
			case strings.HasPrefix(line, "@@"):
				var left, right int
				from, to, _ := strings.Cut(strings.Trim(line, "@ "), " ")
				_, _ = fmt.Sscanf(from, "-%d", &left) // the count behind a comma is left
				_, _ = fmt.Sscanf(to, "+%d", &right)
				next = map[byte]int{'-': left, '+': right}
			case line[0] == ' ':
				is('-', line[1:])
				is('+', line[1:])
			default:
				is(line[0], line[1:])
			}
		}
	})
}
