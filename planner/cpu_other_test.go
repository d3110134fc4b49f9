//go:build !linux

package planner

import "time"

func threadTime() (time.Duration, bool) { return 0, false }
