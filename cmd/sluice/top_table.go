package main

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// ink is one of the 16 colours, or an attribute; the words say the same.
type ink string

const (
	plain  ink = ""
	red    ink = "31"
	green  ink = "32"
	yellow ink = "33"
	blue   ink = "34"
	cyan   ink = "36"
	dim    ink = "2"
	bold   ink = "1"
	chosen ink = "7"
)

func (i ink) of(text string) string {
	if i == plain || text == "" {
		return text
	}
	return "\x1b[" + string(i) + "m" + text + "\x1b[0m"
}

// cell is one place of a table.
type cell struct {
	text string
	ink  ink
}

// column of a table. Where there is no room those with the highest drop go first;
// 0 always stays.
type column struct {
	title string
	drop  int
	flex  bool // of any width from leastFlex on; the last alone can be
}

const leastFlex = 12

// fit cuts a line to a width, and says so.
func fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	if ansi.StringWidth(text) <= width {
		return text
	}
	return ansi.Truncate(text, width, "…")
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// layout draws a table of a width: its title, and its rows. at is the chosen row,
// or -1.
func layout(width int, columns []column, rows [][]cell, at int) (title string, lines []string) {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = ansi.StringWidth(c.title)
		for _, row := range rows {
			widths[i] = max(widths[i], ansi.StringWidth(row[i].text))
		}
		if c.flex {
			widths[i] = min(widths[i], leastFlex)
		}
	}
	shown := shownColumns(width-3, columns, widths)
	line := func(mark string, of func(i int) (string, ink), all ink) string {
		var b strings.Builder
		b.WriteString(mark)
		left := width - ansi.StringWidth(mark)
		for n, i := range shown {
			text, color := of(i)
			if all != plain {
				color = all
			}
			w := widths[i]
			if n == len(shown)-1 || w > left {
				w = left
			}
			text = fit(text, w)
			b.WriteString(color.of(text))
			if n < len(shown)-1 {
				b.WriteString(strings.Repeat(" ", max(0, min(w, left)-ansi.StringWidth(text))+min(2, max(0, left-w))))
			}
			left -= w + 2
			if left <= 0 {
				break
			}
		}
		return strings.TrimRight(b.String(), " ")
	}
	title = line("   ", func(i int) (string, ink) { return columns[i].title, plain }, dim)
	for r, row := range rows {
		mark, all := "   ", plain
		if r == at {
			mark, all = " > ", bold
		}
		lines = append(lines, line(mark, func(i int) (string, ink) { return row[i].text, row[i].ink }, all))
	}
	return title, lines
}

// shownColumns leaves columns out until the rest fits.
func shownColumns(width int, columns []column, widths []int) []int {
	var shown []int
	sum := 0
	for i := range columns {
		shown = append(shown, i)
		sum += widths[i] + 2
	}
	for sum-2 > width {
		worst := -1
		for n, i := range shown {
			if columns[i].drop > 0 && (worst < 0 || columns[i].drop > columns[shown[worst]].drop) {
				worst = n
			}
		}
		if worst < 0 {
			break
		}
		sum -= widths[shown[worst]] + 2
		shown = append(shown[:worst:worst], shown[worst+1:]...)
	}
	return shown
}

// window is the part of a list around the cursor that has room.
func window[T any](all []T, at, room int) []T {
	from, to := visible(len(all), at, room)
	return all[from:to]
}

func visible(n, at, room int) (from, to int) {
	room = max(0, room)
	if n <= room {
		return 0, n
	}
	from = max(0, min(at-room/2, n-room))
	return from, from + room
}
