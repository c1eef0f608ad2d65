package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/allocs"
)

// pair returns the two ends of a TCP connection, the first one wrapped by Fast.
func pair(t *testing.T) (fast, other net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if other, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close(); other.Close() })
	limit := time.Now().Add(5 * time.Minute) // a read that never ends fails
	_, _ = accepted.SetDeadline(limit), other.SetDeadline(limit)
	return Fast(accepted), other
}

// TestBytes transfers more bytes than the kernel buffers, so that writes and
// reads have to wait, in both directions at once.
func TestBytes(t *testing.T) {
	fast, other := pair(t)
	sent := make([]byte, 16<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 3)
	}
	var writers [2]chan error
	for i, conn := range []net.Conn{fast, other} {
		writers[i] = make(chan error, 1)
		go func() {
			n, err := conn.Write(sent)
			if err == nil && n != len(sent) {
				err = io.ErrShortWrite
			}
			writers[i] <- err
		}()
	}
	echoed := make(chan []byte, 1)
	go func() {
		got := make([]byte, len(sent))
		_, _ = io.ReadFull(other, got) // the number of missing bytes differs
		echoed <- got
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(fast, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("reading: got other bytes, or %v", err)
	}
	if !bytes.Equal(<-echoed, sent) {
		t.Error("writing: the other end got other bytes")
	}
	if err := errors.Join(<-writers[0], <-writers[1]); err != nil {
		t.Error(err)
	}
}

// TestDeadlines reads from a peer that does not send, and writes to one that
// does not read.
func TestDeadlines(t *testing.T) {
	fast, _ := pair(t)
	_ = fast.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := fast.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading: got %d, %v, want the deadline", n, err)
	}
	_ = fast.SetDeadline(time.Now().Add(20 * time.Millisecond))
	sent := make([]byte, 64<<20)
	n, err := fast.Write(sent)
	var network net.Error
	if n == len(sent) || !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("writing: got %d, %v, want the deadline", n, err)
	}
}

// TestEnds closes this end while it reads, and the other end in order and with a
// reset.
func TestEnds(t *testing.T) {
	fast, _ := pair(t)
	go func() {
		time.Sleep(10 * time.Millisecond)
		fast.Close()
	}()
	if n, err := fast.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: got %d, %v", n, err)
	}
	fast, other := pair(t)
	_, _ = other.Write([]byte("last"))
	_ = other.Close()
	if got, err := io.ReadAll(fast); string(got) != "last" || err != nil {
		t.Errorf("closed by the other end: got %q, %v", got, err)
	}
	fast, other = pair(t)
	_ = other.(*net.TCPConn).SetLinger(0)
	_ = other.Close()
	var of *net.OpError
	if n, err := fast.Read(make([]byte, 1)); n != 0 || !errors.As(err, &of) {
		t.Errorf("reading after a reset: got %d, %v", n, err)
	}
	if n, err := fast.Write([]byte("x")); n != 0 || !errors.As(err, &of) {
		t.Errorf("writing after a reset: got %d, %v", n, err)
	}
}

// TestAllocations sends and reads a little.
func TestAllocations(t *testing.T) {
	fast, other := pair(t)
	buffer, answer := make([]byte, 100), make([]byte, 100)
	if n := allocs.PerRun(100, func() {
		_, _ = other.Write(buffer[:50])
		_, _ = fast.Read(buffer)
		_, _ = fast.Write(buffer[:50])
		_, _ = other.Read(answer)
	}); n != 0 {
		t.Errorf("got %g allocations, want none", n)
	}
}

// TestOthers does not wrap connections that are not TCP.
func TestOthers(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got := Fast(a); got != a {
		t.Errorf("got %T", got)
	}
}
