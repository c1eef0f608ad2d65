package socket

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Waits reports whether there is unread data on a TCP connection that the other end has
// not closed. It is false for other connections. It uses poll(2).
func Waits(c net.Conn) (waits bool) {
	of, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
		n, err := unix.Poll(asked, 0)
		waits = n == 1 && err == nil && asked[0].Revents == unix.POLLIN
	})
	return waits && err == nil
}
