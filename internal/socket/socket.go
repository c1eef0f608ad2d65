// Package socket reads and writes TCP connections without telling Go's
// scheduler of each system call.
//
// The runtime treats a system call as something that may block: the first one
// after the process was idle wakes the runtime's monitor thread, which looks
// after the call every 20 µs until the process is idle again. At some hundred
// requests a second that costs more than the calls. Those of a socket in
// non-blocking mode do not block, so nobody needs to look after them.
package socket
