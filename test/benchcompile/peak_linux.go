package main

import (
	"os"
	"syscall"
)

// peakOf is the largest resident set of a process or of its children, in MiB.
func peakOf(p *os.ProcessState) float64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return float64(u.Maxrss) / 1024
}
