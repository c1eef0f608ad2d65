//go:build linux && !race

package socket

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// callBytesMax bounds the bytes that one system call copies, because the scheduler cannot
// run another goroutine on this processor meanwhile. A TLS record is shorter: it has 16
// KiB and a header (RFC 8446, section 5.2).
const callBytesMax = 64 << 10

// A conn is a TCP connection. A read and a write may run at the same time, but not two
// reads or two writes. TLS needs no more.
type conn struct {
	*net.TCPConn
	raw         syscall.RawConn
	read, write transfer
}

// A transfer is a read or a write in progress.
type transfer struct {
	call  uintptr // number of the system call
	left  []byte  // the rest of the buffer to fill or to write
	whole bool    // continue until all of left is done
	n     int     // bytes transferred so far
	errno syscall.Errno
	try   func(fd uintptr) (done bool) // the method attempt, stored because a method value allocates
}

// Fast returns a TCP connection that uses cheaper system calls. It returns other connections
// unchanged. Deadlines and Close work as for the original connection. Only one goroutine at
// a time may read, and only one may write.
func Fast(of net.Conn) net.Conn {
	tcp, ok := of.(*net.TCPConn)
	if !ok {
		return of
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return of
	}
	c := &conn{TCPConn: tcp, raw: raw}
	c.read.call, c.write.call, c.write.whole = unix.SYS_READ, unix.SYS_WRITE, true
	c.read.try, c.write.try = c.read.attempt, c.write.attempt
	return c
}

// attempt repeats the system call until the transfer is done or would block.
func (t *transfer) attempt(fd uintptr) (done bool) {
	for len(t.left) > 0 {
		size := min(len(t.left), callBytesMax)
		n, _, errno := unix.RawSyscall(t.call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.left))), uintptr(size))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return false
		case errno != 0:
			t.errno = errno
			return true
		}
		t.n += int(n)
		t.left = t.left[n:]
		if !t.whole || n == 0 {
			return true
		}
	}
	return true
}

// begin starts a transfer of b.
func (t *transfer) begin(b []byte) { t.left, t.n, t.errno = b, 0, 0 }

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.read.begin(b)
	err := c.raw.Read(c.read.try)
	c.read.left = nil // the buffer belongs to the caller
	n := c.read.n
	switch {
	case err != nil:
		return n, err
	case c.read.errno != 0:
		return n, c.failed("read", c.read.errno)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.write.begin(b)
	err := c.raw.Write(c.write.try)
	c.write.left = nil // the buffer belongs to the caller
	n := c.write.n
	switch {
	case err != nil:
		return n, err
	case c.write.errno != 0:
		return n, c.failed("write", c.write.errno)
	case n < len(b):
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

// failed returns the error that package net returns for a failed system call.
func (c *conn) failed(call string, errno syscall.Errno) error {
	return &net.OpError{
		Op: call, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(call, errno),
	}
}
