package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// dataFormats are the forms of data that the server gives.
var dataFormats = []string{"table", "wide", "json", "yaml"}

// print writes a document in the form that is asked for. table gives the text for
// people; wide asks for more columns.
func (a *app) print(format *choice, doc any, table func(wide bool) string) error {
	switch format.value {
	case "json":
		return printJSON(a.out, doc)
	case "yaml":
		text, err := yamlOf(doc)
		if err != nil {
			return err
		}
		_, err = io.WriteString(a.out, text)
		return err
	}
	_, err := io.WriteString(a.out, table(format.value == "wide"))
	return err
}

// columns lays rows out; cells are apart by tabs.
func columns(rows ...string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, row)
	}
	t.Flush()
	return b.String()
}

// yamlOf is the JSON of a document as YAML, in the same order.
func yamlOf(doc any) (string, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return "", err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	y := yamlWriter{dec: dec}
	y.value(0, "")
	return y.b.String(), y.err
}

type yamlWriter struct {
	dec *json.Decoder
	b   strings.Builder
	err error
}

// value writes the next value. lead is what stands on the line already.
func (y *yamlWriter) value(depth int, lead string) {
	tok, err := y.dec.Token()
	if err != nil {
		y.err = err
		return
	}
	switch tok {
	case json.Delim('{'):
		y.each(depth, lead, "{}", func() string {
			key, err := y.dec.Token()
			if err != nil {
				y.err = err
			}
			return yamlString(fmt.Sprint(key)) + ":"
		})
	case json.Delim('['):
		y.each(depth, lead, "[]", func() string { return "-" })
	default:
		y.line(lead, yamlScalar(tok))
	}
}

// each writes the members of an object or an array.
func (y *yamlWriter) each(depth int, lead, empty string, name func() string) {
	if !y.dec.More() {
		y.line(lead, empty)
	} else {
		if lead != "" && !strings.HasSuffix(lead, "-") {
			y.line(lead, "")
			lead = ""
		}
		for first := true; y.dec.More() && y.err == nil; first = false {
			by := strings.Repeat("  ", depth)
			if first && lead != "" {
				by = lead + " "
			}
			y.value(depth+1, by+name())
		}
	}
	if _, err := y.dec.Token(); err != nil && y.err == nil {
		y.err = err
	}
}

func (y *yamlWriter) line(lead, text string) {
	if lead != "" {
		lead += " "
	}
	y.b.WriteString(strings.TrimRight(lead+text, " ") + "\n")
}

func yamlScalar(tok json.Token) string {
	switch v := tok.(type) {
	case nil:
		return "null"
	case string:
		return yamlString(v)
	}
	return fmt.Sprint(tok)
}

// yamlString quotes what could be read as anything but a string.
func yamlString(s string) string {
	plain := s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == "" &&
		strings.Trim(s[:1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/_") == ""
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return strconv.QuoteToGraphic(s)
}
