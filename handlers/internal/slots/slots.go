// Package slots limits the requests to a backend that are in flight at the same time, so that
// one tenant does not take all of them.
package slots

import (
	"context"
	"crypto/sha256"
	"sync"
)

// A Tenant is a digest that identifies whose request it is, for example of a user and a namespace.
type Tenant = [sha256.Size]byte

// Slots limit the requests in flight. Several goroutines may use them at the same time.
type Slots struct {
	all      chan struct{} // has an element for each request in flight
	eachMost int           // the maximum for one tenant

	mu      sync.Mutex
	tenants map[Tenant]*share // those with requests that are in flight or wait
}

// A share counts the requests of a tenant.
type share struct {
	inFlight chan struct{} // has an element for each request that is in flight or waits for Slots.all
	requests int           // the number in flight or waiting
}

// New returns Slots for at most most requests in flight, and eachMost for one tenant.
func New(most, eachMost int) *Slots {
	return &Slots{all: make(chan struct{}, most), eachMost: eachMost, tenants: make(map[Tenant]*share)}
}

// InFlight returns how many requests are in flight.
func (s *Slots) InFlight() int { return len(s.all) }

// Take waits for a slot. The caller must call release after the request. ok is false if ctx ends first.
func (s *Slots) Take(ctx context.Context, of Tenant) (release func(), ok bool) {
	own := s.enter(of)
	select {
	case own.inFlight <- struct{}{}:
	case <-ctx.Done():
		s.leave(of, own)
		return nil, false
	}
	end := func() {
		<-own.inFlight
		s.leave(of, own)
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		end()
		return nil, false
	}
	return func() {
		<-s.all
		end()
	}, true
}

func (s *Slots) enter(of Tenant) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.tenants[of]
	if own == nil {
		own = &share{inFlight: make(chan struct{}, s.eachMost)}
		s.tenants[of] = own
	}
	own.requests++
	return own
}

func (s *Slots) leave(of Tenant, own *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(s.tenants, of)
	}
}
