// Package socket reads and writes TCP connections with system calls that the Go scheduler
// does not track.
//
// The Go runtime assumes that a system call may block. The first call after an idle time
// wakes the monitor thread of the runtime, which then checks every 20 µs until the process
// is idle again. At some hundred requests per second, this costs more than the calls. Calls
// on a socket in non-blocking mode do not block, so they need no monitoring.
package socket
