//go:build !unix

package bench

import "net"

// stale considers every idle connection open. A request on a closed one fails.
func stale(net.Conn) bool { return false }
