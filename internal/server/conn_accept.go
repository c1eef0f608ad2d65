package server

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"
)

const (
	// acceptDelayMin and acceptDelayMax bound how long accepting pauses after it
	// failed, twice as long each time. net/http has the same.
	acceptDelayMin = 5 * time.Millisecond
	acceptDelayMax = time.Second
)

// An acceptor accepts connections for as long as its listener is open. Nothing
// else ends it: that there are no file descriptors or no memory may be over in a
// moment, and a process that ends answers nobody.
type acceptor struct {
	net.Listener
	metrics *portMetrics
	log     *slog.Logger
	full    func() // makes room, for there are no file descriptors
}

// Accept implements net.Listener. Its error is net.ErrClosed.
func (a *acceptor) Accept() (net.Conn, error) {
	for delay := acceptDelayMin; ; delay = min(2*delay, acceptDelayMax) {
		conn, err := a.Listener.Accept()
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		a.metrics.acceptErrors.Inc()
		a.log.Error("cannot accept a connection", "address", a.Addr().String(), "error", err.Error(), "next try after", delay.String())
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			a.full()
		}
		time.Sleep(delay)
	}
}

// An opsListener accepts connections of the ops port. If there are too many, a new connection
// takes the place of the oldest one of the address with most connections. Connections that
// have carried a probe count as those of known callers.
type opsListener struct {
	acceptor
	table *connTable
}

func newOpsListener(ln net.Listener, metrics *portMetrics, most int64, log *slog.Logger) *opsListener {
	table := newConnTable(metrics, most, 0)
	return &opsListener{acceptor{ln, metrics, log, table.makeRoom}, table}
}

// Accept implements net.Listener.
func (l *opsListener) Accept() (net.Conn, error) {
	raw, err := l.acceptor.Accept()
	if err != nil {
		return nil, err
	}
	c := &opsConn{Conn: raw, table: l.table}
	c.member = member{peer: c, address: addressOf(raw.RemoteAddr())}
	l.table.add(&c.member) // there is always room, for each connection gives up
	return c, nil
}

// An opsConn is a connection of the ops port.
type opsConn struct {
	net.Conn
	member member
	table  *connTable
}

func (c *opsConn) giveUp() bool {
	_ = c.Conn.Close() // whoever uses it learns of it
	return true
}

// hasUnread implements peer. The table does not ask: an address has no share of this port.
func (c *opsConn) hasUnread() bool { return false }

func (c *opsConn) lastUsed() int64 { return 0 }

// Close implements net.Conn.
func (c *opsConn) Close() error {
	err := c.Conn.Close()
	c.table.remove(&c.member)
	return err
}
