package compile

import (
	"strings"

	"github.com/sluice-xds/sluice/schema"
)

// word reports whether a whole word comes next.
func (r *literalReader) word(w string) bool {
	rest := r.src[r.at:]
	return len(rest) > len(w) && string(rest[:len(w)]) == w && !isLetter(rest[len(w)]) && !isDigit(rest[len(w)])
}

func (r *literalReader) peek() byte {
	if r.at < len(r.src) {
		return r.src[r.at]
	}
	return 0
}

func (r *literalReader) take(c byte) bool {
	if r.peek() == c && r.at < len(r.src) {
		r.at++
		return true
	}
	return false
}

// space passes over blanks and a comment, within the line.
func (r *literalReader) space() {
	for r.at < len(r.src) && (r.src[r.at] == ' ' || r.src[r.at] == '\t') {
		r.at++
	}
	if r.at+1 < len(r.src) && r.src[r.at] == '/' && r.src[r.at+1] == '/' {
		for r.at < len(r.src) && r.src[r.at] != '\n' && r.src[r.at] != '\r' && r.src[r.at] != 0 {
			r.at++
		}
	}
}

// blank passes over blank lines too, and reports whether a line ended.
func (r *literalReader) blank() (ended bool) {
	for {
		r.space()
		if !r.take('\n') {
			return ended
		}
		ended = true
		r.line++
		r.bol = r.at
	}
}

// ends reports whether a declaration ends here, and goes to the next.
func (r *literalReader) ends() bool {
	return r.blank() || r.at == len(r.src)
}

func (r *literalReader) pos() schema.Pos {
	return schema.Pos{File: r.name, Line: r.line, Col: r.at - r.bol + 1}
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

func (r *literalReader) ident() string {
	from := r.at
	for r.at < len(r.src) && (isLetter(r.src[r.at]) || r.at > from && isDigit(r.src[r.at])) {
		r.at++
	}
	if w, ok := words()[string(r.src[from:r.at])]; ok {
		return w
	}
	return string(r.src[from:r.at])
}

// text reads a string on one line with the simplest escapes.
func (r *literalReader) text() (string, bool) {
	if !r.take('"') {
		return "", false
	}
	from := r.at
	var b []byte
	for r.at < len(r.src) {
		c := r.src[r.at]
		switch {
		case c == '"':
			r.at++
			if b == nil {
				return string(r.src[from : r.at-1]), true
			}
			return string(b), true
		case c == '\\' && r.at+1 < len(r.src):
			if b == nil {
				b = append(make([]byte, 0, 64), r.src[from:r.at]...)
			}
			i := strings.IndexByte(`nt"\`, r.src[r.at+1])
			if i < 0 {
				return "", false
			}
			b = append(b, "\n\t\"\\"[i])
			r.at += 2
			continue
		case c < ' ' || c >= 0x7f || c == '\\':
			return "", false
		}
		if b != nil {
			b = append(b, c)
		}
		r.at++
	}
	return "", false
}
