package server

import (
	"container/heap"
	"container/list"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
)

const (
	// connectionBytes is what an open connection costs in memory: 42 KB were
	// measured for one that is idle after a TLS handshake and a request, its
	// read buffer of 16 KiB included. With memory.ConnectionsShare, there are 1,469 with
	// the 512 MiB of the chart. A kube-apiserver keeps 25 idle ones for each webhook, and opens more
	// only while calls wait.
	connectionBytes = 42 << 10

	// connectionsMost is how many connections there may be by default where
	// memory has no limit: 430 MB.
	connectionsMost = 10_000

	// opsConnectionsMax bounds those of the ops port, which are opened by
	// kubelets' probes and by Prometheus, a few at a time.
	opsConnectionsMax = 128

	// filesReserved is how many file descriptors are left for what is neither:
	// configuration files that are read again, connections to kube-apiserver,
	// listeners, the poller. A running server has 12.
	filesReserved = 64

	// addressShare is the part of the connections that strangers at one address
	// may have by default: 734 with the 512 MiB of the chart. Connections of known
	// callers do not count, so it is no bound for kube-apiservers that share the
	// address of a proxy, unless they open more than so many at once. One has at most
	// 600 requests in flight by default.
	addressShare = 2

	// strangerShare is the part of the connections that strangers may have at the
	// cost of idle known ones: every caller is one during its handshake and first
	// call, and a burst of them must not push each other out.
	strangerShare = 8

	// unreadLooksMax is how many of the oldest strangers at an address are looked at for one
	// that may go. What is asked of the kernel for each takes less than a microsecond.
	unreadLooksMax = 32

	// leastUsedOf is among how many connections of a known address the one that
	// is unused for the longest time is looked for: it bounds the time of it.
	leastUsedOf = 256
)

// limits are how many connections may be open.
type limits struct {
	serving, perAddress int64 // of the serving port, and of strangers at one address
	ops                 int64
}

// newLimits returns the limits for a process that may have so many file
// descriptors and whose connections may take so much memory, of which 0 is no limit: what is not
// chosen, 0, follows from these.
func newLimits(serving, atOne, descriptors, memory int64) (limits, error) {
	if descriptors <= 0 {
		descriptors = math.MaxInt64
	}
	l := limits{serving: serving, perAddress: atOne, ops: min(opsConnectionsMax, max(descriptors/8, 1))}
	most := max(descriptors-l.ops-min(filesReserved, descriptors/8), 1)
	if serving > most {
		return l, fmt.Errorf("--max-connections: got %d, want at most %d: the process may have %d file descriptors (RLIMIT_NOFILE), and needs %d for other things",
			serving, most, descriptors, descriptors-most)
	}
	if serving == 0 {
		l.serving = min(most, connectionsMost)
		if memory > 0 {
			l.serving = min(most, max(memory/connectionBytes, 1))
		}
	}
	if atOne == 0 {
		l.perAddress = max(l.serving/addressShare, 1)
	}
	return l, nil
}

// A connTable has the connections that a port has open. There is a bound for all of them
// and one for strangers by address. When it is reached, a new connection takes
// the place of the one that deserves its place least: a stranger's before one of
// a known caller, unless strangers are few; of the address that has most of
// them; among strangers the oldest, among known callers the one that is unused
// for the longest time. None that carries a call is closed.
//
// Where strangers at one address have their share, one that waits for this server and
// not for its own end stays, and the new connection is refused: a server that is too slow
// for what comes would otherwise close those which it has already worked for, the
// next ones to be served, and serve nobody.
type connTable struct {
	metrics              *portMetrics
	most, mostPerAddress int
	mu                   sync.Mutex
	strangers, callers   connClass
}

func newConnTable(metrics *portMetrics, most, mostAtOne int64) *connTable {
	metrics.most.Store(most)
	return &connTable{metrics: metrics, most: int(most), mostPerAddress: int(mostAtOne)}
}

// A member is a connection in the table. Everything but peer and address is the
// table's.
type member struct {
	peer    peer
	address netip.Addr

	class   *connClass // nil if it is not in the table
	group   *group
	element *list.Element
}

// A peer is what the table knows of a connection. Both methods are called while
// the table is locked.
type peer interface {
	// giveUp closes the connection, unless it carries a call, and reports
	// whether it did.
	giveUp() bool
	// hasUnread reports whether the client has sent something that was not read or
	// worked on yet, and still waits.
	hasUnread() bool
	// lastUsed says when it had its last request, on any clock, 0 for never.
	lastUsed() int64
}

// add makes m, a stranger, part of the table if there is or can be made room.
func (t *connTable) add(m *member) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.strangers.groups[m.address]; t.mostPerAddress > 0 && g != nil && g.members.Len() >= t.mostPerAddress {
		if !t.evictIdle(g) {
			t.metrics.refused.Inc()
			return false
		}
		t.metrics.evictedAddress.Inc()
	}
	if t.size() >= t.most && !t.evict() {
		t.metrics.refused.Inc()
		return false
	}
	t.strangers.add(m)
	t.metrics.open.Store(int64(t.size()))
	return true
}

// admit says that m is a known caller's.
func (t *connTable) admit(m *member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.class == &t.strangers {
		t.strangers.remove(m)
		t.callers.add(m)
	}
}

// remove takes m out of the table, if it is in it.
func (t *connTable) remove(m *member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(m)
}

// makeRoom closes the connection that deserves it least, for there are no file
// descriptors.
func (t *connTable) makeRoom() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evict()
}

// open returns how many connections there are.
func (t *connTable) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size()
}

// each calls f for all connections, while the table is locked.
func (t *connTable) each(f func(peer)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range [...]*connClass{&t.strangers, &t.callers} {
		for _, g := range c.groups {
			for e := g.members.Front(); e != nil; e = e.Next() {
				f(e.Value.(*member).peer)
			}
		}
	}
}

func (t *connTable) size() int { return t.strangers.size + t.callers.size }

func (t *connTable) drop(m *member) {
	if m.class != nil {
		m.class.remove(m)
		t.metrics.open.Store(int64(t.size()))
	}
}

// evict closes the connection that deserves its place least.
func (t *connTable) evict() bool {
	order := [...]*connClass{&t.strangers, &t.callers}
	if t.strangers.size < t.most/strangerShare {
		order = [...]*connClass{&t.callers, &t.strangers}
	}
	for _, c := range order {
		for _, g := range c.largest { // the first one is the largest, and has none to give up only if all carry calls
			if t.evictFrom(g) {
				t.metrics.evictedFull.Inc()
				return true
			}
		}
	}
	return false
}

// evictFrom closes the oldest connection of a group of strangers, or one of
// known callers that was not used for long.
func (t *connTable) evictFrom(g *group) bool {
	for e := g.members.Front(); e != nil; e = e.Next() {
		m := e.Value.(*member)
		if m.class == &t.callers {
			m = g.leastUsed(e)
		}
		if m.peer.giveUp() {
			t.drop(m)
			return true
		}
	}
	return false
}

// evictIdle closes the oldest of a group of strangers that wait for nothing.
func (t *connTable) evictIdle(g *group) bool {
	looks := 0
	for e := g.members.Front(); e != nil && looks < unreadLooksMax; e = e.Next() {
		m := e.Value.(*member)
		if looks++; !m.peer.hasUnread() && m.peer.giveUp() {
			t.drop(m)
			return true
		}
	}
	return false
}

// leastUsed returns the member that is unused for the longest time, of those
// from e on.
func (g *group) leastUsed(e *list.Element) *member {
	least := e.Value.(*member)
	used := least.peer.lastUsed()
	for range leastUsedOf {
		if e = e.Next(); e == nil {
			break
		}
		m := e.Value.(*member)
		if at := m.peer.lastUsed(); at < used {
			least, used = m, at
		}
	}
	return least
}

// A connClass has the connections of strangers, or those of known callers, by address.
type connClass struct {
	size    int
	groups  map[netip.Addr]*group
	largest groups
}

// A group is the connections of an address, the oldest first.
type group struct {
	address netip.Addr
	members *list.List // of *member
	at      int        // in the heap
}

func (c *connClass) add(m *member) {
	g := c.groups[m.address]
	if g == nil {
		if c.groups == nil {
			c.groups = make(map[netip.Addr]*group)
		}
		g = &group{address: m.address, members: list.New()}
		c.groups[m.address] = g
		heap.Push(&c.largest, g)
	}
	m.class, m.group, m.element = c, g, g.members.PushBack(m)
	heap.Fix(&c.largest, g.at)
	c.size++
}

func (c *connClass) remove(m *member) {
	g := m.group
	g.members.Remove(m.element)
	if g.members.Len() == 0 {
		heap.Remove(&c.largest, g.at)
		delete(c.groups, g.address)
	} else {
		heap.Fix(&c.largest, g.at)
	}
	m.class, m.group, m.element = nil, nil, nil
	c.size--
}

// groups are a heap with the largest group on top.
type groups []*group

func (g groups) Len() int           { return len(g) }
func (g groups) Less(i, j int) bool { return g[i].members.Len() > g[j].members.Len() }
func (g groups) Swap(i, j int) {
	g[i], g[j] = g[j], g[i]
	g[i].at, g[j].at = i, j
}

// Push implements heap.Interface.
func (g *groups) Push(x any) {
	added := x.(*group)
	added.at = len(*g)
	*g = append(*g, added)
}

// Pop implements heap.Interface.
func (g *groups) Pop() any {
	last := len(*g) - 1
	removed := (*g)[last]
	(*g)[last] = nil
	*g = (*g)[:last]
	return removed
}

// addressOf returns the address that a peer's connections are counted by: of
// IPv6 the first 64 bits, for these are what a host has to choose from.
func addressOf(from net.Addr) netip.Addr {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if address.Is6() {
		prefix, err := address.Prefix(64)
		if err == nil {
			return prefix.Addr()
		}
	}
	return address
}
