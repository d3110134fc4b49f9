package main

import (
	"net"
	"syscall"
)

// peerUser asks the kernel, whom a client cannot deceive.
func peerUser(c net.Conn) (uid uint32, ok bool) {
	u, isUnix := c.(*net.UnixConn)
	if !isUnix {
		return 0, false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid, ok = cred.Uid, true
		}
	})
	return uid, ok && err == nil
}
