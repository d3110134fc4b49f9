package main

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// make screenshot sets it: the tests in tmux then keep what they see in docs.
var screenshot = flag.Bool("screenshot", false, "write docs/top-*.svg from what TestTopInTmux sees")

// picture keeps the terminal as it is, in colour.
func (p *pane) picture(name string) {
	p.t.Helper()
	if *screenshot {
		must(p.t, os.WriteFile(filepath.Join("../../docs", name+".svg"), []byte(svgOf(p.run("capture-pane", "-p", "-e"))), 0o644))
	}
}

// inks are the colours of a dark terminal, by SGR code.
var inks = map[string]string{"31": "#ff6b68", "32": "#5fd787", "33": "#e5c07b", "34": "#61afef", "36": "#56b6c2"}

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// svgOf draws text with SGR sequences, one cell a character.
func svgOf(screen string) string {
	const cellWidth, cellHeight = 8.4, 18
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	width := 0
	for _, l := range lines {
		width = max(width, ansi.StringWidth(l))
	}
	var b strings.Builder
	w, h := float64(width+2)*cellWidth, (len(lines)+1)*cellHeight
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" viewBox=\"0 0 %.0f %d\" font-family=\"monospace\" font-size=\"14\" fill=\"#d0d0d0\">\n", w, h, w, h)
	b.WriteString("<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1c1f26\"/>\n")
	style := map[string]bool{}
	for i, l := range lines {
		column := 0
		draw := func(text string) {
			if strings.TrimSpace(text) != "" {
				attrs := ""
				for code, c := range inks {
					if style[code] {
						attrs += " fill=\"" + c + "\""
					}
				}
				if style["1"] {
					attrs += " font-weight=\"bold\""
				}
				if style["2"] {
					attrs += " opacity=\"0.6\""
				}
				fmt.Fprintf(&b, "<text xml:space=\"preserve\" x=\"%.1f\" y=\"%d\" textLength=\"%.1f\"%s>%s</text>\n",
					float64(column+1)*cellWidth, (i+1)*cellHeight, float64(ansi.StringWidth(text))*cellWidth, attrs, html.EscapeString(text))
			}
			column += ansi.StringWidth(text)
		}
		at := 0
		for _, m := range sgr.FindAllStringSubmatchIndex(l, -1) {
			draw(l[at:m[0]])
			for _, code := range strings.Split(l[m[2]:m[3]], ";") {
				switch {
				case code == "" || code == "0":
					clear(style)
				case code == "39":
					for c := range inks {
						delete(style, c)
					}
				default:
					style[code] = true
				}
			}
			at = m[1]
		}
		draw(l[at:])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func TestSVG(t *testing.T) {
	got := svgOf("a \x1b[1;31m<b>\x1b[0m c\n")
	for _, want := range []string{`fill="#ff6b68" font-weight="bold">&lt;b&gt;<`, `>a <`, `> c<`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}
