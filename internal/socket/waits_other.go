//go:build !linux

package socket

import "net"

// Waits returns false: unread data is detected only on Linux.
func Waits(net.Conn) bool { return false }
