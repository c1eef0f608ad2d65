package app

import (
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
)

// keptBytesMax is from how many bytes on no more are read that TLS only keeps: those
// of the handshake, and afterwards those that came without a byte for HTTP. Go's TLS
// keeps messages of up to 64 KiB, and 256 KiB of certificates: 2,800 connections took
// 310 MB. A hello has 2 KB and a certificate some KB with those of its authorities. A
// record has 16 KiB, and is whole before more than it is read.
const keptBytesMax = 24 << 10

// turns are how many TLS handshakes compute at a time: as many as there are
// processors. A handshake costs as much as a hundred answers, and anybody can
// begin one. Without turns, a call on an open connection would wait for the
// processor behind the handshakes of as many strangers as there are connections. So
// it waits for one of each processor. The handshakes wait for each other, the first
// one first.
type turns chan struct{}

func newTurns() turns { return make(turns, runtime.GOMAXPROCS(0)) }

// A turn is a connection under TLS. During a handshake it computes only while it has
// one of the turns. It has none while it waits for the other end, which could
// otherwise keep it. begin, end, Read and Write are of the connection's goroutine
// until end returns.
type turn struct {
	net.Conn
	turns  turns
	gone   chan struct{} // closed by cancel
	within bool          // a handshake
	has    bool          // a turn
	kept   int           // bytes that were read since begin or deliver
	works  atomic.Bool   // what was read is worked on, or waits for a turn
}

func newTurn(of net.Conn, turns turns) turn {
	return turn{Conn: of, turns: turns, gone: make(chan struct{})}
}

// begin says that a handshake begins.
func (t *turn) begin() { t.within = true }

// deliver says that HTTP has got all that was read and reads on.
func (t *turn) deliver() { t.kept = 0 }

// end says that the handshake is over.
func (t *turn) end() {
	t.leave()
	t.within = false
}

// cancel ends the wait for a turn. It is called once.
func (t *turn) cancel() { close(t.gone) }

func (t *turn) leave() {
	if t.has {
		<-t.turns
		t.has = false
	}
}

// Read implements net.Conn.
func (t *turn) Read(b []byte) (int, error) {
	if t.kept >= keptBytesMax {
		return 0, fmt.Errorf("got %d bytes for TLS alone, want less than %d", t.kept, keptBytesMax)
	}
	t.leave()
	t.works.Store(false)
	n, err := t.Conn.Read(b)
	t.works.Store(err == nil)
	t.kept += n
	if err != nil || !t.within {
		return n, err
	}
	select {
	case t.turns <- struct{}{}:
		t.has = true
		return n, nil
	case <-t.gone:
		return 0, net.ErrClosed
	}
}

// Write implements net.Conn. A handshake has computed what it computes before it
// writes, or reads before it goes on.
func (t *turn) Write(b []byte) (int, error) {
	t.leave()
	return t.Conn.Write(b)
}
