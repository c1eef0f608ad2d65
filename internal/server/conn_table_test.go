package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

func TestLimits(t *testing.T) {
	f := func(serving, atOne, descriptors, memory int64, want limits) {
		t.Helper()
		if got, err := newLimits(serving, atOne, descriptors, memory); err != nil || got != want {
			t.Errorf("%d, %d, %d file descriptors, %d bytes: got %+v, %v, want %+v", serving, atOne, descriptors, memory, got, err, want)
		}
	}
	f(0, 0, 0, 0, limits{10_000, 5000, 128})
	f(0, 0, 1<<20, 0, limits{10_000, 5000, 128})
	f(0, 0, 1<<20, 63_194_180, limits{1469, 734, 128}) // of 512 MiB, the chart's limit
	f(0, 0, 1024, 1<<27, limits{832, 416, 128})
	f(0, 0, 256, 0, limits{192, 96, 32})
	f(0, 0, 4, 0, limits{3, 1, 1})
	f(0, 0, 0, 1, limits{1, 1, 128})
	f(100, 0, 1024, 0, limits{100, 50, 128})
	f(100, 7, 1024, 0, limits{100, 7, 128})
	f(831, 0, 1024, 0, limits{831, 415, 128})
	f(832, 0, 1024, 0, limits{832, 416, 128})
	_, err := newLimits(833, 0, 1024, 0)
	if err == nil || !strings.Contains(err.Error(),
		"--max-connections: got 833, want at most 832: the process may have 1024 file descriptors") {
		t.Errorf("one connection more than there are file descriptors for: got %v", err)
	}
}

// TestLimitsOfThisProcess derives the limits from the memory limit of this process.
// TestFewFileDescriptors has a process with few file descriptors.
func TestLimitsOfThisProcess(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	if got := newTestServer(new(admission.Chain), new(Callers), slog.New(slog.DiscardHandler)).limits; got.serving != 130 ||
		got.perAddress != 65 {
		t.Errorf("got %+v, want 130 connections, 65 of strangers at one address", got)
	}
}

// A fakePeer is a connection without a network.
type fakePeer struct {
	member
	busy, closed bool
	waits        bool
	used         int64
}

func (p *fakePeer) lastUsed() int64 { return p.used }
func (p *fakePeer) hasUnread() bool { return p.waits }
func (p *fakePeer) giveUp() bool {
	p.closed = p.closed || !p.busy
	return !p.busy
}

func newFakePeer(address string) *fakePeer {
	p := &fakePeer{}
	p.member = member{peer: p, address: netip.MustParseAddr(address)}
	return p
}

// TestConnectionsMakeRoom fills the table, and checks which connection each further one
// evicts.
func TestConnectionsMakeRoom(t *testing.T) {
	m := newServerMetrics(metrics.NewSet(), new(load)).webhooks
	table := newConnTable(m, 6, 6)
	var all []*fakePeer
	f := func(added *fakePeer, want bool, evicted ...*fakePeer) {
		t.Helper()
		if got := table.add(&added.member); got != want {
			t.Fatalf("got %v for a connection of %s, want %v", got, added.address, want)
		}
		if want {
			all = append(all, added)
		}
		for i, p := range all {
			if p.closed != slices.Contains(evicted, p) {
				t.Errorf("connection %d of %s: got closed %v, want %v", i, p.address, p.closed, !p.closed)
			}
		}
		for _, p := range evicted {
			all = slices.DeleteFunc(all, func(other *fakePeer) bool { return other == p })
		}
		if now := m.open.Load(); now != int64(len(all)) || now > 6 {
			t.Errorf("got %d connections, want %d", now, len(all))
		}
	}
	peers := make(map[string]*fakePeer)
	for _, name := range []string{"a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "d1", "d2", "e1"} {
		peers[name] = newFakePeer(fmt.Sprintf("10.0.0.%d", name[0]))
	}
	for _, name := range []string{"a1", "b1", "b2", "a2", "c1", "b3"} {
		f(peers[name], true)
	}
	f(peers["a3"], true, peers["b1"]) // the oldest of the address with most
	f(peers["c2"], true, peers["a1"])
	table.admit(&peers["a2"].member)
	table.admit(&peers["c1"].member)
	table.admit(&peers["c2"].member)
	table.admit(&peers["c2"].member) // a second time has no effect
	peers["b2"].busy = true
	f(peers["d1"], true, peers["b3"]) // b2 is older but has a request, and known callers stay
	peers["a3"].busy, peers["d1"].busy = true, true
	peers["c1"].used, peers["c2"].used = 100, 50
	f(peers["d2"], true, peers["c2"]) // of the known address with most, the one that is idle for longest
	for _, p := range all {
		p.busy = true
	}
	f(peers["e1"], false)
	if m.refused.Get() != 1 || m.evictedFull.Get() != 4 || m.evictedAddress.Get() != 0 {
		t.Errorf("got %d refused, %d evicted", m.refused.Get(), m.evictedFull.Get())
	}
	table.remove(&peers["d2"].member)
	table.remove(&peers["d2"].member)
	if m.open.Load() != 5 {
		t.Errorf("got %d connections, want 5", m.open.Load())
	}
}

// TestConnectionsForNewcomers has only known callers at first: newcomers that connect
// together do not evict each other.
func TestConnectionsForNewcomers(t *testing.T) {
	table := newConnTable(newServerMetrics(metrics.NewSet(), new(load)).webhooks, 2*strangerShare, 2*strangerShare)
	for range 2 * strangerShare {
		known := newFakePeer("10.0.0.1")
		table.add(&known.member)
		table.admit(&known.member)
	}
	first, second, third := newFakePeer("10.0.0.2"), newFakePeer("10.0.0.2"), newFakePeer("10.0.0.2")
	for _, p := range [...]*fakePeer{first, second, third} {
		if !table.add(&p.member) {
			t.Error("a newcomer was refused")
		}
	}
	if !first.closed || second.closed || third.closed || table.callers.size != 2*strangerShare-2 {
		t.Errorf("got closed %v, %v, %v and %d known, want the first and %d", first.closed, second.closed, third.closed,
			table.callers.size, 2*strangerShare-2)
	}
}

// TestConnectionsOfAnAddress has one more connection of strangers than an address may have;
// known callers do not count.
func TestConnectionsOfAnAddress(t *testing.T) {
	m := newServerMetrics(metrics.NewSet(), new(load)).webhooks
	table := newConnTable(m, 100, 3)
	var all []*fakePeer
	add := func(want bool) {
		t.Helper()
		p := newFakePeer("10.0.0.1")
		if got := table.add(&p.member); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		all = append(all, p)
	}
	for range 3 {
		add(true)
	}
	table.admit(&all[0].member)
	add(true)
	if m.evictedAddress.Get() != 0 || m.open.Load() != 4 {
		t.Errorf("got %d evicted of %d, want none of 4", m.evictedAddress.Get(), m.open.Load())
	}
	add(true)
	if m.evictedAddress.Get() != 1 || !all[1].closed || m.open.Load() != 4 {
		t.Errorf("got %d evicted, want the oldest stranger", m.evictedAddress.Get())
	}
	all[2].waits = true
	add(true)
	if m.evictedAddress.Get() != 2 || all[2].closed || !all[3].closed {
		t.Errorf("got %d evicted, want the oldest stranger without unread data", m.evictedAddress.Get())
	}
	for _, p := range all {
		p.busy = true
	}
	add(false)
	for _, p := range all {
		p.busy, p.waits = false, true
	}
	add(false)
	other := newFakePeer("10.0.0.2")
	if !table.add(&other.member) || m.refused.Get() != 2 {
		t.Error("another address was refused")
	}
}

// TestUnreadLooks has many strangers of one address that wait, before one that is idle.
func TestUnreadLooks(t *testing.T) {
	for waiting, want := range map[int]bool{unreadLooksMax - 1: true, unreadLooksMax: false} {
		table := newConnTable(newServerMetrics(metrics.NewSet(), new(load)).webhooks, 100, int64(waiting)+1)
		for range waiting {
			p := newFakePeer("10.0.0.1")
			p.waits = true
			table.add(&p.member)
		}
		idle := newFakePeer("10.0.0.1")
		table.add(&idle.member)
		if got := table.add(&newFakePeer("10.0.0.1").member); got != want || idle.closed != want {
			t.Errorf("behind %d that wait: got %v, the idle one closed %v, want %v", waiting, got, idle.closed, want)
		}
	}
}

// TestFullOfUnread has a full table of waiting strangers: they do not keep others out.
func TestFullOfUnread(t *testing.T) {
	table := newConnTable(newServerMetrics(metrics.NewSet(), new(load)).webhooks, 3, 3)
	for range 3 {
		p := newFakePeer("10.0.0.1")
		p.waits = true
		table.add(&p.member)
	}
	if !table.add(&newFakePeer("10.0.0.2").member) {
		t.Error("another address was refused")
	}
}

// TestConnectionsOfAnAddressAsConfigured has tables with and without a limit for an address.
func TestConnectionsOfAnAddressAsConfigured(t *testing.T) {
	for mostAtOne, want := range map[int64]int64{0: 3, 1: 1, 2: 2, 3: 3} {
		m := newServerMetrics(metrics.NewSet(), new(load)).webhooks
		table := newConnTable(m, 100, mostAtOne)
		for range 3 {
			table.add(&newFakePeer("10.0.0.1").member)
		}
		if got := m.open.Load(); got != want {
			t.Errorf("at most %d of strangers at one address: got %d, want %d", mostAtOne, got, want)
		}
	}
}

// TestLeastUsed has a known caller of one address, and checks which connection is evicted
// for another one.
func TestLeastUsed(t *testing.T) {
	f := func(want int, used ...int64) {
		t.Helper()
		table := newConnTable(newServerMetrics(metrics.NewSet(), new(load)).webhooks, int64(len(used)), 0)
		var all []*fakePeer
		for _, at := range used {
			p := newFakePeer("10.0.0.1")
			p.used = at
			table.add(&p.member)
			table.admit(&p.member)
			all = append(all, p)
		}
		table.makeRoom()
		for i, p := range all {
			if p.closed != (i == want) {
				t.Errorf("connection %d of %d: got closed %v, want the one numbered %d", i, len(all), p.closed, want)
			}
		}
	}
	f(0, 1, 2, 3)
	f(1, 2, 1, 3)
	f(2, 3, 2, 1)
	f(0, 1, 1, 1) // the oldest of equal ones
	used := make([]int64, leastUsedOf+2)
	for i := range used {
		used[i] = 10
	}
	used[leastUsedOf+1] = 1
	f(0, used...) // one so far behind is not found
	used[leastUsedOf] = 1
	f(leastUsedOf, used...)
}

// TestConnectionsStayConsistent calls all operations in random order, and compares the
// counts.
func TestConnectionsStayConsistent(t *testing.T) {
	m := newServerMetrics(metrics.NewSet(), new(load)).webhooks
	table := newConnTable(m, 50, 20)
	random := rand.New(rand.NewPCG(1, 2))
	var all []*fakePeer
	for range 20_000 {
		switch n := random.IntN(10); {
		case n < 6 || len(all) == 0:
			p := newFakePeer(fmt.Sprintf("10.0.0.%d", random.IntN(6)))
			p.busy = random.IntN(10) == 0
			if table.add(&p.member) {
				all = append(all, p)
			}
		case n < 8:
			table.admit(&all[random.IntN(len(all))].member)
		default:
			i := random.IntN(len(all))
			table.remove(&all[i].member)
			all = slices.Delete(all, i, i+1)
		}
		all = slices.DeleteFunc(all, func(p *fakePeer) bool { return p.closed })
		counted := 0
		table.each(func(peer) { counted++ })
		if counted != len(all) || table.size() != len(all) || counted > 50 {
			t.Fatalf("got %d connections, %d by count, want %d", counted, table.size(), len(all))
		}
		for _, c := range [...]*connClass{&table.strangers, &table.callers} {
			for i, g := range c.largest {
				if g.at != i || g.members.Len() > c.largest[0].members.Len() || g.members.Len() == 0 {
					t.Fatalf("group %d of %d connections says it is %d, the first one has %d", i, g.members.Len(), g.at,
						c.largest[0].members.Len())
				}
			}
		}
	}
}

func TestAddressOf(t *testing.T) {
	f := func(from, want string) {
		t.Helper()
		address, err := net.ResolveTCPAddr("tcp", from)
		if err != nil {
			t.Fatal(err)
		}
		if got := addressOf(address); got != netip.MustParseAddr(want) {
			t.Errorf("%s: got %s, want %s", from, got, want)
		}
	}
	f("10.1.2.3:4", "10.1.2.3")
	f("[::ffff:10.1.2.3]:4", "10.1.2.3")
	f("[2001:db8:1:2:3:4:5:6]:7", "2001:db8:1:2::")
	f("[fe80::1%lo]:7", "fe80::")
	if got := addressOf(&net.UnixAddr{}); got.IsValid() {
		t.Errorf("got %s for no address", got)
	}
}

// failing is a listener whose Accept returns every kind of error, and then continues.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		conn, other := net.Pipe()
		return conn, other.Close()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// TestAcceptGoesOn has accepting fail with every error of a busy machine, with increasing
// pauses.
func TestAcceptGoesOn(t *testing.T) { synctest.Test(t, testAcceptGoesOn) }

func testAcceptGoesOn(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	m, log, full := newServerMetrics(metrics.NewSet(), new(load)).webhooks, new(servertest.Buffer), 0
	var errs []error
	for _, errno := range slices.Repeat([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED}, 2) {
		errs = append(errs, &net.OpError{Op: "accept", Net: "tcp", Addr: ln.Addr(), Err: os.NewSyscallError("accept4", errno)})
	}
	a := &acceptor{&failing{ln, errs}, m, NewLog(log), func() { full++ }}
	start := time.Now()
	if conn, err := a.Accept(); err != nil || conn == nil {
		t.Errorf("got %v, %v, want a connection", conn, err)
	}
	if got, want := time.Since(start), (5+10+20+40+80+160+320+640+1000+1000)*time.Millisecond; got != want {
		t.Errorf("got pauses of %s, want %s", got, want)
	}
	if m.acceptErrors.Get() != 10 || full != 4 || !strings.Contains(log.String(), "too many open files") {
		t.Errorf("got %d errors, %d times full, log %s", m.acceptErrors.Get(), full, log)
	}
	a.Listener = ln
	if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v of a closed listener", err)
	}
}

// TestPortsAcceptAgain has accepting fail on each port for lack of file descriptors. It
// continues, after an open connection was evicted.
func TestPortsAcceptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		s := newIdleServer(new(servertest.Buffer))
		f := func(name string, port net.Listener, metrics *portMetrics, of *failing, raw func(net.Conn) net.Conn) {
			t.Helper()
			first, err := port.Accept()
			if err != nil || metrics.open.Load() != 1 {
				t.Fatalf("%s: got %d connections, %v", name, metrics.open.Load(), err)
			}
			of.errs = []error{os.NewSyscallError("accept4", syscall.EMFILE)}
			second, err := port.Accept()
			if err != nil || metrics.acceptErrors.Get() != 1 || metrics.evictedFull.Get() != 1 || metrics.open.Load() != 1 {
				t.Fatalf("%s: got %v, %d errors, %d closed, %d open, want one of each", name, err, metrics.acceptErrors.Get(),
					metrics.evictedFull.Get(), metrics.open.Load())
			}
			if _, err := raw(first).Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: got %v, want that the first connection is closed", name, err)
			}
			if _ = second.Close(); metrics.open.Load() != 0 {
				t.Errorf("%s: got %d connections after the last was closed", name, metrics.open.Load())
			}
		}
		of := &failing{Listener: ln}
		f("webhooks", s.listen(of, new(tls.Config), limits{serving: 10, perAddress: 10}), s.metrics.webhooks, of,
			func(c net.Conn) net.Conn { return c.(*conn).transport.Conn })
		of = &failing{Listener: ln}
		f("ops", newOpsListener(of, s.metrics.ops, 10, s.log), s.metrics.ops, of, func(c net.Conn) net.Conn { return c.(*opsConn).Conn })
	})
}

// TestKnownCallersStay fills the server with strangers: a known caller keeps its
// connections, even during a call, and gets new ones.
func TestKnownCallersStay(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	servertest.WriteFile(t, tokens, "secret,kube-apiserver,1\n")
	f := func(name string, headers []string, set func(*setup)) {
		t.Run(name, func(t *testing.T) {
			started, goOn := make(chan struct{}), make(chan struct{})
			s := serve(t, "Waits,AlwaysPullImages", []admission.Plugin{waiting(started, goOn)}, set,
				func(s *setup) { s.ConnectionsMax = 8 })
			ask := func(x *servertest.Exchange) {
				t.Helper()
				if response, body := x.Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate),
					headers...)); response.StatusCode != http.StatusOK {
					t.Errorf("got %s %s", response.Status, body)
				}
			}
			idle, busy := s.Open(t), s.Open(t)
			ask(idle)
			if _, err := busy.Conn.Write(servertest.Request("/validate/waits", corpus.MustRead(servertest.PodCreate),
				headers...)); err != nil {
				t.Fatal(err)
			}
			<-started
			servertest.Crowd(t, s.Address, 30)
			ask(idle)
			ask(s.Open(t))
			close(goOn)
			if response, body := busy.Receive(); response.StatusCode != http.StatusOK {
				t.Errorf("in hand: got %s %s", response.Status, body)
			}
			servertest.Crowd(t, s.Address, 30)
			ask(idle)
			ask(busy)
			metrics := s.Get(t, "/metrics", 200)
			for _, line := range []string{`fastadmit_connections{port="webhooks"} `,
				`fastadmit_connections_max{port="webhooks"} 8`, `fastadmit_connections_shed_total{port="webhooks",reason="address"} `} {
				if !strings.Contains(metrics, line) || strings.Contains(metrics, line+"0\n") {
					t.Errorf("no %q above 0 in %s", line, metrics)
				}
			}
		})
	}
	f("without authentication", nil, func(*setup) {})
	f("with tokens", []string{"Authorization: Bearer secret", "Content-Type: application/json"},
		func(s *setup) { s.Callers.TokenFile = tokens })
}

// TestRefusedConnection opens one connection beyond the limit while all others have a call.
// It is closed without being read.
func TestRefusedConnection(t *testing.T) {
	const most = 3
	started, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, "Waits,AlwaysPullImages", []admission.Plugin{waiting(started, goOn)},
		func(s *setup) { s.ConnectionsMax = 3; s.ConnectionsPerAddressMax = 3 })
	busy := s.fill(t, most, started)
	for range 2 {
		refused := servertest.DialTCP(t, s.Address)
		if n, err := refused.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %d bytes, %v, want a closed connection", n, err)
		}
	}
	metrics := s.Get(t, "/metrics", 200)
	for _, line := range []string{`fastadmit_connections{port="webhooks"} 3`,
		`fastadmit_connections_shed_total{port="webhooks",reason="refused"} 2`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}
	close(goOn)
	for _, x := range busy {
		if response, body := x.Receive(); response.StatusCode != http.StatusOK {
			t.Errorf("in hand: got %s %s", response.Status, body)
		}
	}
}

// TestOpsPortStays fills the ops port, which continues to answer.
func TestOpsPortStays(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	servertest.Crowd(t, strings.TrimPrefix(s.Ops, "http://"), 2*opsConnectionsMax)
	s.Get(t, "/livez", 200)
	if metrics := s.Get(t, "/metrics", 200); !strings.Contains(metrics, `fastadmit_connections_max{port="ops"} 128`) ||
		strings.Contains(metrics, `fastadmit_connections_shed_total{port="ops",reason="full"} 0`) {
		t.Errorf("got %s", metrics)
	}
}
