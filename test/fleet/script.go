package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Script is how a client answers. The zero Script acknowledges everything at once.
type Script struct {
	Delay time.Duration // before each answer, while it goes on reading
	Nack  float64       // the share of responses that it refuses, 0 to 1
	Never bool          // answers nothing more once it holds everything
	Pause time.Duration // before each message is read: a slow reader
	Life  time.Duration // after which it connects anew; 0 for never
}

// Steady reports whether the client accepts whatever it is sent.
func (s Script) Steady() bool { return s.Nack == 0 && !s.Never }

// Share is a script and how many parts of a fleet follow it.
type Share struct {
	Parts int
	Script
}

// ParseMix reads shares such as "80:ack=5ms 10:nack=5% 5:never 5:read=200ms,life=3s".
func ParseMix(text string) ([]Share, error) {
	var mix []Share
	for _, word := range strings.Fields(text) {
		parts, rest, ok := strings.Cut(word, ":")
		n, err := strconv.Atoi(parts)
		if !ok || err != nil || n < 1 {
			return nil, fmt.Errorf("cannot read the share %q: want PARTS:SCRIPT, such as 80:ack=5ms", word)
		}
		s, err := parseScript(rest)
		if err != nil {
			return nil, fmt.Errorf("cannot read the share %q: %w", word, err)
		}
		mix = append(mix, Share{n, s})
	}
	return mix, nil
}

func parseScript(text string) (s Script, err error) {
	for _, word := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ack":
			if value != "" { // without a time: at once
				s.Delay, err = time.ParseDuration(value)
			}
		case "nack":
			var percent float64
			percent, err = strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
			if err == nil && !(percent >= 0 && percent <= 100) { // NaN is neither
				err = fmt.Errorf("nack=%s is no share", value)
			}
			s.Nack = percent / 100
		case "never":
			s.Never = true
		case "read":
			s.Pause, err = time.ParseDuration(value)
		case "life":
			s.Life, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown word %q: want ack=TIME, nack=PERCENT, never, read=TIME or life=TIME", word)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// script is the script of the i-th client: shares are dealt in turn, so that any
// first part of a fleet is mixed like the whole.
func script(mix []Share, i int) Script {
	all := 0
	for _, s := range mix {
		all += s.Parts
	}
	if all == 0 {
		return Script{}
	}
	// A stride that shares no factor with the sum visits every part once.
	stride := all*618/1000 | 1
	for gcd(stride, all) != 1 {
		stride++
	}
	at := i * stride % all
	for _, s := range mix {
		if at < s.Parts {
			return s.Script
		}
		at -= s.Parts
	}
	return Script{}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
