//go:build unix

package bench

import (
	"net"
	"syscall"
)

// stale tells whether the server has closed an idle connection, or sent what
// nobody asked for. net/http has a goroutine for that, reading all the time.
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
