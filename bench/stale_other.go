//go:build !unix

package bench

import "net"

// stale takes every idle connection for open: a request on one that is closed
// fails.
func stale(net.Conn) bool { return false }
