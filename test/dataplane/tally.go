package dataplane

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"
)

// maxTexts bounds the distinct error texts that one worker keeps.
const maxTexts = 64

// counts is what a Tally is made from. It can be added and subtracted.
type counts struct {
	requests, failures int
	byLabel            map[string]int
	errors             map[string]int
	latency            [buckets]int
}

func newCounts() counts {
	return counts{byLabel: map[string]int{}, errors: map[string]int{}}
}

func (c *counts) fail(text string) {
	c.failures++
	if _, known := c.errors[text]; !known && len(c.errors) >= maxTexts {
		text = OtherErrors
	}
	c.errors[text]++
}

func (c *counts) add(d *counts, times int) {
	c.requests += times * d.requests
	c.failures += times * d.failures
	for k, n := range d.byLabel {
		c.byLabel[k] += times * n
	}
	for k, n := range d.errors {
		c.errors[k] += times * n
	}
	for i, n := range d.latency {
		c.latency[i] += times * n
	}
}

func (c *counts) tally() Tally {
	t := Tally{
		Requests: c.requests, Failures: c.failures,
		ByLabel: maps.Clone(c.byLabel), Errors: map[string]int{},
		P50: c.quantile(0.50), P99: c.quantile(0.99),
	}
	none := func(_ string, n int) bool { return n == 0 }
	maps.DeleteFunc(t.ByLabel, none)
	texts := slices.SortedFunc(maps.Keys(c.errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.errors[b], c.errors[a]), cmp.Compare(a, b))
	})
	other := c.errors[OtherErrors]
	texts = slices.DeleteFunc(texts, func(s string) bool { return s == OtherErrors })
	for i, text := range texts {
		if i < MaxErrors {
			t.Errors[text] = c.errors[text]
		} else {
			other += c.errors[text]
		}
	}
	t.Errors[OtherErrors] = other
	maps.DeleteFunc(t.Errors, none)
	return t
}

// Latency is counted in microseconds: below 16 exactly, above in 16 buckets for
// each doubling, up to half an hour.
const buckets = 28 * 16

func bucket(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	if us < 16 {
		return int(us)
	}
	shift := bits.Len64(us) - 5
	return min(shift*16+int(us>>shift), buckets-1)
}

// bound is the lowest latency above bucket i.
func bound(i int) time.Duration {
	i++
	if i < 16 {
		return time.Duration(i) * time.Microsecond
	}
	shift := max(0, i/16-1)
	return time.Duration((i-shift*16)<<shift) * time.Microsecond
}

func (c *counts) quantile(q float64) time.Duration {
	total := 0
	for _, n := range c.latency {
		total += n
	}
	rank := int(q * float64(total))
	for i, n := range c.latency {
		if rank -= n; rank < 0 {
			return bound(i)
		}
	}
	return 0
}
