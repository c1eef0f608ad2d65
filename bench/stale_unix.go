//go:build unix

package bench

import (
	"net"
	"syscall"
)

// stale reports whether the server has closed an idle connection, or has sent unexpected data.
// net/http has a goroutine that reads from each connection for that.
func stale(c net.Conn) bool {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	open := false
	err = raw.Read(func(fd uintptr) bool {
		var buffer [1]byte
		_, _, err := syscall.Recvfrom(int(fd), buffer[:], syscall.MSG_PEEK)
		open = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	})
	return err != nil || !open
}
