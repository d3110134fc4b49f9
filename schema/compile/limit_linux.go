package compile

import (
	"context"
	"syscall"
)

// limitMemory bounds what the process can allocate. RLIMIT_AS would count what
// Go merely reserves, and kill it at once.
func limitMemory(bytes int64) error {
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)})
}

// watchMemory is not needed: the kernel bounds the worker.
func watchMemory(context.Context, int, int64, func()) {}
