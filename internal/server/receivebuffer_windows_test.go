package server

import "syscall"

// setReceiveBuffer sets how much a socket takes that nobody reads.
func setReceiveBuffer(fd uintptr, bytes int) error {
	return syscall.SetsockoptInt(syscall.Handle(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, bytes)
}
