package server

import (
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
)

// tlsBytesMax is the maximum of bytes that are read for TLS alone: those of the handshake,
// and afterwards those without a byte for HTTP. Go's TLS keeps messages of up to 64 KiB, and 256 KiB of certificates: 2,800 connections took
// 310 MB. A hello has 2 KB and a certificate some KB with those of its authorities. A
// record has 16 KiB, and is whole before more than it is read.
const tlsBytesMax = 24 << 10

// handshakeSlots bound how many TLS handshakes compute at a time: as many as there are
// processors. A handshake costs as much as a hundred answers, and anybody can
// begin one. Without slots, a call on an open connection would wait for the
// processor behind the handshakes of as many strangers as there are connections. So
// it waits for one of each processor. The handshakes wait for each other, the first
// one first.
type handshakeSlots chan struct{}

func newHandshakeSlots() handshakeSlots { return make(handshakeSlots, runtime.GOMAXPROCS(0)) }

// A handshakeConn is a connection under TLS. During a handshake it computes only while it
// has a slot. It has none while it waits for the client, which could otherwise hold it. begin, end, Read and Write are of the connection's goroutine
// until end returns.
type handshakeConn struct {
	net.Conn
	slots       handshakeSlots
	gone        chan struct{} // closed by cancel
	inHandshake bool          // a handshake
	hasSlot     bool          // whether it has a slot
	tlsBytes    int           // bytes that were read since begin or deliver
	working     atomic.Bool   // what was read is worked on, or waits for a slot
	written     atomic.Int64  // bytes
}

func newHandshakeConn(of net.Conn, slots handshakeSlots) handshakeConn {
	return handshakeConn{Conn: of, slots: slots, gone: make(chan struct{})}
}

// begin says that a handshake begins.
func (t *handshakeConn) begin() { t.inHandshake = true }

// deliver says that HTTP has got all that was read and reads on.
func (t *handshakeConn) deliver() { t.tlsBytes = 0 }

// end says that the handshake is over.
func (t *handshakeConn) end() {
	t.leave()
	t.inHandshake = false
}

// cancel ends the wait for a slot. It is called once.
func (t *handshakeConn) cancel() { close(t.gone) }

func (t *handshakeConn) leave() {
	if t.hasSlot {
		<-t.slots
		t.hasSlot = false
	}
}

// Read implements net.Conn.
func (t *handshakeConn) Read(b []byte) (int, error) {
	if t.tlsBytes >= tlsBytesMax {
		return 0, fmt.Errorf("got %d bytes for TLS alone, want less than %d", t.tlsBytes, tlsBytesMax)
	}
	t.leave()
	t.working.Store(false)
	n, err := t.Conn.Read(b)
	t.working.Store(err == nil)
	t.tlsBytes += n
	if err != nil || !t.inHandshake {
		return n, err
	}
	select {
	case t.slots <- struct{}{}:
		t.hasSlot = true
		return n, nil
	case <-t.gone:
		return 0, net.ErrClosed
	}
}

// Write implements net.Conn. A handshake has computed what it computes before it
// writes, or reads before it goes on.
func (t *handshakeConn) Write(b []byte) (int, error) {
	t.leave()
	n, err := t.Conn.Write(b)
	t.written.Add(int64(n))
	return n, err
}
